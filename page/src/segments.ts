// The allocator's state at a moment: segments, the blocks in them, and the holes between.

import type { Numbers } from "./columns.ts";
import type { DeviceData } from "./device.ts";
import type { LiveBlocks } from "./moment.ts";

export interface SegmentColumns {
  address: Numbers;
  size: Numbers;
  from: Numbers;
  life: Numbers;
  estimated: Numbers;
}

export interface SegmentState {
  address: number;
  size: number;
  isEstimated: boolean;
  /** Rows of live blocks, by address. */
  rows: number[];
  live: number;
  holes: Hole[];
  largestHole: number;
}

/** Free memory between blocks. */
export interface Hole {
  address: number;
  size: number;
}

export function segmentsAt(data: DeviceData, columns: SegmentColumns, live: LiveBlocks): SegmentState[] {
  const found: SegmentState[] = [];
  for (let at = 0; at < columns.address.length; at++) {
    const [from, life] = [columns.from[at]!, columns.life[at]!];
    if (from > live.timeNs || (life !== 0 && from + life - 1 <= live.timeNs)) continue;
    found.push({ address: columns.address[at]!, size: columns.size[at]!, isEstimated: columns.estimated[at] === 1, rows: [], live: 0, holes: [], largestHole: 0 });
  }
  found.sort((a, b) => a.address - b.address);
  const rows = [...live.rows].filter((row) => data.blocks.address[row]! > 0).sort((a, b) => data.blocks.address[a]! - data.blocks.address[b]!);
  let at = 0;
  for (const segment of found) {
    const end = segment.address + segment.size;
    while (at < rows.length && data.blocks.address[rows[at]!]! < segment.address) at++;
    let place = segment.address;
    while (at < rows.length && data.blocks.address[rows[at]!]! < end) {
      const row = rows[at++]!;
      hole(segment, place, data.blocks.address[row]! - place);
      segment.rows.push(row);
      segment.live += data.blocks.size[row]!;
      place = Math.max(place, data.blocks.address[row]! + data.blocks.size[row]!);
    }
    hole(segment, place, end - place);
  }
  return found;
}

function hole(segment: SegmentState, address: number, bytes: number): void {
  if (bytes <= 0) return;
  segment.holes.push({ address, size: bytes });
  segment.largestHole = Math.max(segment.largestHole, bytes);
}

/** A part of a row of the map: of a segment, or of a block or hole in it. */
export interface MapPart {
  segment: number;
  /** The block; -1 for a segment or a hole. */
  row: number;
  hole: Hole | null;
  line: number;
  x: number;
  width: number;
}

/** Lays segments one after another on lines of `width` pixels; each has at least `least` pixels. */
export function laidOut(data: DeviceData, segments: SegmentState[], width: number, perPixel: number, least: number): { parts: MapPart[]; lines: number } {
  const parts: MapPart[] = [];
  let place = 0;
  const put = (segment: number, row: number, from: number, length: number, hole: Hole | null = null) => {
    for (let at = from; at < from + length; ) {
      const line = Math.floor(at / width);
      const part = Math.min(from + length - at, (line + 1) * width - at);
      parts.push({ segment, row, hole, line, x: at - line * width, width: part });
      at += Math.max(part, 0.01);
    }
  };
  segments.forEach((segment, number) => {
    const length = Math.max(least, segment.size / perPixel);
    const scale = length / segment.size;
    put(number, -1, place, length);
    for (const hole of segment.holes) put(number, -1, place + (hole.address - segment.address) * scale, hole.size * scale, hole);
    for (const row of segment.rows) put(number, row, place + (data.blocks.address[row]! - segment.address) * scale, Math.max(0.05, data.blocks.size[row]! * scale));
    place += length + 3;
  });
  return { parts, lines: Math.max(1, Math.ceil(place / width)) };
}
