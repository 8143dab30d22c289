// Moments: which blocks are live, and the total, at the peak, at the end, or at any time.

import type { DeviceData } from "./device.ts";
import { seconds } from "./format.ts";

export interface LiveBlocks {
  words: string;
  timeNs: number;
  rows: Uint32Array;
  /** What each row counts for. */
  weights: Float64Array;
  /** Bytes that no row has, by label. */
  rest: [string, number][];
  total: number;
}

export const LEFT_OUT = "(smaller blocks, left out of this page)";

/** The blocks at a moment of the state: `peak`, `end` or nanoseconds. */
export function liveAt(data: DeviceData, at: string): LiveBlocks {
  const { head } = data;
  if (at === "peak") return atPeak(data);
  const timeNs = at === "end" ? head.end_ns : Math.min(Math.max(Number(at) || 0, head.start_ns), head.end_ns);
  const words = at === "end" ? "Live at the end" : `Live after ${seconds(timeNs, 6)}`;
  const { steps, total, time } = settled(data, timeNs);
  const rows: number[] = [];
  for (let row = 0; row < data.count; row++) if (data.isLive(row, steps)) rows.push(row);
  const weights = Float64Array.from(rows, (row) => data.blocks.weight[row]!);
  const known = weights.reduce((sum, weight) => sum + weight, 0);
  const label = head.is_reduced ? LEFT_OUT : head.peak.rest_label;
  const rest: [string, number][] = total > known ? [[label, total - known]] : [];
  return { words, timeNs: time, rows: Uint32Array.from(rows), weights, rest, total: Math.max(total, known) };
}

/** The state at a time: in a reduced page the total is known at the end of each bucket. */
export function settled(data: DeviceData, timeNs: number): { steps: number; total: number; time: number } {
  const { head, curves } = data;
  if (!head.is_reduced) {
    const steps = data.stepsUntil(timeNs);
    return { steps, total: steps === 0 ? head.at_start : data.total[steps - 1]!, time: timeNs };
  }
  const level = curves.levels[curves.levels.length - 1]!;
  const bucket = Math.min(level.buckets - 1, Math.floor((timeNs - head.start_ns) / level.eachNs));
  const time = Math.min(head.end_ns, head.start_ns + (bucket + 1) * level.eachNs - 1);
  return { steps: data.stepsUntil(time), total: level.last[bucket]!, time };
}

function atPeak(data: DeviceData): LiveBlocks {
  const { peak } = data.head;
  const rest: [string, number][] = [[peak.rest_label, peak.rest], [peak.below_label, peak.below]];
  return {
    words: "At the peak",
    timeNs: peak.time_ns,
    rows: Uint32Array.from(data.peakRow),
    weights: Float64Array.from(data.peakWeight),
    rest: rest.filter(([, bytes]) => bytes > 0),
    total: peak.total,
  };
}

export interface BreakdownRow {
  label: string;
  bytes: number;
  /** `null` if only the bytes are known. */
  count: number | null;
  median: number | null;
  /** Not of blocks: before the recording, or too small. */
  isRest: boolean;
}

/** What is live, by a key; the largest first, then by label. */
export function breakdown(data: DeviceData, live: LiveBlocks, key: string): BreakdownRow[] {
  const found = data.keys.get(key);
  if (!found) return [];
  const of = data.labelsOf(found);
  const sums = new Map<number, { bytes: number; sizes: number[] }>();
  for (let at = 0; at < live.rows.length; at++) {
    const row = live.rows[at]!;
    const number = of(row);
    let sum = sums.get(number);
    if (!sum) sums.set(number, (sum = { bytes: 0, sizes: [] }));
    sum.bytes += live.weights[at]!;
    sum.sizes.push(data.blocks.size[row]!);
  }
  const rows: BreakdownRow[] = [...sums].map(([number, { bytes, sizes }]) => ({
    label: found.labels[number] ?? "", bytes, count: sizes.length, median: median(sizes), isRest: false,
  }));
  for (const [label, bytes] of live.rest) rows.push({ label, bytes, count: null, median: null, isRest: true });
  return rows.sort((a, b) => b.bytes - a.bytes || (a.label < b.label ? -1 : 1));
}

/** The middle size, or the mean of the middle two, rounded down. */
export function median(sizes: number[]): number {
  const sorted = Float64Array.from(sizes).sort();
  const [lower, upper] = [sorted[(sorted.length - 1) >> 1] ?? 0, sorted[sorted.length >> 1] ?? 0];
  return Math.floor((lower + upper) / 2);
}
