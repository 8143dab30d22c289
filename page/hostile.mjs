// A copy of a page whose texts try to be markup, to run, or to break the layout.

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inflateSync } from "node:zlib";

const TEXTS = [
  "</script><script>alert(1)</script>", "<img src=x onerror=alert(2)>", "\u202eright to left; \u2066isolated", "a;b;c&d=e#f%", "\ud800 alone \udfff",
  "long ".repeat(2000), "\u0000\u0007\u001b[31m", "javascript:alert(3)", "constructor", "__proto__", "'\"`${alert(4)}",
];

let next = 0;
const evil = (text) => (text === "" ? "" : `${TEXTS[next++ % TEXTS.length]} <img src=x onerror=alert(0)> ${next} ${text}`);

/** Every text in a value; of names that the page looks up only the values. */
function spoiled(value, keep = []) {
  if (typeof value === "string") return evil(value);
  if (Array.isArray(value)) return value.map((part) => spoiled(part, keep));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, keep.includes(name) ? part : spoiled(part, keep)]));
}

const KEPT = ["prefix", "name", "source", "key"];

export function hostile(file) {
  let html = readFileSync(file, "utf8");
  html = html.replace(/(id="head">)([^<]*)/, (_, mark, text) => {
    const head = JSON.parse(text);
    const series = head.recordings.map(({ devices }) => devices.map(({ keys }) => keys));
    const changed = spoiled(head, KEPT);
    changed.recordings.forEach((recording, at) => recording.devices.forEach((device, number) => (device.keys = series[at][number])));
    return mark + JSON.stringify(changed).replaceAll("<", "\\u003c");
  });
  html = html.replace(/(id="[\d.]+texts" data-coding="json" data-packing=")(\w+)(">)([^<]*)/g, (_, mark, packing, end, text) => {
    const bytes = Buffer.from(text, "base64");
    const texts = JSON.parse((packing === "deflate" ? inflateSync(bytes) : bytes).toString("utf8"));
    return `${mark}stored${end}${Buffer.from(JSON.stringify(spoiled(texts))).toString("base64")}`;
  });
  const path = join(mkdtempSync(join(tmpdir(), "memtrace-page-")), "hostile.html");
  writeFileSync(path, html);
  return path;
}
