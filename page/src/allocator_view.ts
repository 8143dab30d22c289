// Map of the allocator's memory by address, with its segments as a table.

import type { App } from "./app.ts";
import { blockLines } from "./block.ts";
import { fill, paint } from "./colours.ts";
import { css, h, sized } from "./dom.ts";
import { bytes, grouped, percent } from "./format.ts";
import { laidOut, segmentsAt, type Hole, type MapPart, type SegmentColumns, type SegmentState } from "./segments.ts";
import { Sheet } from "./sheet.ts";

const LINE = 22;
const LINES = 24;

export class AllocatorView {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "allocator", role: "img", "aria-label": "Map of segments and blocks by address; the table below says the same." });
  private readonly told = h("p", { class: "told" });
  private readonly sheet = new Sheet();
  private columns: SegmentColumns | null = null;
  private prefix = "";
  private segments: SegmentState[] = [];
  private parts: MapPart[] = [];

  constructor(private readonly app: App) {
    const free = h("p", { class: "legend" }, h("span", { class: "legend-item" }, h("span", { class: "swatch free", "aria-hidden": "true" }), "free"), "blocks have the colours of the timeline");
    this.element = h("div", {}, this.told, free, this.canvas, this.sheet.element);
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", () => app.hover.hide());
    this.canvas.addEventListener("click", (event) => {
      const part = this.partAt(event);
      if (part && part.row >= 0) app.set({ pin: String(part.row) });
      else this.explain(event);
    });
  }

  draw(): void {
    const { app } = this;
    const { data, live, head } = app;
    if (!data || !live) return;
    if (this.prefix !== head.prefix || !this.columns) return void this.load(head.prefix);
    this.segments = segmentsAt(data, this.columns, live);
    const all = this.segments.reduce((sum, segment) => sum + segment.size, 0);
    const used = this.segments.reduce((sum, segment) => sum + segment.live, 0);
    const holes = this.segments.reduce((sum, segment) => sum + segment.holes.length, 0);
    const largest = this.segments.reduce((most, segment) => Math.max(most, segment.largestHole), 0);
    const isEstimated = this.segments.some((segment) => segment.isEstimated);
    this.canvas.hidden = this.sheet.element.hidden = this.segments.length === 0;
    if (this.segments.length === 0) {
      this.told.textContent = `${live.words}: no segment is known. Segments, and so holes, are those of a GPU's allocator or pool, or of a snapshot of PyTorch.`;
      return;
    }
    this.told.textContent = `${live.words}: ${grouped(this.segments.length)} segments of ${bytes(all)}${isEstimated ? " (estimated from addresses)" : ""}, ${bytes(used)} (${percent(used, all)} %) in blocks, ${bytes(all - used)} free in ${grouped(holes)} holes, the largest ${bytes(largest)}.`;
    this.drawMap(all);
    this.drawSheet();
  }

  private async load(prefix: string): Promise<void> {
    this.prefix = prefix;
    const [address, size, from, life, estimated] = await Promise.all(
      ["address", "size", "from", "life", "estimated"].map((name) => this.app.numbers(`segment.${name}`)),
    );
    this.columns = { address: address!, size: size!, from: from!, life: life!, estimated: estimated! };
    this.app.draw();
  }

  private drawMap(all: number): void {
    const { app } = this;
    const data = app.data!;
    const width = Math.max(100, this.canvas.clientWidth);
    const room = width * LINES - this.segments.length * 3;
    const laid = laidOut(data, this.segments, width, Math.max(1, all / Math.max(width, room)), 2);
    this.parts = laid.parts;
    this.canvas.style.height = `${Math.min(60, laid.lines) * LINE}px`;
    const { ctx } = sized(this.canvas);
    const key = data.keys.get(app.state.key)!;
    const of = data.labelsOf(key);
    const ranks = new Map(key.head.series.map(([number], at) => [number, at]));
    const pinned = app.state.pin === "" ? -2 : Number(app.state.pin);
    for (const { row, hole, line, x, width: length } of this.parts) {
      if (hole) continue;
      const y = line * LINE + 2;
      if (row < 0) {
        ctx.globalAlpha = 1;
        ctx.fillStyle = css("--hole");
        ctx.fillRect(x, y, length, LINE - 5);
        continue;
      }
      const label = key.labels[of(row)] ?? "";
      ctx.globalAlpha = app.state.label !== "" && app.state.label !== label ? 0.25 : 1;
      ctx.fillStyle = row === pinned ? css("--accent") : fill(ctx, paint(app.state.key, label, ranks.get(of(row)) ?? -1));
      ctx.fillRect(x, y, Math.max(0.5, length - (length > 4 ? 0.7 : 0)), LINE - 5);
    }
    ctx.globalAlpha = 1;
  }

  private drawSheet(): void {
    const titles = ["Size", "In blocks", "Blocks", "Holes", "Largest hole"].map((title) => ({ title, isNumber: true }));
    const rows = [...this.segments].sort((a, b) => b.size - b.live - (a.size - a.live)).map((segment) => ({
      cells: [
        { text: bytes(segment.size), sort: segment.size },
        { text: bytes(segment.live), sort: segment.live, share: segment.live / Math.max(1, segment.size) },
        { text: grouped(segment.rows.length), sort: segment.rows.length },
        { text: grouped(segment.holes.length), sort: segment.holes.length },
        { text: bytes(segment.largestHole), sort: segment.largestHole },
        { text: `0x${segment.address.toString(16)}${segment.isEstimated ? " (estimated)" : ""}`, sort: segment.address },
      ],
    }));
    this.sheet.show([...titles, { title: "Address", isNumber: false }], rows, this.app.state.search.startsWith("0x") ? this.app.state.search : "");
  }

  private partAt(event: MouseEvent): MapPart | undefined {
    const area = this.canvas.getBoundingClientRect();
    const [x, line] = [event.clientX - area.left, Math.floor((event.clientY - area.top) / LINE)];
    return this.parts.findLast((part) => part.line === line && x >= part.x && x < part.x + Math.max(1, part.width));
  }

  private explain(event: MouseEvent): void {
    const { app } = this;
    const part = this.partAt(event);
    if (!part || !app.data || !app.live) return app.hover.hide();
    const segment = this.segments[part.segment]!;
    const words = [`segment of ${bytes(segment.size)} at 0x${segment.address.toString(16)}`, `${bytes(segment.live)} in ${grouped(segment.rows.length)} blocks; largest hole ${bytes(segment.largestHole)}`];
    app.hover.show(event, part.row >= 0 ? [...blockLines(app.data, part.row, app.live.timeNs), ...words] : [...holeLines(part.hole), ...words]);
  }
}

function holeLines(hole: Hole | null): string[] {
  return hole ? [`free: ${bytes(hole.size)}`, `${grouped(hole.size)} bytes at 0x${hole.address.toString(16)}`] : ["free"];
}
