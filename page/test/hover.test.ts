import assert from "node:assert/strict";
import { test } from "node:test";
import { overlap, placed } from "../src/hover.ts";

test("a hover is clear of the pinned panel and within the window wherever the pointer is", () => {
  const [room, size] = [{ width: 1280, height: 800 }, { width: 400, height: 150 }];
  const taken = { left: 748, top: 344, width: 520, height: 400 };
  for (let x = 0; x < room.width; x += 20) {
    for (let y = 0; y < room.height; y += 20) {
      if (overlap({ left: x, top: y, width: 1, height: 1 }, taken)) continue;
      const box = { ...placed(x, y, size, room, taken), ...size };
      assert.ok(!overlap(box, taken), `${x} ${y}`);
      assert.ok(box.left >= 0 && box.top >= 0 && box.left + box.width <= room.width && box.top + box.height <= room.height, `${x} ${y}`);
    }
  }
  // As high as texts of 10,000 characters make it.
  const [high, panel] = [{ width: 560, height: 480 }, { left: 748, top: 184, width: 520, height: 560 }];
  for (const x of [116, 346, 691]) {
    const box = { ...placed(x, 489, high, room, panel), ...high };
    assert.ok(!overlap(box, panel) && box.top >= 0 && box.top + box.height <= room.height, `${x}`);
  }
  const { left, top } = placed(10, 10, size, room, null);
  assert.deepEqual([left, top], [24, 24]);
});
