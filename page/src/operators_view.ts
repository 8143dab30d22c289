// The operator series: calls in order with what each added, and the peak inside it.

import type { App } from "./app.ts";
import type { Numbers } from "./columns.ts";
import { css, h, sized } from "./dom.ts";
import { bytes, duration, grouped, seconds, signed } from "./format.ts";
import { Sheet, type SheetRow } from "./sheet.ts";

const NAMES = ["operator", "line", "scope", "number", "backward", "begin", "life", "allocations", "added", "before", "peak"] as const;

type CallColumns = Record<(typeof NAMES)[number], Numbers>;

export class OperatorsView {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "operators", role: "img", "aria-label": "Memory before each call and the peak inside it; the table below says the same." });
  private readonly told = h("p", { class: "told" });
  private readonly sheet = new Sheet(1);
  private calls: CallColumns | null = null;
  private prefix = "";
  private shown: number[] = [];
  private drawn = "";

  constructor(private readonly app: App) {
    this.element = h("div", {}, this.told, this.canvas, this.sheet.element);
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", () => app.hover.hide());
    this.canvas.addEventListener("click", (event) => this.select(this.callAt(event)));
  }

  draw(): void {
    const { app } = this;
    const { data, head, state } = app;
    if (!data) return;
    if (this.prefix !== head.prefix || !this.calls) return void this.load(head.prefix);
    const { from, to } = app.timeline.range;
    const { calls } = this;
    this.shown = [];
    for (let at = 0; at < calls.begin.length; at++) {
      if (calls.begin[at]! <= to && calls.begin[at]! + calls.life[at]! >= from) this.shown.push(at);
    }
    this.told.textContent = `${grouped(this.shown.length)} operator calls in the visible time. Each line is a call, in order: from what was live before it to the peak inside it.`;
    this.drawChart();
    const key = [this.prefix, from, to, state.search, state.label].join("/");
    if (key === this.drawn) return;
    this.drawn = key;
    this.drawSheet();
  }

  private async load(prefix: string): Promise<void> {
    this.prefix = prefix;
    const columns = await Promise.all(NAMES.map((name) => this.app.numbers(`call.${name}`)));
    this.calls = Object.fromEntries(NAMES.map((name, at) => [name, columns[at]!])) as CallColumns;
    this.app.draw();
  }

  private text(column: "operator" | "line" | "scope", at: number): string {
    return this.app.data!.texts.calls[this.calls![column][at]!] ?? "";
  }

  private name(at: number): string {
    return `${this.text("operator", at)}_${this.calls!.number[at]}${this.calls!.backward[at] === 1 ? " (backward)" : ""}`;
  }

  private drawChart(): void {
    const { calls, shown } = this;
    const { ctx, width, height } = sized(this.canvas);
    const top = Math.max(1, this.app.head.peak.bytes, ...shown.slice(0, 1).map((at) => calls!.peak[at]!)) * 1.05;
    const each = width / Math.max(1, shown.length);
    const y = (bytes: number) => height - (bytes / top) * height;
    shown.forEach((at, number) => {
      const [before, peak] = [calls!.before[at]!, calls!.peak[at]!];
      ctx.fillStyle = css("--held");
      ctx.fillRect(number * each, y(before), Math.max(0.5, each), height - y(before));
      ctx.fillStyle = css(calls!.backward[at] === 1 ? "--warn" : "--accent");
      ctx.fillRect(number * each, y(peak), Math.max(0.5, each > 3 ? each - 0.5 : each), Math.max(peak > before ? 1 : 0, y(before) - y(peak)));
    });
  }

  private drawSheet(): void {
    const { calls } = this;
    const row = (at: number): SheetRow => ({
      cells: [
        { text: signed(calls!.added[at]!), sort: calls!.added[at]! },
        { text: bytes(Math.max(0, calls!.peak[at]! - calls!.before[at]!)), sort: calls!.peak[at]! - calls!.before[at]! },
        { text: bytes(calls!.peak[at]!), sort: calls!.peak[at]! },
        { text: grouped(calls!.allocations[at]!), sort: calls!.allocations[at]! },
        { text: seconds(calls!.begin[at]!, 6), sort: calls!.begin[at]! },
        { text: `${this.name(at)}  ${this.text("line", at)}${this.text("scope", at) ? `  ${this.text("scope", at)}` : ""}`, sort: null },
      ],
      select: () => this.select(at),
    });
    const columns = ["Added", "Needed inside", "Peak", "Allocs", "Begin"].map((title) => ({ title, isNumber: true }));
    this.sheet.show([...columns, { title: "Call", isNumber: false }], this.shown.map(row), this.app.state.search);
  }

  /** The moment of the call's end, and its operator. */
  private select(at: number | undefined): void {
    if (at === undefined || !this.calls) return;
    const end = this.calls.begin[at]! + this.calls.life[at]!;
    this.app.set({ at: String(end), key: "operator", label: this.text("operator", at) });
  }

  private callAt(event: MouseEvent): number | undefined {
    const area = this.canvas.getBoundingClientRect();
    return this.shown[Math.floor(((event.clientX - area.left) / area.width) * this.shown.length)];
  }

  private explain(event: PointerEvent): void {
    const at = this.callAt(event);
    const { calls, app } = this;
    if (at === undefined || !calls) return app.hover.hide();
    app.hover.show(event, [
      this.name(at),
      `added ${signed(calls.added[at]!)}, peak ${bytes(calls.peak[at]!)}, before ${bytes(calls.before[at]!)}`,
      `${grouped(calls.allocations[at]!)} allocations in ${duration(calls.life[at]!)}, after ${seconds(calls.begin[at]!, 6)}`,
      this.text("line", at), this.text("scope", at),
    ].filter((line) => line !== ""));
  }
}
