// Growth: what is live at the boundaries of a program's steps, by a key.

import type { DeviceData, KeyData } from "./device.ts";
import type { SpanColumns } from "./timeline.ts";
import { LEFT_OUT, settled } from "./moment.ts";
import type { TimeRange } from "./picture.ts";

export interface Instant {
  timeNs: number;
  words: string;
}

/** Instants in a row of the table; of more steps some are left out. */
const MOST = 13;
/** Parts of the log of a program without steps. */
const PARTS = 10;

interface Step {
  name: string;
  from: number;
  to: number;
}

/** The steps of a loop in a range: the outermost scopes that come again and again, one after another. */
export function steps(data: DeviceData, spans: SpanColumns, range: TimeRange): Step[] {
  const groups = new Map<string, { depth: number; open: number; isLoop: boolean; steps: Step[] }>();
  for (let at = 0; at < spans.context.length; at++) {
    const path = data.scopes(spans.context[at]!);
    const [from, to] = [spans.from[at]!, spans.from[at]! + spans.life[at]!];
    if (from < range.from || to > range.to) continue;
    const pattern = path.join("\n").replace(/\d+/g, "#");
    let group = groups.get(pattern);
    if (!group) groups.set(pattern, (group = { depth: path.length, open: -1, isLoop: true, steps: [] }));
    if (from < group.open) group.isLoop = false;
    group.open = to;
    group.steps.push({ name: path.at(-1) ?? "", from, to });
  }
  const length = (steps: Step[]) => steps.reduce((sum, { from, to }) => sum + to - from, 0);
  const loops = [...groups.values()].filter(({ isLoop, steps }) => isLoop && steps.length > 1);
  loops.sort((a, b) => a.depth - b.depth || length(b.steps) - length(a.steps));
  return loops[0]?.steps ?? [];
}

/** Instants before each step and after the last one; without steps, the lowest moments of parts of the range. */
export function instants(data: DeviceData, spans: SpanColumns | null, range: TimeRange): Instant[] {
  const found = spans ? steps(data, spans, range) : [];
  if (found.length === 0) return lows(data, range);
  const named = found.map(({ name }, at) => (found.every((step) => step.name === name) ? `${name} ${at + 1}` : name));
  const before = found.map(({ from }, at) => ({ timeNs: Math.max(data.head.start_ns, from - 1), words: `the start of ${named[at]}` }));
  return thinned([...before, { timeNs: found.at(-1)!.to, words: `the end of ${named.at(-1)}` }]);
}

/** The first two, the last one, and some between. */
function thinned(all: Instant[]): Instant[] {
  if (all.length <= MOST) return all;
  const each = (all.length - 2) / (MOST - 2);
  return [...all.slice(0, 1), ...Array.from({ length: MOST - 2 }, (_, at) => all[1 + Math.floor(at * each)]!), all.at(-1)!];
}

/** The lowest moment of each part of the log, without the first and the last part, where a program begins and ends. */
function lows(data: DeviceData, range: TimeRange): Instant[] {
  const [first, last] = [data.stepsUntil(range.from), data.stepsUntil(range.to)];
  const each = (last - first) / PARTS;
  if (each < 2) return [{ timeNs: range.from, words: "the beginning" }, { timeNs: range.to, words: "the end" }];
  return Array.from({ length: PARTS - 2 }, (_, at) => {
    const [from, to] = [first + Math.floor((at + 1) * each), first + Math.floor((at + 2) * each)];
    let lowest = from;
    for (let step = from; step < to; step++) if (data.total[step]! < data.total[lowest]!) lowest = step;
    return { timeNs: data.stepTime[lowest]!, words: `the lowest moment of part ${at + 2} of ${PARTS}` };
  });
}

export interface GrowthRow {
  label: string;
  /** At each instant. */
  bytes: Float64Array;
}

/** What is live at each instant, by a key, with the totals. */
export function growth(data: DeviceData, key: KeyData, at: Instant[]): { rows: GrowthRow[]; totals: Float64Array } {
  const of = data.labelsOf(key);
  const states = at.map(({ timeNs }) => settled(data, timeNs));
  const ends = states.map(({ steps }) => steps);
  const sums = new Map<number, Float64Array>();
  const known = new Float64Array(at.length);
  for (let row = 0; row < data.count; row++) {
    const [from, to, weight] = [data.allocStep[row]!, data.freeStep[row]!, data.blocks.weight[row]!];
    let sum: Float64Array | undefined;
    for (let instant = 0; instant < ends.length; instant++) {
      if (from >= ends[instant]! || to < ends[instant]!) continue;
      if (!sum) {
        sum = sums.get(of(row));
        if (!sum) sums.set(of(row), (sum = new Float64Array(at.length)));
      }
      sum[instant]! += weight;
      known[instant]! += weight;
    }
  }
  const rows = [...sums].map(([number, bytes]) => ({ label: key.labels[number] ?? "", bytes }));
  const totals = Float64Array.from(states, ({ total }, instant) => Math.max(total, known[instant]!));
  const rest = totals.map((total, instant) => total - known[instant]!);
  if (rest.some((bytes) => bytes > 0)) rows.push({ label: data.head.is_reduced ? LEFT_OUT : data.head.peak.rest_label, bytes: rest });
  return { rows, totals };
}

const BARS = "▁▂▃▄▅▆▇█";

/** A row's bytes as bars of text. */
export function bars(bytes: Float64Array): string {
  const most = bytes.reduce((most, value) => Math.max(most, value), 0);
  return [...bytes].map((value) => (value <= 0 ? "·" : BARS[Math.min(7, Math.floor((value / most) * 7.999))])).join("");
}
