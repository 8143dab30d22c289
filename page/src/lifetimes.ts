// Block lifetimes over the visible range, as PyTorch's active-memory picture: at every moment the live blocks lie on each
// other in the order of their allocation. Each column of pixels shows its highest moment.

import type { App } from "./app.ts";
import { paint } from "./colours.ts";
import { blockLines } from "./block.ts";
import type { DeviceData } from "./device.ts";
import { css, h } from "./dom.ts";
import { bytes, grouped, seconds } from "./format.ts";
import { clamp, type TimeRange } from "./picture.ts";

/** A block in a column. Rows below zero are the sum of a label's blocks that are too small to see: -1 for label 0. */
export interface Slab {
  row: number;
  from: number;
  bytes: number;
}

/** The live blocks of each column at its highest moment, of at least `least` bytes, the oldest at the bottom. */
export function slabs(data: DeviceData, range: TimeRange, width: number, least: number, label: (row: number) => number): { columns: Slab[][]; times: Float64Array } {
  const weight = data.blocks.weight;
  const first = data.stepsUntil(range.from);
  const large: number[] = [];
  const small: number[] = [];
  const addSmall = (row: number, bytes: number) => (small[label(row)] = (small[label(row)] ?? 0) + bytes);
  for (let row = 0; row < data.count; row++) {
    if (!data.isLive(row, first)) continue;
    if (weight[row]! >= least) large.push(row);
    else addSmall(row, weight[row]!);
  }
  const columns: Slab[][] = [];
  const times = new Float64Array(width);
  const perNs = width / (range.to - range.from);
  let total = small.reduce((sum, bytes) => sum + bytes, 0) + large.reduce((sum, row) => sum + weight[row]!, 0);
  let step = first;
  for (let x = 0; x < width; x++) {
    const until = range.from + (x + 1) / perNs;
    let end = step;
    let sum = total;
    let [best, highest] = [step, total];
    while (end < data.steps.length && data.stepTime[end]! < until) {
      const code = data.steps[end++]!;
      const bytes = weight[Math.floor(code / 2)]!;
      sum += code % 2 === 1 ? -bytes : bytes;
      if (sum > highest) [best, highest] = [end, sum];
    }
    let taken: Slab[] | null = best === step ? stacked(data, large, small) : null;
    times[x] = best === step ? range.from + x / perNs : data.stepTime[best - 1]!;
    for (; step < end; step++) {
      const code = data.steps[step]!;
      const row = Math.floor(code / 2);
      if (weight[row]! < least) addSmall(row, code % 2 === 1 ? -weight[row]! : weight[row]!);
      else if (code % 2 === 0) large.push(row);
      else remove(large, row);
      if (step + 1 === best) taken = stacked(data, large, small);
    }
    total = sum;
    columns.push(taken ?? []);
  }
  return { columns, times };
}

/** Rows are in the order of allocation, except those from before the log, which are the oldest. */
function remove(rows: number[], row: number): void {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle]! < row) low = middle + 1;
    else high = middle;
  }
  if (rows[low] === row) rows.splice(low, 1);
}

function stacked(data: DeviceData, rows: number[], small: number[]): Slab[] {
  const found: Slab[] = [];
  let from = 0;
  small.forEach((bytes, number) => {
    if (bytes <= 0) return;
    found.push({ row: -1 - number, from, bytes });
    from += bytes;
  });
  for (const row of rows) {
    const bytes = data.blocks.weight[row]!;
    found.push({ row, from, bytes });
    from += bytes;
  }
  return found;
}

const HEIGHT = 380;

