import assert from "node:assert/strict";
import { test } from "node:test";
import { bars, growth, instants } from "../src/growth.ts";
import { device } from "./recording.ts";

const spans = (found: [number, number, number][]) => {
  const column = (at: number) => Float64Array.from(found, (span) => span[at]!);
  return { context: column(0), from: column(1), life: column(2) };
};

test("rows of a growth add up to the live bytes at each instant", () => {
  const data = device(800, 500);
  const range = { from: 0, to: data.head.end_ns };
  const at = instants(data, null, range);
  assert.equal(at.length, 8);
  const { rows, totals } = growth(data, data.keys.get("line")!, at);
  at.forEach(({ timeNs }, instant) => {
    assert.equal(totals[instant], data.total[data.stepsUntil(timeNs) - 1]);
    assert.equal(rows.reduce((sum, { bytes }) => sum + bytes[instant]!, 0), totals[instant]);
  });
});

test("the steps are the outermost scopes that come one after another", () => {
  const data = device(100, 500);
  data.recording.contexts.splice(1, 0, ["load", 0, false], ["iteration 0", 0, false], ["iteration 1", 0, false], ["forward", 2, false], ["forward", 3, false]);
  const found = spans([[1, 0, 50], [2, 100, 100], [4, 110, 20], [3, 210, 100], [5, 220, 20]]);
  const range = { from: 0, to: data.head.end_ns };
  assert.deepEqual(instants(data, found, range).map(({ timeNs, words }) => [timeNs, words]), [
    [99, "the start of iteration 0"], [209, "the start of iteration 1"], [310, "the end of iteration 1"],
  ]);
  const sideBySide = spans([[2, 100, 100], [3, 150, 100]]);
  assert.equal(instants(data, sideBySide, range)[0]!.words, "the lowest moment of part 2 of 10");
});

test("of many steps the first, the second and the last are kept", () => {
  const data = device(100, 500);
  data.recording.contexts.splice(1, 0, ["step", 0, false]);
  const found = spans(Array.from({ length: 1000 }, (_, at) => [1, 10 * at, 5]));
  const shown = instants(data, found, { from: 0, to: 1e9 });
  assert.equal(shown.length, 13);
  assert.deepEqual([shown[0]!.words, shown[1]!.words, shown.at(-1)!.words], ["the start of step 1", "the start of step 2", "the end of step 1000"]);
});

test("bars", () => {
  assert.equal(bars(Float64Array.of(0, 1, 50, 100)), "·▁▄█");
});
