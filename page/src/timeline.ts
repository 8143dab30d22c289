// Timeline: live memory stacked by a key, reserved memory and capacity as lines, scopes above. Drag zooms, a click selects a
// moment.

import type { App } from "./app.ts";
import { fill, OTHERS, paint, place, type Paint } from "./colours.ts";
import type { Numbers } from "./columns.ts";
import type { KeyHead } from "./head.ts";
import { css, h, replace, sized } from "./dom.ts";
import { bytes, precision, seconds } from "./format.ts";
import { allShortened } from "./shorten.ts";
import { clamp, fromLevel, fromLog, levelFor, type Columns, type TimeRange } from "./picture.ts";

const LEFT = 72;
const RIGHT = 8;
const LANE = 15;
const LANES = 3;
const BOTTOM = 20;

export interface SpanColumns {
  context: Numbers;
  from: Numbers;
  life: Numbers;
}

interface Series {
  label: string;
  paint: Paint;
  /** Index in the columns; -1 for what no series has. */
  at: number;
}

export class Timeline {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { tabindex: 0, role: "application", "aria-label": "Memory over time. Arrow keys move the moment, plus and minus zoom, P goes to the peak.", class: "timeline" });
  private readonly legend = h("div", { class: "legend" });
  private columns: Columns | null = null;
  private plot = { x: LEFT, y: 0, width: 1, height: 1, top: 1 };
  private drag: { from: number; to: number } | null = null;
  private series: Series[] = [];
  spans: SpanColumns | null = null;
  mix: Numbers | null = null;
  mixKey = "";

  constructor(private readonly app: App) {
    this.element = h("section", { class: "timeline-box", "aria-label": "Memory over time" }, this.canvas, this.legend);
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    this.canvas.addEventListener("pointerup", (event) => this.release(event));
    this.canvas.addEventListener("pointerleave", () => app.hover.hide());
    this.canvas.addEventListener("dblclick", () => app.set({ from: "", to: "" }));
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.press_key(event));
  }

  get range(): TimeRange {
    const { head, state } = this.app;
    const from = state.from === "" ? head.start_ns : Number(state.from);
    const to = state.to === "" ? head.end_ns : Number(state.to);
    return to > from ? { from, to } : { from: head.start_ns, to: head.end_ns };
  }

  draw(): void {
    const { curves } = this.app;
    if (!curves) return;
    const { ctx, width, height } = sized(this.canvas);
    const lanes = this.spans && this.spans.context.length > 0 ? LANES * LANE + 4 : 0;
    this.plot = { x: LEFT, y: lanes + 6, width: width - LEFT - RIGHT, height: height - lanes - 6 - BOTTOM, top: 1 };
    this.columns = this.compute(Math.max(1, Math.floor(this.plot.width)));
    this.series = this.order();
    const { head, state } = this.app;
    let top = head.peak.bytes;
    if (state.from !== "") {
      top = this.columns.highest.reduce((most, bytes) => Math.max(most, bytes), 0);
    } else {
      top = this.columns.highest.reduce((most, bytes) => Math.max(most, bytes), top);
    }
    if (this.columns.reserved) top = this.columns.reserved.reduce((most, bytes) => Math.max(most, bytes), top);
    this.plot.top = Math.max(1, top * 1.06);
    this.drawGrid(ctx);
    this.drawStack(ctx);
    this.drawLines(ctx);
    this.drawLanes(ctx);
    this.drawMoment(ctx);
    this.drawDrag(ctx);
    this.drawLegend();
  }

  private compute(width: number): Columns {
    const { app } = this;
    const curves = app.curves!;
    const range = this.range;
    const at = levelFor(curves.levels, range, width);
    const level = curves.levels[at]!;
    const mix = this.mixKey === app.state.key ? this.mix : null;
    const isFine = level.eachNs <= (range.to - range.from) / width;
    if (at === 0 && isFine) return fromLevel(curves, level, mix, range, width);
    const curve = fromLevel(curves, level, null, range, width);
    if (!app.data) return curve;
    return fromLog(app.data, app.data.keys.get(app.state.key), range, width, curve);
  }

  private order(): Series[] {
    const { key } = this.app.state;
    const head: KeyHead | undefined = this.app.head.keys.find((known) => known.name === key);
    const labels = head?.series ?? [];
    const series = labels.map(([, label], at) => ({ label, at, paint: paint(key, label, at) }));
    if (key === "category") series.sort((a, b) => place(a.label) - place(b.label) || a.at - b.at);
    return [...series, { label: "everything else", at: -1, paint: OTHERS }];
  }

  /** The most bytes in the visible time. */
  highest_shown(): number {
    return this.columns?.highest.reduce((most, bytes) => Math.max(most, bytes), 0) ?? 0;
  }

  private x(ns: number): number {
    const { from, to } = this.range;
    return this.plot.x + ((ns - from) / (to - from)) * this.plot.width;
  }

  private y(bytes: number): number {
    return this.plot.y + this.plot.height * (1 - bytes / this.plot.top);
  }

  timeAt(x: number): number {
    const { from, to } = this.range;
    return clamp(from + ((x - this.plot.x) / this.plot.width) * (to - from), from, to);
  }

  private drawGrid(ctx: CanvasRenderingContext2D): void {
    const { plot } = this;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = css("--faint");
    ctx.strokeStyle = css("--grid");
    ctx.textBaseline = "middle";
    ctx.textAlign = "right";
    const unit = 1024 ** Math.max(0, Math.floor(Math.log2(plot.top) / 10));
    let step = unit;
    for (const factor of [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) if (plot.top / step > 5) step = unit * factor;
    if (plot.top / step < 2) step /= plot.top / step < 1.2 ? 4 : 2;
    for (let value = 0; value <= plot.top; value += step) {
      const y = Math.round(this.y(value)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(plot.x, y);
      ctx.lineTo(plot.x + plot.width, y);
      ctx.stroke();
      ctx.fillText(bytes(value).replace(/\.0+ /, " "), plot.x - 6, y);
    }
    this.drawTimes(ctx);
  }

  private drawTimes(ctx: CanvasRenderingContext2D): void {
    const { plot, range } = this;
    const span = range.to - range.from;
    const rough = span / Math.max(2, plot.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
    const decimals = clamp(Math.ceil(9 - Math.log10(step)), 0, 9);
    ctx.textBaseline = "top";
    ctx.textAlign = "center";
    for (let at = Math.ceil(range.from / step) * step; at <= range.to; at += step) {
      const x = Math.round(this.x(at)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, plot.y + plot.height);
      ctx.lineTo(x, plot.y + plot.height + 4);
      ctx.stroke();
      if (x > plot.x + plot.width - 20) continue;
      ctx.fillText(seconds(at, decimals), x, plot.y + plot.height + 6);
    }
  }

  private drawStack(ctx: CanvasRenderingContext2D): void {
    const { plot, columns, series } = this;
    if (!columns) return;
    const width = columns.highest.length;
    const below = new Float64Array(width);
    const known = new Float64Array(width);
    for (const { at } of series) {
      if (at >= 0 && columns.series[at]) for (let x = 0; x < width; x++) known[x]! += columns.series[at]![x]!;
    }
    const base = this.y(0);
    const scale = plot.height / plot.top;
    for (const { at, paint, label } of series) {
      const values = at >= 0 ? columns.series[at] : null;
      if (at >= 0 && !values) continue;
      const isDimmed = this.app.state.label !== "" && this.app.state.label !== label;
      ctx.globalAlpha = isDimmed ? 0.25 : 1;
      ctx.fillStyle = fill(ctx, paint);
      ctx.beginPath();
      for (let x = 0; x < width; x++) {
        const value = values ? values[x]! : Math.max(0, columns.highest[x]! - known[x]!);
        if (value <= 0) continue;
        const top = base - (below[x]! + value) * scale;
        const height = value * scale;
        ctx.rect(plot.x + x, top, 1.02, height);
        below[x]! += value;
      }
      ctx.fill();
    }
    ctx.globalAlpha = 1;
    this.line(ctx, columns.highest, css("--ink"), 1);
  }

  private line(ctx: CanvasRenderingContext2D, values: Float64Array, colour: string, width: number, dash: number[] = []): void {
    ctx.strokeStyle = colour;
    ctx.lineWidth = width;
    ctx.setLineDash(dash);
    ctx.beginPath();
    for (let x = 0; x < values.length; x++) {
      const y = this.y(values[x]!);
      if (x === 0) ctx.moveTo(this.plot.x, y);
      else ctx.lineTo(this.plot.x + x, y);
      ctx.lineTo(this.plot.x + x + 1, y);
    }
    ctx.stroke();
    ctx.setLineDash([]);
  }

  private drawLines(ctx: CanvasRenderingContext2D): void {
    const { columns, plot } = this;
    if (columns?.reserved) this.line(ctx, columns.reserved, css("--accent"), 1.5, [5, 3]);
    const { capacity } = this.app.head;
    if (capacity && capacity <= plot.top) this.line(ctx, new Float64Array(columns!.highest.length).fill(capacity), css("--warn"), 1.5);
  }

  /** Scopes of the three outermost depths that are visible. */
  private drawLanes(ctx: CanvasRenderingContext2D): void {
    const { spans, plot } = this;
    if (!spans) return;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const ends = new Float64Array(LANES).fill(-1);
    for (let at = 0; at < spans.context.length; at++) {
      const path = this.app.scopePath(spans.context[at]!);
      const lane = path.length - 1;
      if (lane >= LANES || lane < 0) continue;
      const from = Math.max(this.x(spans.from[at]!), plot.x);
      const to = Math.min(this.x(spans.from[at]! + spans.life[at]!), plot.x + plot.width);
      if (to < plot.x || from > plot.x + plot.width || to <= ends[lane]! + 0.5) continue;
      const width = Math.max(1, to - from - 1);
      ends[lane] = from + width;
      const name = path[lane]!;
      ctx.fillStyle = css(at % 2 === 0 ? "--lane" : "--lane-2");
      ctx.fillRect(from, 2 + lane * LANE, width, LANE - 2);
      if (width > 26) {
        ctx.fillStyle = css("--ink");
        ctx.save();
        ctx.beginPath();
        ctx.rect(from, 2 + lane * LANE, width, LANE - 2);
        ctx.clip();
        ctx.fillText(name.slice(0, 120), from + 4, 2 + lane * LANE + LANE / 2 - 0.5);
        ctx.restore();
      }
    }
  }

  private drawMoment(ctx: CanvasRenderingContext2D): void {
    const { plot, app } = this;
    const mark = (ns: number, colour: string, text: string, isStrong: boolean) => {
      const x = this.x(ns);
      if (x < plot.x - 1 || x > plot.x + plot.width + 1) return;
      ctx.strokeStyle = colour;
      ctx.fillStyle = colour;
      ctx.lineWidth = isStrong ? 1.5 : 1;
      ctx.setLineDash(isStrong ? [] : [2, 3]);
      ctx.beginPath();
      ctx.moveTo(x, plot.y - 4);
      ctx.lineTo(x, plot.y + plot.height);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.textBaseline = "top";
      ctx.textAlign = x > plot.x + plot.width - 130 ? "right" : "left";
      const shift = ctx.textAlign === "right" ? -4 : 4;
      ctx.font = "600 11px system-ui, sans-serif";
      const size = ctx.measureText(text).width;
      ctx.globalAlpha = 0.85;
      ctx.fillStyle = css("--paper");
      ctx.fillRect(ctx.textAlign === "right" ? x + shift - size - 2 : x + shift - 2, plot.y - 4, size + 4, 14);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colour;
      ctx.fillText(text, x + shift, plot.y - 3);
    };
    const { peak } = app.head;
    const now = app.live;
    const isPeak = app.state.at === "peak";
    mark(peak.time_ns, isPeak ? css("--accent") : css("--faint"), `peak ${bytes(peak.total)}`, isPeak);
    if (!isPeak && now) mark(now.timeNs, css("--accent"), `${bytes(now.total)} at ${seconds(now.timeNs, precision(this.range.to - this.range.from))}`, true);
  }

  private drawDrag(ctx: CanvasRenderingContext2D): void {
    if (!this.drag || Math.abs(this.drag.to - this.drag.from) < 3) return;
    ctx.fillStyle = css("--brush");
    ctx.fillRect(Math.min(this.drag.from, this.drag.to), this.plot.y, Math.abs(this.drag.to - this.drag.from), this.plot.height);
  }

  private drawLegend(): void {
    const { app, columns } = this;
    const held = (at: number) => at < 0 || (columns?.series[at]?.some((value) => value > 0) ?? false);
    const swatch = (paint: Paint) => {
      const mark = h("span", { class: `swatch pattern-${paint.pattern}`, "aria-hidden": "true" });
      mark.style.backgroundColor = paint.colour;
      return mark;
    };
    const shown = this.series.filter(({ at }) => held(at));
    const short = allShortened(shown.map(({ label }) => label), 44);
    const item = ({ label, at, paint }: Series, number: number) =>
      at < 0
        ? h("span", { class: "legend-item" }, swatch(paint), label)
        : h(
            "button",
            {
              class: "legend-item", title: label, "aria-pressed": String(app.state.label === label),
              click: () => app.set({ label: app.state.label === label ? "" : label }),
            },
            swatch(paint), short[number]!,
          );
    const lines = [
      columns?.reserved && h("span", { class: "legend-item" }, h("span", { class: "dash" }), "reserved"),
      h("span", { class: "legend-item" }, h("span", { class: "line" }), "live"),
    ];
    const zoomed = app.state.from !== "" && h("button", { class: "quiet", click: () => app.set({ from: "", to: "" }) }, "Show all time");
    replace(this.legend, ...lines, ...shown.map(item), zoomed);
  }

  private place(event: PointerEvent | WheelEvent): number {
    return event.clientX - this.canvas.getBoundingClientRect().left;
  }

  private press(event: PointerEvent): void {
    this.canvas.setPointerCapture(event.pointerId);
    const x = this.place(event);
    this.drag = { from: x, to: x };
  }

  private move(event: PointerEvent): void {
    const x = this.place(event);
    if (this.drag) {
      this.drag.to = clamp(x, this.plot.x, this.plot.x + this.plot.width);
      this.draw();
    } else this.explain(event, x);
  }

  private release(event: PointerEvent): void {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (Math.abs(drag.to - drag.from) < 4) this.select(this.place(event));
    else this.zoom(this.timeAt(Math.min(drag.from, drag.to)), this.timeAt(Math.max(drag.from, drag.to)));
  }

  zoom(from: number, to: number): void {
    const { head } = this.app;
    const { levels } = this.app.curves!;
    const least = head.is_reduced ? levels[levels.length - 1]!.eachNs * Math.max(1, this.plot.width) : 100;
    if (to - from < least) {
      const middle = (from + to) / 2;
      [from, to] = [middle - least / 2, middle + least / 2];
    }
    from = Math.max(head.start_ns, Math.floor(from));
    to = Math.min(head.end_ns, Math.ceil(to));
    const isAll = from <= head.start_ns && to >= head.end_ns;
    this.app.set(isAll ? { from: "", to: "" } : { from: String(from), to: String(to) });
  }

  /** Selects the highest moment under a pixel. */
  select(x: number): void {
    this.app.set({ at: String(this.highest(x)) });
  }

  private highest(x: number): number {
    const { data } = this.app;
    const time = this.timeAt(x);
    const half = (this.range.to - this.range.from) / this.plot.width / 2;
    if (!data || data.head.is_reduced) return Math.round(time);
    const [first, last] = [data.stepsUntil(time - half), data.stepsUntil(time + half)];
    let best = first - 1;
    for (let step = first; step < last; step++) if (best < first || data.total[step]! > data.total[best]!) best = step;
    const isHigher = best >= first && (first === 0 || data.total[best]! > data.total[first - 1]!);
    return Math.round(isHigher ? data.stepTime[best]! : time);
  }

  private wheel(event: WheelEvent): void {
    if (!event.ctrlKey && Math.abs(event.deltaX) < Math.abs(event.deltaY) && !event.shiftKey) return;
    event.preventDefault();
    const { from, to } = this.range;
    if (event.ctrlKey) this.zoomAround(this.timeAt(this.place(event)), 1.2 ** Math.sign(event.deltaY));
    else this.pan(((event.deltaX || event.deltaY) / this.plot.width) * (to - from));
  }

  private zoomAround(middle: number, factor: number): void {
    const { from, to } = this.range;
    this.zoom(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  private pan(by: number): void {
    const { head } = this.app;
    const { from, to } = this.range;
    const moved = clamp(by, head.start_ns - from, head.end_ns - to);
    this.zoom(from + moved, to + moved);
  }

  private press_key(event: KeyboardEvent): void {
    const { app } = this;
    const { from, to } = this.range;
    const now = app.live?.timeNs ?? app.head.peak.time_ns;
    const pixel = (to - from) / Math.max(1, this.plot.width);
    const by = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (by !== 0 && event.shiftKey) this.pan((by * (to - from)) / 8);
    else if (by !== 0) app.set({ at: String(Math.round(clamp(now + by * pixel * 4, app.head.start_ns, app.head.end_ns))) });
    else if (event.key === "+" || event.key === "=") this.zoomAround(clamp(now, from, to), 0.5);
    else if (event.key === "-") this.zoomAround(clamp(now, from, to), 2);
    else if (event.key === "0" || event.key === "Escape") app.set({ from: "", to: "" });
    else return;
    event.preventDefault();
  }

  private explain(event: PointerEvent, x: number): void {
    const { columns, plot, app } = this;
    const column = Math.floor(x - plot.x);
    const y = event.clientY - this.canvas.getBoundingClientRect().top;
    if (!columns || column < 0 || column >= columns.highest.length) return app.hover.hide();
    if (y < plot.y - 4) return this.explainLane(event, x, Math.floor((y - 2) / LANE));
    const value = plot.top * (1 - (y - plot.y) / plot.height);
    let below = 0;
    let named = "";
    for (const { at, label } of this.series) {
      const height = at >= 0 ? (columns.series[at]?.[column] ?? 0) : Math.max(0, columns.highest[column]! - below);
      if (value >= below && value < below + height) named = `${label}: ${bytes(height)}`;
      below += height;
    }
    const lines = [
      seconds(this.timeAt(x), precision(this.range.to - this.range.from)),
      `live ${bytes(columns.highest[column]!)}${columns.lowest[column]! < columns.highest[column]! ? `, at least ${bytes(columns.lowest[column]!)}` : ""}`,
      columns.reserved ? `reserved ${bytes(columns.reserved[column]!)}` : "",
      named,
    ];
    app.hover.show(event, lines.filter((line) => line !== ""));
  }

  private explainLane(event: PointerEvent, x: number, lane: number): void {
    const { spans, app } = this;
    const time = this.timeAt(x);
    if (!spans) return app.hover.hide();
    for (let at = 0; at < spans.context.length; at++) {
      const [from, life] = [spans.from[at]!, spans.life[at]!];
      if (from > time || from + life < time) continue;
      const path = app.scopePath(spans.context[at]!);
      if (path.length - 1 === lane) return app.hover.show(event, [path.join(" > "), `from ${seconds(from)} to ${seconds(from + life)}`]);
    }
    app.hover.hide();
  }
}