export class LifetimesView {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "lifetimes", tabindex: 0, role: "application", "aria-label": "Blocks over time, each on top of older ones. Arrow keys choose a block of the selected moment, Enter pins it." });
  private readonly told = h("p", { class: "told", "aria-live": "polite" });
  private columns: Slab[][] = [];
  private top = 1;
  private drawn = "";
  private focus = -1;

  constructor(private readonly app: App) {
    this.element = h("div", {}, this.told, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", () => app.hover.hide());
    this.canvas.addEventListener("click", (event) => this.pin(this.slabAt(event)));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  draw(): void {
    const { app } = this;
    const { data, timeline, state } = app;
    if (!data || !app.curves) return;
    const range = timeline.range;
    const width = Math.max(50, Math.floor(this.canvas.clientWidth));
    const ink = css("--paper");
    const key = [state.recording, state.device, range.from, range.to, width, state.key, state.label, state.pin, ink].join("/");
    if (key === this.drawn) return;
    this.drawn = key;
    const highest = timeline.highest_shown();
    this.top = Math.max(1, highest * 1.03);
    const least = this.top / HEIGHT / 2;
    const label = data.labelsOf(data.keys.get(state.key)!);
    this.columns = slabs(data, range, width, least, label).columns;
    this.paint(data, width);
    const words = data.head.is_reduced ? ` ${app.head.left_out[0] ?? ""}` : "";
    this.told.textContent = `Blocks from ${seconds(range.from, 6)} to ${seconds(range.to, 6)}, older ones below, coloured by ${state.key}; blocks below ${bytes(Math.ceil(least))} are summed at the bottom.${words}`;
  }

  /** Pixel by pixel: a column has at most one slab a pixel. */
  private paint(data: DeviceData, width: number): void {
    const { app } = this;
    this.canvas.width = width;
    this.canvas.height = HEIGHT;
    const ctx = this.canvas.getContext("2d")!;
    const image = ctx.createImageData(width, HEIGHT);
    const pixels = new Uint32Array(image.data.buffer);
    const key = data.keys.get(app.state.key)!;
    const of = data.labelsOf(key);
    const ranks = new Map(key.head.series.map(([number], at) => [number, at]));
    const shades = new Map<number, [number, number]>();
    const shade = (row: number): [number, number] => {
      const number = row < 0 ? -1 - row : of(row);
      let found = shades.get(number);
      if (!found) {
        const label = key.labels[number] ?? "";
        const { colour } = paint(app.state.key, label, ranks.get(number) ?? -1);
        const isDimmed = app.state.label !== "" && app.state.label !== label;
        found = [packed(colour, isDimmed, 1), packed(colour, isDimmed, 0.72)];
        shades.set(number, found);
      }
      return found;
    };
    const pinned = app.state.pin === "" ? -2 : Number(app.state.pin);
    const marked = packed(css("--accent"), false, 1);
    this.columns.forEach((column, x) => {
      for (const { row, from, bytes } of column) {
        const low = clamp(Math.round(HEIGHT * (1 - from / this.top)), 0, HEIGHT);
        const high = clamp(Math.round(HEIGHT * (1 - (from + bytes) / this.top)), 0, HEIGHT);
        const [inside, edge] = shade(row);
        for (let y = high; y < low; y++) {
          const isEdge = row >= 0 && y === high && low - high > 2;
          pixels[y * width + x] = row === pinned ? marked : isEdge ? edge : inside;
        }
      }
    });
    ctx.putImageData(image, 0, 0);
  }

  private slabAt(event: MouseEvent): Slab | null {
    const area = this.canvas.getBoundingClientRect();
    const column = this.columns[Math.floor(((event.clientX - area.left) / area.width) * this.columns.length)];
    const value = this.top * (1 - (event.clientY - area.top) / area.height);
    return column?.find(({ from, bytes }) => value >= from && value < from + bytes) ?? null;
  }

  private explain(event: PointerEvent): void {
    const slab = this.slabAt(event);
    const { data, timeline, hover } = this.app;
    if (!slab || !data) return hover.hide();
    const key = data.keys.get(this.app.state.key);
    if (slab.row < 0) return hover.show(event, [`${bytes(slab.bytes)} in smaller blocks`, key?.labels[-1 - slab.row] ?? ""]);
    const area = this.canvas.getBoundingClientRect();
    const { from, to } = timeline.range;
    hover.show(event, blockLines(data, slab.row, from + ((event.clientX - area.left) / area.width) * (to - from)));
  }

  private pin(slab: Slab | null): void {
    if (slab && slab.row >= 0) this.app.set({ pin: String(slab.row) });
  }

  private pressed(event: KeyboardEvent): void {
    const { data, live } = this.app;
    if (!data || !live) return;
    const rows = [...live.rows].sort((a, b) => data.blocks.size[b]! - data.blocks.size[a]!);
    if (event.key === "ArrowDown") this.focus = Math.min(rows.length - 1, this.focus + 1);
    else if (event.key === "ArrowUp") this.focus = Math.max(0, this.focus - 1);
    else if (event.key === "Enter" && rows[this.focus] !== undefined) return this.app.set({ pin: String(rows[this.focus]) });
    else return;
    event.preventDefault();
    this.told.textContent = `${grouped(this.focus + 1)} of ${grouped(rows.length)}: ${blockLines(data, rows[this.focus]!, live.timeNs).join(", ")}`;
  }
}

/** A colour as a pixel of an image, mixed with the page's ground if it is dimmed. */
const scratch = h("canvas", { width: 1, height: 1 });

function packed(colour: string, isDimmed: boolean, light: number): number {
  const ctx = scratch.getContext("2d", { willReadFrequently: true })!;
  ctx.fillStyle = css("--paper");
  ctx.fillRect(0, 0, 1, 1);
  ctx.globalAlpha = isDimmed ? 0.25 : 1;
  ctx.fillStyle = colour;
  ctx.fillRect(0, 0, 1, 1);
  ctx.globalAlpha = 1;
  const [red, green, blue] = ctx.getImageData(0, 0, 1, 1).data;
  return ((255 << 24) | (Math.round(blue! * light) << 16) | (Math.round(green! * light) << 8) | Math.round(red! * light)) >>> 0;
}
