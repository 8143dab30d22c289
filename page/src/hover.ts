// Hover: a box beside the pointer, clear of the pinned panel.

import { h, replace } from "./dom.ts";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

const EDGE = 4;

/** Where a box of a size goes: right of the pointer and below it, or the first other place that fits the window and is clear of `taken`. */
export function placed(x: number, y: number, size: { width: number; height: number }, room: { width: number; height: number }, taken: Box | null): { left: number; top: number } {
  const [rights, belows] = [[x + 14, x - size.width - 10], [y + 14, y - size.height - 10]];
  if (taken) {
    rights.push(taken.left - size.width - EDGE);
    // A high box fits neither above the pointer nor below it.
    belows.push(taken.top - size.height - EDGE, room.height - size.height - EDGE);
  }
  const all = belows.flatMap((top) => rights.map((left) => ({ left, top, ...size })));
  const fits = ({ left, top, width, height }: Box) => left >= EDGE && top >= EDGE && left + width <= room.width && top + height <= room.height;
  const found = all.find((box) => fits(box) && !(taken && overlap(box, taken))) ?? all.find(fits);
  return found ?? { left: Math.max(EDGE, room.width - size.width), top: Math.max(EDGE, room.height - size.height) };
}

export function overlap(a: Box, b: Box): boolean {
  return a.left < b.left + b.width && b.left < a.left + a.width && a.top < b.top + b.height && b.top < a.top + a.height;
}

export class Hover {
  readonly element = h("div", { class: "hover", role: "tooltip", hidden: true });

  constructor(private readonly pinned: HTMLElement) {}

  show(event: { clientX: number; clientY: number }, lines: string[]): void {
    const [first = "", ...others] = lines;
    replace(this.element, h("strong", {}, first), ...others.map((line) => h("div", {}, line)));
    this.element.hidden = false;
    this.element.style.left = this.element.style.top = "0";
    const size = { width: this.element.offsetWidth, height: this.element.offsetHeight };
    const taken = this.pinned.hidden ? null : this.pinned.getBoundingClientRect();
    const { left, top } = placed(event.clientX, event.clientY, size, { width: window.innerWidth, height: window.innerHeight }, taken);
    this.element.style.left = `${left}px`;
    this.element.style.top = `${top}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
