// Runs the trace processor of Perfetto's UI under node: loads a trace, answers SQL queries.
// `engine` is the folder with the UI's engine_bundle.js and trace_processor.wasm.
import fs from 'node:fs';
import path from 'node:path';

const APPEND = 1, FINALIZE = 2, QUERY = 3;
const FIELD = {seq: 1, fatal: 5, request: 2, response: 3, appended: 101, query: 103, appendResult: 201, queryResult: 203};

// --- the subset of protobuf that its remote procedure calls use --------------------------------
function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}
const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

function* fields(buffer) {
  let at = 0;
  const next = () => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = buffer[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < buffer.length) {
    const tag = Number(next()), field = tag >> 3;
    switch (tag & 7) {
      case 0: yield [field, next()]; break;
      case 1: yield [field, buffer.subarray(at, at += 8)]; break;
      case 2: { const length = Number(next()); yield [field, buffer.subarray(at, at += length)]; break; }
      default: throw new Error(`wire type ${tag & 7} in a reply`);
    }
  }
}
function* packed(buffer) {
  let value = 0n, shift = 0n;
  for (const byte of buffer) {
    value |= BigInt(byte & 127) << shift;
    shift += 7n;
    if (byte < 128) { yield BigInt.asIntN(64, value); value = shift = 0n; }
  }
}

// --- the engine -------------------------------------------------------------------------------
// The bundle expects the globals of a web worker, without those of node.
function worker(engine) {
  const log = [];
  const self = {location: {href: 'file:///engine_bundle.js'}};
  const globals = {
    self, log, process: undefined, WorkerGlobalScope: Object, location: self.location,
    console: {log() {}, error: line => log.push(line), warn: line => log.push(line)},
    // Used only for a synchronous request of the wasm module.
    XMLHttpRequest: class {
      open(_method, url) { this.file = path.join(engine, path.basename(url)); }
      send() { this.response = fs.readFileSync(this.file); }
    },
  };
  new Function(...Object.keys(globals), fs.readFileSync(path.join(engine, 'engine_bundle.js'), 'utf8'))(...Object.values(globals));
  return {self, log};
}

export class TraceProcessor {
  static async load(engine, file) {
    const processor = new TraceProcessor();
    await processor.#start(engine);
    const trace = fs.readFileSync(file);
    for (let at = 0; at < trace.length; at += 1 << 24) {
      await processor.#call(APPEND, FIELD.appended, trace.subarray(at, at + (1 << 24)));
    }
    await processor.#call(FINALIZE);
    return processor;
  }

  #seq = 0;
  #waiting = null;
  #pending = Buffer.alloc(0);

  async #start(engine) {
    const {self, log} = worker(engine);
    this.log = log;
    const port = {postMessage: data => this.#received(Buffer.from(data))};
    self.onmessage({data: port});
    this.send = data => port.onmessage({data: new Uint8Array(data)});
    // The module accepts requests after its asynchronous initialization.
    await new Promise(done => setTimeout(done, 0));
  }

  #received(data) {
    this.#pending = Buffer.concat([this.#pending, data]);
    for (const [field, message] of fields(this.#pending)) if (field === 1) this.#waiting?.(message);
    this.#pending = Buffer.alloc(0);
  }

  #call(method, field, value) {
    const parts = [number(FIELD.seq, this.#seq++), number(FIELD.request, method)];
    if (field) parts.push(bytes(field, value));
    const answers = [];
    this.#waiting = message => answers.push(message);
    this.send(bytes(1, Buffer.concat(parts)));
    for (const answer of answers) for (const [at, text] of fields(answer)) {
      if (at === FIELD.fatal) throw new Error(`trace processor: ${text}`);
      if (at === FIELD.appendResult) for (const [k, v] of fields(text)) if (k === 2) throw new Error(`import: ${v}`);
    }
    return answers;
  }

  /** Rows as objects. */
  query(sql) {
    const names = [], cells = [];
    for (const answer of this.#call(QUERY, FIELD.query, bytes(1, Buffer.from(sql)))) {
      for (const [field, result] of fields(answer)) if (field === FIELD.queryResult) read(result, names, cells);
    }
    const rows = [];
    for (let at = 0; names.length && at < cells.length; at += names.length) {
      rows.push(Object.fromEntries(names.map((name, i) => [name, cells[at + i]])));
    }
    return rows;
  }
}

function read(result, names, cells) {
  for (const [field, value] of fields(result)) {
    if (field === 1) names.push(value.toString());
    if (field === 2 && value.length) throw new Error(`query: ${value}`);
    if (field === 3) batch(value, cells);
  }
}

function batch(buffer, cells) {
  let kinds = [], integers = [], floats = [], texts = [];
  for (const [field, value] of fields(buffer)) {
    if (field === 1) kinds = [...packed(value)].map(Number);
    if (field === 2) integers = [...packed(value)].map(Number);
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (field === 5) texts = value.toString().split('\0');
  }
  const next = {1: () => null, 2: () => integers.shift(), 3: () => floats.shift(), 4: () => texts.shift(), 5: () => null};
  for (const kind of kinds) cells.push(next[kind]());
}
