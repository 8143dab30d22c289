// Flame graph of a moment: zoom, search, left-heavy or in the order of time.

import type { App } from "./app.ts";
import { css, h, replace, sized } from "./dom.ts";
import { bytes, grouped, percent } from "./format.ts";
import { boxes, matched, matches, tree, type FlameBox, type TreeNode } from "./tree.ts";

const ROW = 19;
const FILLS = ["--flame-user", "--flame-library", "--flame-framework", "--flame-runtime"];

export class FlameView {
  readonly element: HTMLElement;
  private readonly canvas = h("canvas", { class: "flame", tabindex: 0, role: "application", "aria-label": "Flame graph. Arrow keys move, Enter zooms in, Escape zooms out." });
  private readonly told = h("p", { class: "told", "aria-live": "polite" });
  private readonly controls = h("div", { class: "controls" });
  private found: FlameBox[] = [];
  private zoomed: TreeNode[] = [];
  private key = "";
  private root: TreeNode | null = null;
  private focus = 0;
  private scale = 1;

  constructor(private readonly app: App) {
    this.element = h("div", {}, this.controls, this.told, this.canvas);
    this.canvas.addEventListener("click", (event) => this.zoomTo(this.boxAt(event)));
    this.canvas.addEventListener("pointermove", (event) => this.explain(event));
    this.canvas.addEventListener("pointerleave", () => app.hover.hide());
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  draw(): void {
    const { app } = this;
    const { data, live, state } = app;
    if (!data || !live) return;
    const key = [state.at, state.flame, state.recording, state.device].join("/");
    if (key !== this.key || !this.root) {
      [this.key, this.root, this.zoomed, this.focus] = [key, tree(data, live, state.flame), [], 0];
    }
    this.drawControls();
    const top = this.zoomed.at(-1) ?? this.root;
    const width = Math.max(50, this.canvas.clientWidth);
    this.scale = width / Math.max(1, top.bytes);
    this.found = boxes(top, state.order, 0.4 / this.scale);
    const depth = this.found.reduce((most, box) => Math.max(most, box.depth), 0) + this.zoomed.length + 1;
    this.canvas.style.height = `${depth * ROW + 4}px`;
    const { ctx } = sized(this.canvas);
    ctx.font = "12px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    [this.root, ...this.zoomed.slice(0, -1)].forEach((node, at) => {
      if (this.zoomed.length > 0) this.box(ctx, node, 0, at, width, false, true);
    });
    this.found.forEach((box, at) => {
      this.box(ctx, box.node, box.from * this.scale, box.depth + this.zoomed.length, box.bytes * this.scale, at === this.focus && document.activeElement === this.canvas);
    });
    this.tell();
  }

  private box(ctx: CanvasRenderingContext2D, node: TreeNode, x: number, depth: number, width: number, isFocused: boolean, isAbove = false): void {
    const search = this.app.state.search.toLowerCase();
    const y = depth * ROW;
    const selected = this.app.state.label;
    const isMarked = matches(node, search) || (selected !== "" && node.place !== "" && selected.startsWith(`${node.place} (`)) || (selected !== "" && node.name === selected.split(" > ").at(-1));
    ctx.globalAlpha = isAbove ? 0.5 : 1;
    ctx.fillStyle = isMarked ? css("--mark") : css(FILLS[node.origin] ?? "--flame-runtime");
    ctx.fillRect(x, y, Math.max(0.6, width - 0.7), ROW - 1);
    ctx.globalAlpha = 1;
    if (isFocused) {
      ctx.strokeStyle = css("--accent");
      ctx.lineWidth = 2;
      ctx.strokeRect(x + 1, y + 1, Math.max(1, width - 2.5), ROW - 3);
    }
    if (width < 24) return;
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, width - 3, ROW);
    ctx.clip();
    ctx.fillStyle = isMarked ? css("--mark-ink") : css("--flame-ink");
    const place = node.place ? `  ${node.place}` : "";
    ctx.fillText(`${node.name || "(unknown function)"}${place}`.slice(0, 300), x + 4, y + ROW / 2);
    ctx.restore();
  }

  private drawControls(): void {
    const { app } = this;
    const { state } = app;
    const option = (name: "flame" | "order", value: string, text: string) =>
      h("button", { "aria-pressed": String(state[name] === value), click: () => app.set({ [name]: value }) }, text);
    replace(
      this.controls,
      h("span", { class: "group", role: "group", "aria-label": "Grouped by" }, option("flame", "stack", "Stack"), option("flame", "scope", "Scope path"), app.recording.contexts.some(([, , isModule]) => isModule) && option("flame", "module", "Module")),
      h("span", { class: "group", role: "group", "aria-label": "Order" }, option("order", "heavy", "Left-heavy"), option("order", "time", "In order of time")),
      this.zoomed.length > 0 && h("button", { class: "quiet", click: () => { this.zoomed = []; this.draw(); } }, "Zoom out"),
    );
  }

  private tell(): void {
    const { root, app } = this;
    if (!root) return;
    const search = app.state.search.toLowerCase();
    const focused = this.found[this.focus]?.node;
    const parts = [
      search && `${bytes(matched(root, search))} (${percent(matched(root, search), root.bytes)} %) below frames that match.`,
      focused && document.activeElement === this.canvas && this.words(focused).join(" · "),
    ].filter(Boolean);
    this.told.textContent = parts.join("  ") || `${app.live?.words ?? ""}: ${bytes(root.bytes)}. The outermost call is on top; a click zooms in.`;
  }

  private words(node: TreeNode): string[] {
    const share = percent(node.bytes, this.root?.bytes ?? 0);
    return [node.name || "(unknown function)", node.place, `${bytes(node.bytes)} (${share} %) in ${grouped(node.count)} blocks`].filter((text) => text !== "");
  }

  private boxAt(event: MouseEvent): FlameBox | number | null {
    const area = this.canvas.getBoundingClientRect();
    const depth = Math.floor((event.clientY - area.top) / ROW);
    const from = (event.clientX - area.left) / this.scale;
    if (depth < this.zoomed.length) return depth;
    return this.found.find((box) => box.depth === depth - this.zoomed.length && from >= box.from && from < box.from + box.bytes) ?? null;
  }

  /** Zooms in on a box, or out to a depth. */
  private zoomTo(box: FlameBox | number | null): void {
    if (box === null) return;
    if (typeof box === "number") this.zoomed = this.zoomed.slice(0, box);
    else {
      const path: TreeNode[] = [];
      for (let at: FlameBox | undefined = box; at && at.parent >= 0; at = this.found[at.parent]) path.unshift(at.node);
      this.zoomed = [...this.zoomed, ...path];
    }
    this.focus = 0;
    this.draw();
  }

  private explain(event: PointerEvent): void {
    const box = this.boxAt(event);
    if (box === null || typeof box === "number") return this.app.hover.hide();
    this.app.hover.show(event, this.words(box.node));
  }

  private pressed(event: KeyboardEvent): void {
    const box = this.found[this.focus];
    if (!box) return;
    const near = (condition: (other: FlameBox) => boolean) => this.found.findIndex(condition);
    let to = -1;
    if (event.key === "ArrowDown") to = near((other) => other.parent === this.focus);
    else if (event.key === "ArrowUp") to = box.parent;
    else if (event.key === "ArrowRight") to = near((other) => other.depth === box.depth && other.from > box.from);
    else if (event.key === "ArrowLeft") to = this.found.findLastIndex((other) => other.depth === box.depth && other.from < box.from);
    else if (event.key === "Enter") return this.zoomTo(box);
    else if (event.key === "Escape") return this.zoomTo(Math.max(0, this.zoomed.length - 1));
    else return;
    event.preventDefault();
    if (to >= 0) this.focus = to;
    this.draw();
  }
}
