// A made-up device, for tests.

import { Curves, DeviceData, type KeyData, type Level } from "../src/device.ts";
import type { DeviceHead, RecordingHead } from "../src/head.ts";

/** Numbers between 0 and 1, the same every time. */
export function random(seed: number): () => number {
  return () => {
    seed = (seed * 1664525 + 1013904223) % 2 ** 32;
    return seed / 2 ** 32;
  };
}

/** Blocks with sizes and lifetimes at random, under three labels. */
export function device(blocks: number, eachNs: number): DeviceData {
  const next = random(7);
  const from = new Float64Array(blocks);
  const life = new Float64Array(blocks);
  const size = new Float64Array(blocks);
  let now = 0;
  for (let row = 0; row < blocks; row++) {
    now += 1 + Math.floor(next() ** 4 * 5000);
    from[row] = now;
    size[row] = 64 + Math.floor(next() ** 3 * 100_000);
    life[row] = next() < 0.05 ? 0 : 2 + Math.floor(next() ** 3 * 200_000);
  }
  const end = now + 1000;
  for (let row = 0; row < blocks; row++) if (from[row]! + life[row]! - 1 > end) life[row] = 0;
  const events = [...from].map((time, row) => [time, 0, row]);
  for (let row = 0; row < blocks; row++) if (life[row]! > 0) events.push([from[row]! + life[row]! - 1, 1, row]);
  events.sort((a, b) => a[0]! - b[0]! || a[1]! - b[1]!);
  const steps = Float64Array.from(events, ([, isFree, row]) => 2 * row! + isFree!);
  const series: [number, string][] = [[0, "a"], [1, "b"], [2, "c"]];
  const head = {
    name: "cpu", prefix: "", start_ns: 0, end_ns: end, at_start: 0, early: 0, gone: 0, is_reduced: false, is_sample: false, threads: [],
    peak: { total: 0, bytes: 0, time_ns: 0, step: null, rest: 0, rest_label: "", below: 0, below_label: "" },
    keys: [{ name: "line", source: "stack", series }],
  } as unknown as DeviceHead;
  const key: KeyData = { head: head.keys[0]!, labels: ["a", "b", "c"], numbers: Uint32Array.of(0, 1, 2) };
  const zeros = new Float64Array(blocks);
  const stack = Float64Array.from(from, (_, row) => row % 3);
  const address = Float64Array.from(from, (_, row) => 4096 * (row + 1));
  const columns = { from, life, size, weight: size, address, stack, freedAt: zeros, context: zeros, thread: zeros };
  const curves = new Curves(head, []);
  const texts = { labels: {}, frames: [["main", "main.rs:1", 0], ["f", "f.rs:2", 0], ["start", "", 3]] as [string, string, number][], calls: [] };
  const stacks = { start: Uint32Array.of(0, 2, 5, 6), frames: Float64Array.of(0, 2, 1, 0, 2, 1) };
  const recording = { contexts: [["", 0, false]] } as unknown as RecordingHead;
  const data = new DeviceData(recording, head, curves, columns, steps, new Float64Array(0), new Float64Array(0), stacks, new Map([["line", key]]), texts);
  curves.levels.push(level(data, eachNs));
  return data;
}

/** Lowest, highest and last total of each bucket. */
function level(data: DeviceData, eachNs: number): Level {
  const buckets = Math.floor(data.head.end_ns / eachNs) + 1;
  const [lowest, highest, last] = [new Float64Array(buckets), new Float64Array(buckets), new Float64Array(buckets)];
  let [step, now] = [0, 0];
  for (let bucket = 0; bucket < buckets; bucket++) {
    lowest[bucket] = highest[bucket] = now;
    for (; step < data.steps.length && data.stepTime[step]! < (bucket + 1) * eachNs; step++) {
      now = data.total[step]!;
      lowest[bucket] = Math.min(lowest[bucket]!, now);
      highest[bucket] = Math.max(highest[bucket]!, now);
    }
    last[bucket] = now;
  }
  return { eachNs, buckets, lowest, highest, last, reserved: null };
}
