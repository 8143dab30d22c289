import assert from "node:assert/strict";
import { test } from "node:test";
import { decoded } from "../src/columns.ts";
import { bytes, duration, grouped, percent, signed } from "../src/format.ts";
import { median } from "../src/moment.ts";

test("bytes are core's", () => {
  const cases: [number, string][] = [
    [0, "0 B"], [999, "999 B"], [1023, "1023 B"], [1024, "1.000 KiB"], [1536, "1.500 KiB"], [1088, "1.062 KiB"], [1090, "1.064 KiB"],
    [1048575, "1.000 MiB"], [960194048, "915.7 MiB"], [10 * 1024 + 5, "10.00 KiB"], [2 ** 40, "1.000 TiB"],
  ];
  for (const [count, text] of cases) assert.equal(bytes(count), text);
  assert.equal(signed(2048), "+2.000 KiB");
  assert.equal(signed(-2048), "-2.000 KiB");
  assert.equal(grouped(960194048), "960,194,048");
  assert.equal(percent(1, 3), "33.3");
  assert.equal(percent(1, 0), "-");
  assert.equal(duration(1_500_000), "1.5 ms");
});

test("a median of even number lies between the middle two", () => {
  assert.deepEqual([[1, 100, 3, 2], [5, 1, 9], []].map(median), [2, 5, 0]);
});

test("columns are byte planes, differences or signed numbers", () => {
  assert.deepEqual([...decoded(Uint8Array.of(1, 2, 1, 0), "plain", 2)], [257, 2]);
  assert.deepEqual([...decoded(Uint8Array.of(10, 1, 0, 4), "delta", 1)], [5, 4, 4, 6]);
  assert.deepEqual([...decoded(Uint8Array.of(0, 1, 2), "signed", 1)], [0, -1, 1]);
  const planes = new Uint8Array(8);
  planes[5] = 1;
  assert.deepEqual([...decoded(planes, "plain", 8)], [2 ** 40]);
});
