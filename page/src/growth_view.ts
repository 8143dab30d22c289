// What grew: a table of two instants, at first before the first step of a loop and after the last one.

import type { App } from "./app.ts";
import { paint } from "./colours.ts";
import { h, replace } from "./dom.ts";
import { bytes, seconds, signed } from "./format.ts";
import { bars, growth, instants, steps, type GrowthRow, type Instant } from "./growth.ts";
import { Sheet, type SheetRow } from "./sheet.ts";

export class GrowthView {
  readonly element: HTMLElement;
  private readonly told = h("p", { class: "told" });
  private readonly controls = h("div", { class: "controls" });
  private readonly sheet = new Sheet(0);
  private drawn: unknown[] = [];

  constructor(private readonly app: App) {
    this.element = h("div", {}, this.told, this.controls, this.sheet.element);
  }

  draw(): void {
    const { app } = this;
    const { data, state, timeline } = app;
    const key = data?.keys.get(state.key);
    if (!data || !key) return;
    const { from, to } = timeline.range;
    const shown = [data, from, to, state.key, state.label, state.search, state.since, state.until, state.at, timeline.spans];
    if (shown.every((part, at) => part === this.drawn[at])) return;
    this.drawn = shown;
    const found = instants(data, timeline.spans, { from, to });
    const isLoop = timeline.spans !== null && steps(data, timeline.spans, { from, to }).length > 0;
    const all = [...found, ...this.others()];
    const [since, until] = [chosen(all, state.since, 0), chosen(all, state.until, found.length - 1)];
    const { rows, totals } = growth(data, key, [...found, all[since]!, all[until]!]);
    const [first, last, second] = [found.length, found.length + 1, since === 0 && found.length > 2 && isLoop ? 1 : -1];
    rows.sort((a, b) => b.bytes[last]! - a.bytes[last]!);
    const change = (values: Float64Array) => values[last]! - values[first]!;
    const steady = second < 0 ? "" : ` Since ${all[second]!.words}: ${signed(totals[last]! - totals[second]!)}.`;
    this.told.textContent = `From ${all[since]!.words} (${bytes(totals[first]!)}) to ${all[until]!.words} (${bytes(totals[last]!)}): ${signed(change(totals))}.${steady}`;
    this.drawControls(all, since, until);
    const ranks = new Map(key.head.series.map(([, label], at) => [label, at]));
    const row = (found: GrowthRow): SheetRow => ({
      cells: [
        { text: signed(change(found.bytes)), sort: change(found.bytes) },
        ...(second < 0 ? [] : [{ text: signed(found.bytes[last]! - found.bytes[second]!), sort: found.bytes[last]! - found.bytes[second]! }]),
        { text: bytes(found.bytes[first]!), sort: found.bytes[first]! },
        { text: bytes(found.bytes[last]!), sort: found.bytes[last]! },
        { text: bars(found.bytes.subarray(0, first)), sort: null },
        { text: found.label, sort: null, colour: paint(state.key, found.label, ranks.get(found.label) ?? -1) },
      ],
      isSelected: state.label === found.label,
      select: () => app.set({ label: state.label === found.label ? "" : found.label }),
    });
    const numbers = ["Change", ...(second < 0 ? [] : ["Since step 2"]), "Before", "After"].map((title) => ({ title, isNumber: true }));
    const name = state.key[0]!.toUpperCase() + state.key.slice(1);
    this.sheet.show([...numbers, { title: "Over time", isNumber: false }, { title: name, isNumber: false }], rows.map(row), state.search);
  }

  private others(): Instant[] {
    const { app } = this;
    const { head, live, state } = app;
    const selected = state.at === "peak" || state.at === "end" || !live ? [] : [{ timeNs: live.timeNs, words: `the selected moment, ${seconds(live.timeNs, 6)}` }];
    return [
      { timeNs: head.start_ns, words: "the beginning" }, { timeNs: head.peak.time_ns, words: "the peak" }, { timeNs: head.end_ns, words: "the end" }, ...selected,
    ];
  }

  private drawControls(all: Instant[], since: number, until: number): void {
    const select = (label: string, name: "since" | "until", at: number) =>
      h(
        "label", { class: "choice" }, label,
        h(
          "select", { change: (event: Event) => this.app.set({ [name]: (event.target as HTMLSelectElement).value }) },
          ...all.map(({ timeNs, words }, number) => h("option", { value: timeNs, selected: number === at }, `${words} (${seconds(timeNs)})`)),
        ),
      );
    replace(this.controls, select("From", "since", since), select("to", "until", until));
  }
}

/** Number of the instant at a time. */
function chosen(all: Instant[], time: string, initial: number): number {
  const at = time === "" ? -1 : all.findIndex(({ timeNs }) => String(timeNs) === time);
  return at < 0 ? initial : at;
}
