// What the report says of the peak, and how a consumer's stacks are compared with it.
import fs from 'node:fs';

export class Expected {
  constructor(reportFile) {
    this.devices = JSON.parse(fs.readFileSync(reportFile)).devices.map(device => new ExpectedDevice(device));
  }

  // The device that DHAT's format shows.
  get main() {
    return this.devices.reduce((main, device) => device.total > main.total ? device : main);
  }
}

// `src/main.rs:7` of `src/main.rs:7 (main)`.
export function lineOf(label) {
  return label.match(/^.*?:\d+(?= |$)/)?.[0];
}

class ExpectedDevice {
  constructor({device, peak, peak_by_line, peak_by_function}) {
    this.name = device;
    this.total = peak.total_bytes;
    this.lines = new Owners(peak_by_line.rows, lineOf);
    // `main` of `main (src/main.rs)`.
    this.functions = new Owners(peak_by_function.rows, label => label.replace(/ \([^()]*\)$/, ''));
  }
}

// A table of the peak whose rows are lines or functions of the program.
class Owners {
  #bytes = new Map();

  constructor(rows, nameOf) {
    for (const {label, bytes} of rows) {
      const name = label.startsWith('(') || label.endsWith('[no user frame]') ? undefined : nameOf(label);
      if (name) this.#bytes.set(name, (this.#bytes.get(name) ?? 0) + bytes);
    }
    const largest = [...this.#bytes].reduce((most, row) => row[1] > most[1] ? row : most, [undefined, 0]);
    [this.largest, this.bytes] = largest;
  }

  // `largest` is undefined if no row is one of the program.
  // The bytes of the largest row, from stacks of [bytes, names], innermost first. A block belongs to the innermost name of the table.
  bytesIn(stacks) {
    const owner = names => names.find(name => this.#bytes.has(name));
    return stacks.reduce((sum, [bytes, names]) => owner(names) === this.largest ? sum + bytes : sum, 0);
  }
}
