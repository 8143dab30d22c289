// Table of a moment by a key: sort, search, select.

import type { App } from "./app.ts";
import { linked, sourceText } from "./block.ts";
import { paint } from "./colours.ts";
import { h, replace } from "./dom.ts";
import { bytes, grouped, percent } from "./format.ts";
import { breakdown, type BreakdownRow } from "./moment.ts";
import { hasWords, Sheet, type SheetRow } from "./sheet.ts";

export class BreakdownView {
  readonly element: HTMLElement;
  private readonly sheet = new Sheet();
  private readonly title = h("h3", { class: "told" });
  private readonly elsewhere = h("p", { class: "faint" });
  private readonly source = h("div", {});
  private readonly blocks = h("div", {});
  private drawn: unknown[] = [];

  constructor(private readonly app: App) {
    this.element = h("div", {}, this.title, this.elsewhere, this.source, h("div", { class: "columns" }, this.sheet.element, this.blocks));
  }

  draw(): void {
    const { app } = this;
    const { data, live, state } = app;
    if (!data || !live) return;
    const shown = [live, state.key, state.label, state.search];
    if (shown.every((part, at) => part === this.drawn[at])) return;
    this.drawn = shown;
    this.title.textContent = `${live.words}, by ${state.key}: ${bytes(live.total)} (${grouped(live.total)} bytes)`;
    const about = data.head.is_sample ? "~" : "";
    const rows = breakdown(data, live, state.key);
    const ranks = new Map(app.head.keys.find((key) => key.name === state.key)?.series.map(([, label], at) => [label, at]));
    const row = (found: BreakdownRow): SheetRow => ({
      cells: [
        { text: `${about}${bytes(found.bytes)}`, sort: found.bytes, share: found.bytes / Math.max(1, live.total) },
        { text: percent(found.bytes, live.total), sort: found.bytes },
        { text: found.count === null ? "-" : grouped(found.count), sort: found.count },
        { text: found.median === null ? "-" : bytes(found.median), sort: found.median },
        { text: found.label, sort: null, colour: paint(state.key, found.label, ranks.get(found.label) ?? -1) },
      ],
      isSelected: state.label === found.label,
      select: () => app.set({ label: state.label === found.label ? "" : found.label }),
    });
    const recorded = data.head.is_sample ? "Recorded blocks" : "Blocks";
    const columns = ["Mem", "%", recorded, "Median"].map((title) => ({ title, isNumber: true }));
    this.sheet.show([...columns, { title: state.key[0]!.toUpperCase() + state.key.slice(1), isNumber: false }], rows.map(row), state.search);
    if (state.search !== "") {
      const matching = new Set(this.sheet.shown().map(({ cells }) => cells.at(-1)!.text));
      const bytesOf = rows.filter(({ label }) => matching.has(label)).reduce((sum, { bytes }) => sum + bytes, 0);
      this.title.textContent += `; ${grouped(matching.size)} rows match: ${bytes(bytesOf)} (${percent(bytesOf, live.total)} %)`;
    }
    replace(this.elsewhere, ...(this.sheet.shown().length === 0 ? this.otherKeys() : []));
    const place = state.label.split(" (")[0]!;
    replace(this.source, linked(data, place), sourceText(data, place));
    this.drawBlocks();
  }

  /** Keys by which rows match a search that finds none by this one. */
  private otherKeys(): HTMLElement[] {
    const { data, live, state } = this.app;
    if (!data || !live || state.search === "") return [];
    return [...data.keys.keys()].flatMap((key) => {
      const found = breakdown(data, live, key).filter(({ label }) => hasWords(label, state.search)).length;
      const choose = () => this.app.set({ key, label: "" });
      return found > 0 ? [h("button", { class: "quiet", click: choose }, `By ${key}, ${grouped(found)} ${found === 1 ? "row matches" : "rows match"}`)] : [];
    });
  }

  /** The largest blocks of the selected label, each a button that pins it. */
  private drawBlocks(): void {
    const { app } = this;
    const { data, live, state } = app;
    const key = data?.keys.get(state.key);
    if (!data || !live || !key || state.label === "") return replace(this.blocks);
    const of = data.labelsOf(key);
    const number = key.labels.indexOf(state.label);
    const rows = [...live.rows].filter((row) => of(row) === number);
    rows.sort((a, b) => data.blocks.size[b]! - data.blocks.size[a]! || a - b);
    const names = data.keys.get("name");
    const item = (row: number) => {
      const name = names ? data.label(names, row) : "";
      const text = `${bytes(data.blocks.size[row]!)} ${name && name !== "(unnamed)" ? name : data.label(data.keys.get("operator")!, row)}`;
      return h("li", {}, h("button", { class: "quiet", click: () => app.set({ pin: String(row) }) }, text));
    };
    replace(
      this.blocks,
      h("h4", {}, `Blocks of ${state.label.slice(0, 200)}`),
      h("ol", { class: "blocks" }, ...rows.slice(0, 40).map(item)),
      rows.length > 40 && h("p", { class: "faint" }, `and ${grouped(rows.length - 40)} smaller ones`),
    );
  }
}
