// A device's data: blocks, log and curves as columns, and what follows from them.

import type { Numbers } from "./columns.ts";
import type { DeviceHead, KeyHead, RecordingHead } from "./head.ts";
import type { ColumnStore } from "./store.ts";

/** Function, file and line, whose code (0 the user's, 1 a library's, 2 a framework's, 3 the runtime's). */
export type FrameText = [string, string, number];

export interface Level {
  eachNs: number;
  buckets: number;
  lowest: Numbers;
  highest: Numbers;
  last: Numbers;
  reserved: Numbers | null;
}

/** Curves: read first, for the first picture. */
export class Curves {
  constructor(
    readonly head: DeviceHead,
    readonly levels: Level[],
  ) {}

  /** With the coarsest level, the one of the first picture. */
  static first(store: ColumnStore, head: DeviceHead): Curves {
    const [eachNs, buckets] = head.levels[0]!;
    const column = (name: string) => store.now(`${head.prefix}${name}`);
    const [lowest, highest, last] = [column("live.0.lowest"), column("live.0.highest"), column("live.0.last")];
    const reserved = store.has(`${head.prefix}reserved.0.highest`) ? column("reserved.0.highest") : null;
    return new Curves(head, [{ eachNs, buckets, lowest, highest, last, reserved }]);
  }

  /** The finer levels, which come after the first picture. */
  async loadFiner(store: ColumnStore): Promise<void> {
    const level = async ([eachNs, buckets]: [number, number], at: number): Promise<Level> => {
      const column = (name: string) => store.numbers(`${this.head.prefix}${name}`);
      const [lowest, highest, last] = await Promise.all(["lowest", "highest", "last"].map((part) => column(`live.${at}.${part}`)));
      const reserved = this.levels[0]!.reserved && (await column(`reserved.${at}.highest`));
      return { eachNs, buckets, lowest: lowest!, highest: highest!, last: last!, reserved };
    };
    const finer = await Promise.all(this.head.levels.slice(1).map((found, at) => level(found, at + 1)));
    this.levels.splice(1, Infinity, ...finer);
  }
}

const NEVER = 0xffffffff;

export interface BlockColumns {
  from: Numbers;
  life: Numbers;
  size: Numbers;
  weight: Numbers;
  address: Numbers;
  stack: Numbers;
  freedAt: Numbers;
  context: Numbers;
  thread: Numbers;
}

export interface StackColumns {
  /** Start of each stack in `frames`. */
  start: Uint32Array;
  frames: Numbers;
}

export interface KeyData {
  head: KeyHead;
  labels: string[];
  /** Label number of each stack, context or row. */
  numbers: Numbers;
}

interface Texts {
  labels: Record<string, string[]>;
  frames: FrameText[];
  calls: string[];
  /** Source text by file and line: the number of the first line, and the lines. */
  sources?: Record<string, [number, string[]]>;
  /** Addresses that an editor opens, by file and line. */
  links?: Record<string, string> | null;
}

export class DeviceData {
  readonly count: number;
  /** Steps (records) before which a row is live, exclusive of its alloc: -1 for rows from before the log. */
  readonly allocStep: Int32Array;
  readonly freeStep: Uint32Array;
  readonly stepTime: Float64Array;
  /** Live bytes after each step. */
  readonly total: Float64Array;

  constructor(
    readonly recording: RecordingHead,
    readonly head: DeviceHead,
    readonly curves: Curves,
    readonly blocks: BlockColumns,
    readonly steps: Numbers,
    readonly peakRow: Numbers,
    readonly peakWeight: Numbers,
    readonly stacks: StackColumns,
    readonly keys: Map<string, KeyData>,
    readonly texts: Texts,
  ) {
    this.count = blocks.from.length;
    this.allocStep = new Int32Array(this.count).fill(-1);
    this.freeStep = new Uint32Array(this.count).fill(NEVER);
    this.freeStep.fill(0, 0, head.gone);
    this.stepTime = new Float64Array(steps.length);
    this.total = new Float64Array(steps.length);
    let total = head.at_start;
    for (let step = 0; step < steps.length; step++) {
      const code = steps[step]!;
      const row = Math.floor(code / 2);
      if (code % 2 === 1) {
        this.freeStep[row] = step;
        total -= blocks.weight[row]!;
        this.stepTime[step] = blocks.from[row]! + blocks.life[row]! - 1;
      } else {
        this.allocStep[row] = step;
        total += blocks.weight[row]!;
        this.stepTime[step] = blocks.from[row]!;
      }
      this.total[step] = total;
    }
  }

  static async load(store: ColumnStore, recording: RecordingHead, head: DeviceHead, curves: Curves): Promise<DeviceData> {
    const column = (name: string) => store.numbers(`${head.prefix}${name}`);
    const finer = curves.loadFiner(store);
    const names = ["from", "life", "size", "address", "stack", "freed_at", "context", "thread"];
    const [from, life, size, address, stack, freedAt, context, thread] = await Promise.all(
      names.map((name) => column(`block.${name}`)),
    );
    const weight = head.is_sample ? await column("block.weight") : size!;
    const [steps, peakRow, peakWeight, depth, frames] = await Promise.all(
      ["steps", "peak.row", "peak.weight", "stack.depth", "stack.frames"].map(column),
    );
    const texts = await store.json<Texts>(`${head.prefix}texts`);
    const keys = new Map<string, KeyData>();
    for (const key of head.keys) {
      keys.set(key.name, { head: key, labels: texts.labels[key.name] ?? [], numbers: await column(`key.${key.name}`) });
    }
    await finer;
    const start = new Uint32Array(depth!.length + 1);
    for (let at = 0; at < depth!.length; at++) start[at + 1] = start[at]! + depth![at]!;
    const blocks = {
      from: from!, life: life!, size: size!, weight, address: address!, stack: stack!, freedAt: freedAt!, context: context!, thread: thread!,
    };
    const stacks = { start, frames: frames! };
    return new DeviceData(recording, head, curves, blocks, steps!, peakRow!, peakWeight!, stacks, keys, texts);
  }

  /** Label numbers of all rows by a key. */
  labelsOf(key: KeyData): (row: number) => number {
    const { numbers } = key;
    if (key.head.source === "block") return (row) => numbers[row]!;
    const by = key.head.source === "stack" ? this.blocks.stack : this.blocks.context;
    return (row) => numbers[by[row]!]!;
  }

  label(key: KeyData, row: number): string {
    return key.labels[this.labelsOf(key)(row)] ?? "";
  }

  freedNs(row: number): number {
    const life = this.blocks.life[row]!;
    return life === 0 ? Infinity : this.blocks.from[row]! + life - 1;
  }

  /** How many steps were up to this time. */
  stepsUntil(timeNs: number): number {
    let [low, high] = [0, this.stepTime.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stepTime[middle]! <= timeNs) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  isLive(row: number, steps: number): boolean {
    return this.allocStep[row]! < steps && this.freeStep[row]! >= steps;
  }

  frames(stack: number): FrameText[] {
    const { start, frames } = this.stacks;
    const found: FrameText[] = [];
    for (let at = start[stack]!; at < start[stack + 1]!; at++) found.push(this.texts.frames[frames[at]!]!);
    return found;
  }

  /** Names of the scopes around a context, outermost first. */
  scopes(context: number, modulesOnly = false): string[] {
    const names: string[] = [];
    for (let at = context, depth = 0; at > 0 && depth < 1000; depth++) {
      const node = this.recording.contexts[at];
      if (!node) break;
      if (!modulesOnly || node[2]) names.unshift(node[0] || "(unnamed)");
      at = node[1];
    }
    return names;
  }
}
