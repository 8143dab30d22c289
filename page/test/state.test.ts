import assert from "node:assert/strict";
import { test } from "node:test";
import { decodedState, encoded, INITIAL } from "../src/state.ts";

test("a state survives its fragment, whatever its texts are", () => {
  for (const label of ["src/a.rs:7 (f::<u8, &str>)", "</script>", "a&b=c#d;%", "\u202e", "x".repeat(10000)]) {
    const state = { ...INITIAL, device: 2, key: "line", label, from: "100" };
    assert.deepEqual(decodedState(`#${encoded(state)}`), state);
  }
  assert.equal(encoded(INITIAL), "");
  assert.deepEqual(decodedState("#unknown=1&device=x&constructor=1"), INITIAL);
});
