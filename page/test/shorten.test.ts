import assert from "node:assert/strict";
import { test } from "node:test";
import { allShortened, shortened } from "../src/shorten.ts";

test("a long line keeps its file, its number and the end of its function", () => {
  assert.equal(shortened("src/a.rs:7 (f)", 44), "src/a.rs:7 (f)");
  const folders = shortened(`${"folder/".repeat(9)}conv.rs:93 (forward)`, 44);
  assert.ok(folders.startsWith("…") && folders.endsWith("folder/conv.rs:93 (forward)") && folders.length === 44, folders);
  const long = shortened(`examples/conv.rs:93 (${"deep::".repeat(20)}forward)`, 44);
  assert.ok(long.startsWith("conv.rs:93 (") && long.endsWith("forward)") && long.length === 44, long);
});

test("labels that differ still differ when they are shortened", () => {
  const labels = [0, 1, 2, 10].map((layer) => `${"model.encoder.".repeat(3)}layers.${layer}.${"attention.projection.".repeat(3)}weight`);
  const short = allShortened(labels, 44);
  assert.equal(new Set(short).size, labels.length);
  assert.ok(short.every((text) => text.length <= 44), short.join("; "));
});
