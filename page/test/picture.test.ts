import assert from "node:assert/strict";
import { test } from "node:test";
import { breakdown, liveAt } from "../src/moment.ts";
import { fromLevel, fromLog } from "../src/picture.ts";
import { laidOut, segmentsAt } from "../src/segments.ts";
import { slabs } from "../src/slabs.ts";
import { boxes, matched, tree } from "../src/tree.ts";
import { device } from "./recording.ts";

test("a curve from a level of detail is off by at most one column at any zoom that the level allows", () => {
  const eachNs = 500;
  const data = device(4000, eachNs);
  const level = data.curves.levels[0]!;
  for (const [from, part] of [[0, 1], [0.1, 0.5], [0.37, 0.2], [0.8, 0.1]] as const) {
    const range = { from: data.head.end_ns * from, to: data.head.end_ns * (from + part) };
    const width = Math.floor(Math.min(1000, (range.to - range.from) / eachNs));
    const coarse = fromLevel(data.curves, level, null, range, width);
    const exact = fromLog(data, data.keys.get("line"), range, width, coarse);
    for (let x = 0; x < width; x++) {
      const near = [x - 1, x, x + 1].filter((at) => at >= 0 && at < width);
      if (near.length < 3) continue;
      assert.ok(coarse.highest[x]! >= exact.highest[x]!, `${x} of ${width}: the highest is kept`);
      assert.ok(coarse.highest[x]! <= Math.max(...near.map((at) => exact.highest[at]!)), `${x} of ${width}: it is in the next column at most`);
      assert.ok(coarse.lowest[x]! <= exact.lowest[x]!);
      assert.ok(coarse.lowest[x]! >= Math.min(...near.map((at) => exact.lowest[at]!)));
    }
  }
});

test("the series of a column add up to its highest total", () => {
  const data = device(2000, 500);
  const range = { from: data.head.end_ns * 0.3, to: data.head.end_ns * 0.31 };
  const columns = fromLog(data, data.keys.get("line"), range, 300, fromLevel(data.curves, data.curves.levels[0]!, null, range, 300));
  columns.highest.forEach((highest, x) => assert.equal(columns.series.reduce((sum, series) => sum + series[x]!, 0), highest));
});

test("a column of blocks is as high as the curve, the oldest block below", () => {
  const data = device(1500, 500);
  const range = { from: data.head.end_ns * 0.2, to: data.head.end_ns * 0.9 };
  const curve = fromLog(data, undefined, range, 400, fromLevel(data.curves, data.curves.levels[0]!, null, range, 400));
  for (const least of [0, 20_000]) {
    const { columns } = slabs(data, range, 400, least, data.labelsOf(data.keys.get("line")!));
    columns.forEach((column, x) => {
      const top = column.at(-1);
      assert.equal(top ? top.from + top.bytes : 0, curve.highest[x], `column ${x}`);
      const rows = column.map(({ row }) => row).filter((row) => row >= 0);
      assert.deepEqual(rows, [...rows].sort((a, b) => a - b));
    });
  }
});

test("a breakdown at any moment adds up to the log's total", () => {
  const data = device(1000, 500);
  for (const part of [0, 0.1, 0.5, 0.77, 1]) {
    const time = Math.floor(data.head.end_ns * part);
    const steps = data.stepsUntil(time);
    const live = liveAt(data, String(time));
    assert.equal(live.total, steps === 0 ? 0 : data.total[steps - 1]);
    assert.equal(breakdown(data, live, "line").reduce((sum, row) => sum + row.bytes, 0), live.total);
  }
});

test("a flame graph begins with the program's own frames and its boxes lie within their parents", () => {
  const data = device(900, 500);
  const live = liveAt(data, "end");
  const root = tree(data, live, "stack");
  assert.equal(root.bytes, live.total);
  assert.ok(![...root.children.values()].some(({ name }) => name === "start" && root.children.size > 1 && live.rows.length === 0));
  const found = boxes(root, "heavy", 1);
  for (const box of found.slice(1)) {
    const parent = found[box.parent]!;
    assert.ok(box.from >= parent.from && box.from + box.bytes <= parent.from + parent.bytes);
  }
  const main = live.rows.filter((row) => row % 3 < 2).reduce((sum, row) => sum + data.blocks.size[row]!, 0);
  assert.equal(matched(root, "main.rs"), main);
});

test("blocks and holes fill a segment", () => {
  const data = device(300, 500);
  const live = liveAt(data, "end");
  const segment = { address: Float64Array.of(4096), size: Float64Array.of(4096 * 400), from: Float64Array.of(0), life: Float64Array.of(0), estimated: Float64Array.of(0) };
  data.blocks.size.forEach((_, row) => (data.blocks.size[row] = 1000));
  const [state] = segmentsAt(data, segment, live);
  assert.equal(state!.rows.length, live.rows.length);
  assert.equal(state!.live, 1000 * live.rows.length);
  assert.equal(state!.live + state!.holes.reduce((sum, { size }) => sum + size, 0), 4096 * 400);
  assert.ok(state!.largestHole >= 4096 * 100 && state!.holes.length >= live.rows.length);
  const { parts, lines } = laidOut(data, [state!], 200, 1000, 2);
  assert.deepEqual(new Set(parts.map(({ hole }) => hole).filter((hole) => hole)), new Set(state!.holes));
  assert.ok(parts.every(({ line, x, width }) => line < lines && x >= 0 && x + width <= 200 + 1e-6));
});
