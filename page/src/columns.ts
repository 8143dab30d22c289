// Column decoding: base64, deflate, little-endian byte planes, delta coding. Runs in the worker.

import { inflatedNow } from "./inflate.ts";

export type Numbers = Uint32Array | Float64Array;

export interface PackedColumn {
  text: string;
  coding: string;
  width: number;
  packing: string;
}

export function bytesOfBase64(text: string): Uint8Array {
  const native = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array };
  if (native.fromBase64) return native.fromBase64(text);
  const chars = atob(text);
  const bytes = new Uint8Array(chars.length);
  for (let at = 0; at < chars.length; at++) bytes[at] = chars.charCodeAt(at);
  return bytes;
}

export async function inflated(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Numbers of byte planes: all lowest bytes first. Values of 8 bytes, and differences, become doubles. */
export function decoded(planes: Uint8Array, coding: string, width: number): Numbers {
  const count = planes.length / width;
  const raw: Numbers = width <= 4 ? new Uint32Array(count) : new Float64Array(count);
  let scale = 1;
  for (let byte = 0; byte < width; byte++, scale *= 256) {
    const plane = planes.subarray(byte * count, (byte + 1) * count);
    for (let at = 0; at < count; at++) raw[at]! += plane[at]! * scale;
  }
  if (coding === "plain") return raw;
  const values = new Float64Array(count);
  let before = 0;
  for (let at = 0; at < count; at++) {
    const code = raw[at]!;
    const change = code % 2 === 0 ? code / 2 : -(code + 1) / 2;
    before = coding === "delta" ? before + change : change;
    values[at] = before;
  }
  return values;
}

/** Numbers at once, on this thread. */
export function unpackedNow(column: PackedColumn): Numbers {
  const packed = bytesOfBase64(column.text);
  return decoded(column.packing === "deflate" ? inflatedNow(packed) : packed, column.coding, column.width);
}

export async function unpacked(column: PackedColumn): Promise<Numbers | string> {
  const packed = bytesOfBase64(column.text);
  const bytes = column.packing === "deflate" ? await inflated(packed) : packed;
  return column.coding === "json" ? new TextDecoder().decode(bytes) : decoded(bytes, column.coding, column.width);
}
