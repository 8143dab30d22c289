// The live blocks of each column of pixels, stacked in the order of their allocation.

import type { DeviceData } from "./device.ts";
import type { TimeRange } from "./picture.ts";

/** A block in a column. Rows below zero are the sum of a label's blocks that are too small to see: -1 for label 0. */
export interface Slab {
  row: number;
  from: number;
  bytes: number;
}

/** The live blocks of each column at its highest moment, of at least `least` bytes, the oldest at the bottom. */
export function slabs(data: DeviceData, range: TimeRange, width: number, least: number, label: (row: number) => number): { columns: Slab[][]; times: Float64Array } {
  const weight = data.blocks.weight;
  const first = data.stepsUntil(range.from);
  const large: number[] = [];
  const small: number[] = [];
  const addSmall = (row: number, bytes: number) => (small[label(row)] = (small[label(row)] ?? 0) + bytes);
  for (let row = 0; row < data.count; row++) {
    if (!data.isLive(row, first)) continue;
    if (weight[row]! >= least) large.push(row);
    else addSmall(row, weight[row]!);
  }
  const columns: Slab[][] = [];
  const times = new Float64Array(width);
  const perNs = width / (range.to - range.from);
  let total = small.reduce((sum, bytes) => sum + bytes, 0) + large.reduce((sum, row) => sum + weight[row]!, 0);
  let step = first;
  for (let x = 0; x < width; x++) {
    const until = range.from + (x + 1) / perNs;
    let end = step;
    let sum = total;
    let [best, highest] = [step, total];
    while (end < data.steps.length && data.stepTime[end]! < until) {
      const code = data.steps[end++]!;
      const bytes = weight[Math.floor(code / 2)]!;
      sum += code % 2 === 1 ? -bytes : bytes;
      if (sum > highest) [best, highest] = [end, sum];
    }
    let taken: Slab[] | null = best === step ? stacked(data, large, small) : null;
    times[x] = best === step ? range.from + x / perNs : data.stepTime[best - 1]!;
    for (; step < end; step++) {
      const code = data.steps[step]!;
      const row = Math.floor(code / 2);
      if (weight[row]! < least) addSmall(row, code % 2 === 1 ? -weight[row]! : weight[row]!);
      else if (code % 2 === 0) large.push(row);
      else remove(large, row);
      if (step + 1 === best) taken = stacked(data, large, small);
    }
    total = sum;
    columns.push(taken ?? []);
  }
  return { columns, times };
}

/** Rows are in the order of allocation, except those from before the log, which are the oldest. */
function remove(rows: number[], row: number): void {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle]! < row) low = middle + 1;
    else high = middle;
  }
  if (rows[low] === row) rows.splice(low, 1);
}

function stacked(data: DeviceData, rows: number[], small: number[]): Slab[] {
  const found: Slab[] = [];
  let from = 0;
  small.forEach((bytes, number) => {
    if (bytes <= 0) return;
    found.push({ row: -1 - number, from, bytes });
    from += bytes;
  });
  for (const row of rows) {
    const bytes = data.blocks.weight[row]!;
    found.push({ row, from, bytes });
    from += bytes;
  }
  return found;
}
