// Hover: a box beside the pointer.

import { h, replace } from "./dom.ts";

export class Hover {
  readonly element = h("div", { class: "hover", role: "tooltip", hidden: true });

  show(event: { clientX: number; clientY: number }, lines: string[]): void {
    const [first = "", ...others] = lines;
    replace(this.element, h("strong", {}, first), ...others.map((line) => h("div", {}, line)));
    this.element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = event.clientX + 14 + width > window.innerWidth ? event.clientX - width - 10 : event.clientX + 14;
    const y = event.clientY + 14 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 14;
    this.element.style.left = `${Math.max(4, x)}px`;
    this.element.style.top = `${Math.max(4, y)}px`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
