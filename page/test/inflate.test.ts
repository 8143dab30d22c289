import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { inflatedNow } from "../src/inflate.ts";
import { random } from "./recording.ts";

test("what zlib packs is unpacked, whatever its level", () => {
  const next = random(3);
  const noise = (length: number, values: number) => Uint8Array.from({ length }, () => Math.floor(next() ** 3 * values));
  const texts = [new Uint8Array(0), Uint8Array.of(7), new Uint8Array(300_000), noise(70_000, 256), noise(200_000, 4), noise(1000, 40)];
  const ramp = Uint8Array.from({ length: 100_000 }, (_, at) => at >> 8);
  for (const bytes of [...texts, ramp]) {
    for (const options of [{ level: 0 }, { level: 1 }, { level: 6 }, { level: 9 }, { strategy: 4 }]) {
      assert.deepEqual(inflatedNow(deflateSync(bytes, options)), bytes);
    }
  }
});

test("a damaged column is refused", () => {
  const packed = deflateSync(Uint8Array.from({ length: 5000 }, (_, at) => (at * at) % 251));
  assert.throws(() => inflatedNow(packed.subarray(0, packed.length / 2)));
});
