// What a timeline of so many pixels shows: lowest and highest total of each column, and who held the highest.

import type { Numbers } from "./columns.ts";
import type { Curves, DeviceData, KeyData, Level } from "./device.ts";

export interface Columns {
  lowest: Float64Array;
  highest: Float64Array;
  reserved: Float64Array | null;
  /** Bytes of each series at the highest moment of each column. */
  series: Float64Array[];
}

export interface TimeRange {
  from: number;
  to: number;
}

function empty(width: number, series: number, hasReserved: boolean): Columns {
  const column = () => new Float64Array(width);
  return {
    lowest: column().fill(Infinity),
    highest: column().fill(-1),
    reserved: hasReserved ? column() : null,
    series: Array.from({ length: series }, column),
  };
}

/** The coarsest level with at least one bucket a column; the finest if there is none. */
export function levelFor(levels: Level[], range: TimeRange, width: number): number {
  const each = (range.to - range.from) / width;
  const at = levels.findIndex((level) => level.eachNs <= each);
  return at < 0 ? levels.length - 1 : at;
}

/** Columns from the levels of detail: each bucket falls into the columns that it touches. */
export function fromLevel(curves: Curves, level: Level, mix: Numbers | null, range: TimeRange, width: number): Columns {
  const { head } = curves;
  const series = mix ? mix.length / level.buckets : 0;
  const columns = empty(width, series, level.reserved !== null);
  const perColumn = (range.to - range.from) / width;
  const bucketOf = (ns: number) => Math.floor((ns - head.start_ns) / level.eachNs);
  for (let x = 0; x < width; x++) {
    const first = clamp(bucketOf(range.from + x * perColumn), 0, level.buckets - 1);
    const last = clamp(Math.max(first, Math.ceil((range.from + (x + 1) * perColumn - head.start_ns) / level.eachNs) - 1), 0, level.buckets - 1);
    let best = first;
    for (let bucket = first; bucket <= last; bucket++) {
      columns.lowest[x] = Math.min(columns.lowest[x]!, level.lowest[bucket]!);
      if (level.highest[bucket]! > level.highest[best]!) best = bucket;
      if (columns.reserved) columns.reserved[x] = Math.max(columns.reserved[x]!, level.reserved![bucket]!);
    }
    columns.highest[x] = level.highest[best]!;
    for (let at = 0; at < series; at++) columns.series[at]![x] = mix![at * level.buckets + best]!;
  }
  return columns;
}

/** Columns from the log, for a range that the levels are too coarse for. `curve` has the totals of a reduced page. */
export function fromLog(data: DeviceData, key: KeyData | undefined, range: TimeRange, width: number, curve: Columns): Columns {
  const labels = key?.head.series ?? [];
  const columns = empty(width, labels.length, false);
  columns.reserved = curve.reserved;
  const of = key ? data.labelsOf(key) : () => 0;
  const seriesOf = new Map(labels.map(([number], at) => [number, at]));
  const first = data.stepsUntil(range.from);
  const now = new Float64Array(labels.length);
  for (let row = 0; row < data.count; row++) {
    const at = data.isLive(row, first) ? seriesOf.get(of(row)) : undefined;
    if (at !== undefined) now[at]! += data.blocks.weight[row]!;
  }
  let total = first === 0 ? data.head.at_start : data.total[first - 1]!;
  const note = (x: number) => {
    columns.lowest[x] = Math.min(columns.lowest[x]!, total);
    if (total <= columns.highest[x]!) return;
    columns.highest[x] = total;
    for (let at = 0; at < now.length; at++) columns.series[at]![x] = now[at]!;
  };
  let x = 0;
  note(0);
  const perNs = width / (range.to - range.from);
  for (let step = first; step < data.steps.length && data.stepTime[step]! < range.to; step++) {
    const to = clamp(Math.floor((data.stepTime[step]! - range.from) * perNs), 0, width - 1);
    while (x < to) note(++x);
    const code = data.steps[step]!;
    const row = Math.floor(code / 2);
    const at = seriesOf.get(of(row));
    if (at !== undefined) now[at]! += code % 2 === 1 ? -data.blocks.weight[row]! : data.blocks.weight[row]!;
    total = data.total[step]!;
    note(x);
  }
  while (x < width - 1) note(++x);
  if (data.head.is_reduced) {
    columns.lowest = curve.lowest;
    columns.highest = curve.highest;
  }
  return columns;
}

export function clamp(value: number, least: number, most: number): number {
  return Math.min(Math.max(value, least), most);
}
