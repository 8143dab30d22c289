// Numbers as core writes them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Rounds to even where two are as near, as Rust does. */
export function fixed(value: number, decimals: number): string {
  const scale = 10 ** decimals;
  const scaled = value * scale;
  const below = Math.floor(scaled);
  const isTie = scaled - below === 0.5 && scaled / scale === value;
  return isTie ? ((below % 2 === 0 ? below : below + 1) / scale).toFixed(decimals) : value.toFixed(decimals);
}

/** `915.7 MiB` */
export function bytes(count: number): string {
  let unit = 0;
  let value = Math.abs(count);
  while (value >= 1023.95 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit++;
  }
  const decimals = unit === 0 ? 0 : value < 9.9995 ? 3 : value < 99.995 ? 2 : 1;
  return `${count < 0 ? "-" : ""}${fixed(value, decimals)} ${UNITS[unit]}`;
}

export function signed(count: number): string {
  return count > 0 ? `+${bytes(count)}` : bytes(count);
}

/** `960,194,048` */
export function grouped(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function percent(part: number, whole: number): string {
  return whole === 0 ? "-" : fixed((100 * part) / whole, 1);
}

/** A moment: seconds since the recording began. */
export function seconds(ns: number, precision = 3): string {
  return `${(ns / 1e9).toFixed(precision)} s`;
}

/** Decimals of seconds that tell moments apart in a range. */
export function precision(rangeNs: number): number {
  return Math.min(9, Math.max(0, Math.ceil(-Math.log10(Math.max(rangeNs, 1) / 1e9 / 1000))));
}

/** A length of time with three digits. */
export function duration(ns: number): string {
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const) {
    if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}
