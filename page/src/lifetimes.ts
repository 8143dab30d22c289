// Block lifetimes over the visible range, as PyTorch's active-memory picture: at every moment the live blocks lie on each
// other in the order of their allocation. Each column of pixels shows its highest moment.

import type { App } from "./app.ts";
import { paint } from "./colours.ts";
import { blockLines } from "./block.ts";
import type { DeviceData } from "./device.ts";
import { css, h } from "./dom.ts";
import { bytes, grouped, seconds } from "./format.ts";
import { clamp } from "./picture.ts";
import { slabs, type Slab } from "./slabs.ts";

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
