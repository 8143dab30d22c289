// One block in words: size, age, name, shape, scope, stack.

import type { DeviceData } from "./device.ts";
import { h } from "./dom.ts";
import { bytes, duration, grouped, seconds } from "./format.ts";

const HEX = 16;

export function blockLines(data: DeviceData, row: number, nowNs: number): string[] {
  const { blocks, head } = data;
  const [from, freed] = [blocks.from[row]!, data.freedNs(row)];
  const isEarly = row < head.early && from === 0;
  const label = (key: string) => {
    const found = data.keys.get(key);
    return found ? data.label(found, row) : "";
  };
  const age = isEarly ? "from before the log" : `allocated after ${seconds(from, 6)}`;
  const end = row < head.gone ? "freed before the log begins" : freed === Infinity ? "live at the end" : `freed after ${duration(freed - from)}`;
  const old = !isEarly && nowNs >= from && nowNs <= freed ? `, ${duration(nowNs - from)} old` : "";
  const name = label("name");
  const address = blocks.address[row]!;
  const thread = head.threads.find(([number]) => number === blocks.thread[row]);
  return [
    `${bytes(blocks.size[row]!)}${name && name !== "(unnamed)" ? ` ${name}` : ""}`,
    `${grouped(blocks.size[row]!)} bytes${address ? ` at 0x${address.toString(HEX)}` : ""}${thread ? `, thread ${thread[1]}` : ""}`,
    `${age}${old}, ${end}`,
    `${label("category")}, ${label("operator")}`,
    label("line"),
    label("scope"),
  ].filter((line) => line !== "" && line !== "(no scope)");
}

const WHOSE = ["yours", "library", "framework", "runtime"];

/** The source text around a line, if the page has it; the line itself is marked. */
export function sourceText(data: DeviceData, place: string): HTMLElement | null {
  const { sources } = data.texts;
  const found = sources && Object.hasOwn(sources, place) ? sources[place] : undefined;
  if (!found) return null;
  const [first, lines] = found;
  const number = Number(place.slice(place.lastIndexOf(":") + 1));
  const line = (text: string, at: number) => h(first + at === number ? "mark" : "span", {}, `${String(first + at).padStart(5)}  ${text}\n`);
  return h("pre", { class: "source", tabindex: 0 }, ...lines.map(line));
}

/** A place as a link to an editor, if the page has one. */
export function linked(data: DeviceData, place: string): HTMLElement | null {
  const { links } = data.texts;
  return links && Object.hasOwn(links, place) ? h("a", { href: links[place] }, place) : null;
}

/** The block with its stack. */
export function blockDetails(data: DeviceData, row: number, nowNs: number): HTMLElement {
  const [title = "", ...lines] = blockLines(data, row, nowNs);
  const stack = (number: number) =>
    data.frames(number).map(([name, place, origin]) =>
      h("li", { class: `frame whose-${origin}` }, h("span", {}, name || "(unknown function)"), h("small", {}, linked(data, place) ?? place, ` · ${WHOSE[origin]}`), sourceText(data, place)),
    );
  const freed = data.blocks.freedAt[row]!;
  const freedFrames = stack(freed);
  return h(
    "div", {},
    h("h3", {}, title),
    ...lines.map((line) => h("p", {}, line)),
    h("h4", {}, "Allocated by, innermost first"),
    h("ol", { class: "stack" }, ...stack(data.blocks.stack[row]!)),
    freedFrames.length > 0 && h("h4", {}, "Freed by"),
    freedFrames.length > 0 && h("ol", { class: "stack" }, ...freedFrames),
  );
}
