// Inflate (RFC 1951) in one call, for the columns of the first picture: a worker or a stream would answer only after the browser
// has parsed more of the page. Each Huffman code is one lookup table.

/** Base values and extra bits of the length codes from 257, and of the distance codes. */
const LENGTHS = steps(29, 3, (code) => (code < 8 || code === 28 ? 0 : (code >> 2) - 1));
LENGTHS.base[28] = 258;
const DISTANCES = steps(30, 1, (code) => (code < 2 ? 0 : (code >> 1) - 1));
/** Order in which a block lists the lengths of its code lengths. */
const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
const END = 256;

function steps(count: number, first: number, extra: (code: number) => number): { base: Uint16Array; extra: Uint8Array } {
  const found = { base: new Uint16Array(count), extra: Uint8Array.from({ length: count }, (_, code) => extra(code)) };
  for (let code = 0, base = first; code < count; code++) {
    found.base[code] = base;
    base += 1 << found.extra[code]!;
  }
  return found;
}

/** Symbols with their lengths by the next `bits` bits. */
interface Code {
  bits: number;
  table: Uint16Array;
}

/** The canonical code with these lengths; 0 for symbols that do not occur. */
function code(lengths: ArrayLike<number>): Code {
  let bits = 1;
  for (let symbol = 0; symbol < lengths.length; symbol++) bits = Math.max(bits, lengths[symbol]!);
  const table = new Uint16Array(1 << bits);
  let next = 0;
  for (let length = 1; length <= bits; length++, next <<= 1) {
    for (let symbol = 0; symbol < lengths.length; symbol++) {
      if (lengths[symbol] !== length) continue;
      for (let at = reversed(next, length); at < table.length; at += 1 << length) table[at] = (symbol << 4) | length;
      next++;
    }
  }
  return { bits, table };
}

function reversed(value: number, bits: number): number {
  let found = 0;
  for (let bit = 0; bit < bits; bit++) found |= ((value >> bit) & 1) << (bits - 1 - bit);
  return found;
}

class Inflate {
  private at = 2;
  private held = 0;
  private count = 0;
  private out = new Uint8Array(1 << 16);
  private length = 0;

  constructor(private readonly bytes: Uint8Array) {}

  all(): Uint8Array {
    let isLast = false;
    while (!isLast) {
      isLast = this.bits(1) === 1;
      const kind = this.bits(2);
      if (kind === 0) this.stored();
      else if (kind === 1) this.block(FIXED[0], FIXED[1]);
      else if (kind === 2) this.block(...this.codes());
      else throw new Error("a column is damaged");
    }
    return this.out.subarray(0, this.length);
  }

  private fill(bits: number): void {
    while (this.count < bits) {
      this.held |= (this.bytes[this.at++] ?? 0) << this.count;
      this.count += 8;
      if (this.at > this.bytes.length + 4) throw new Error("a column is cut off");
    }
  }

  private bits(count: number): number {
    this.fill(count);
    const value = this.held & ((1 << count) - 1);
    this.held >>>= count;
    this.count -= count;
    return value;
  }

  private symbol({ bits, table }: Code): number {
    this.fill(bits);
    const found = table[this.held & ((1 << bits) - 1)]!;
    this.held >>>= found & 15;
    this.count -= found & 15;
    if (found === 0) throw new Error("a column is damaged");
    return found >> 4;
  }

  private stored(): void {
    this.at -= this.count >> 3;
    this.held = this.count = 0;
    const length = this.bytes[this.at]! | (this.bytes[this.at + 1]! << 8);
    this.room(length);
    this.out.set(this.bytes.subarray(this.at + 4, this.at + 4 + length), this.length);
    this.at += 4 + length;
    this.length += length;
  }

  private codes(): [Code, Code] {
    const [literals, distances, count] = [this.bits(5) + 257, this.bits(5) + 1, this.bits(4) + 4];
    const first = new Uint8Array(19);
    for (let at = 0; at < count; at++) first[ORDER[at]!] = this.bits(3);
    const lengths = new Uint8Array(literals + distances);
    const ofLengths = code(first);
    for (let at = 0; at < lengths.length; ) {
      const symbol = this.symbol(ofLengths);
      const repeats = symbol < 16 ? 1 : symbol === 16 ? this.bits(2) + 3 : symbol === 17 ? this.bits(3) + 3 : this.bits(7) + 11;
      lengths.fill(symbol < 16 ? symbol : symbol === 16 ? lengths[at - 1]! : 0, at, at + repeats);
      at += repeats;
    }
    return [code(lengths.subarray(0, literals)), code(lengths.subarray(literals))];
  }

  private block(literals: Code, distances: Code): void {
    for (;;) {
      const symbol = this.symbol(literals);
      if (symbol === END) return;
      this.room(258);
      if (symbol < END) {
        this.out[this.length++] = symbol;
        continue;
      }
      const length = LENGTHS.base[symbol - 257]! + this.bits(LENGTHS.extra[symbol - 257]!);
      const far = this.symbol(distances);
      let from = this.length - DISTANCES.base[far]! - this.bits(DISTANCES.extra[far]!);
      for (const end = this.length + length; this.length < end; ) this.out[this.length++] = this.out[from++]!;
    }
  }

  private room(bytes: number): void {
    if (this.length + bytes <= this.out.length) return;
    const larger = new Uint8Array(2 * this.out.length + bytes);
    larger.set(this.out);
    this.out = larger;
  }
}

const FIXED: [Code, Code] = [
  code(Uint8Array.from({ length: 288 }, (_, symbol) => (symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8))),
  code(new Uint8Array(30).fill(5)),
];

function adler32(bytes: Uint8Array): number {
  let [a, b] = [1, 0];
  for (const byte of bytes) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return b * 65536 + a;
}

/** What zlib's format holds. */
export function inflatedNow(bytes: Uint8Array): Uint8Array {
  const found = new Inflate(bytes).all();
  const sum = new DataView(bytes.buffer, bytes.byteOffset + bytes.length - 4).getUint32(0);
  if (sum !== adler32(found)) throw new Error("a column is damaged");
  return found;
}
