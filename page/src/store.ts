// Column store: finds columns in the document and has the worker unpack them, each at most once.

import { unpacked, unpackedNow, type Numbers, type PackedColumn } from "./columns.ts";

declare const WORKER_SOURCE: string;

type Unpack = (column: PackedColumn) => Promise<Numbers | string>;

/** Unpacks in a worker, or here where workers are forbidden. */
function worker(): Unpack {
  try {
    const url = URL.createObjectURL(new Blob([WORKER_SOURCE], { type: "text/javascript" }));
    const worker = new Worker(url);
    const waiting = new Map<number, { resolve(value: Numbers | string): void; reject(error: Error): void }>();
    let next = 0;
    worker.addEventListener("message", (event) => {
      const { id, value, error } = event.data as { id: number; value: Numbers | string; error?: string };
      const waiter = waiting.get(id);
      waiting.delete(id);
      if (error === undefined) waiter?.resolve(value);
      else waiter?.reject(new Error(error));
    });
    return (column) =>
      new Promise((resolve, reject) => {
        waiting.set(next, { resolve, reject });
        worker.postMessage({ id: next++, ...column });
      });
  } catch {
    return unpacked;
  }
}

/** The worker starts with the first column that needs it, after the first picture. */
function lazily(start: () => Unpack): Unpack {
  let unpack: Unpack | null = null;
  return (column) => (unpack ??= start())(column);
}

export class ColumnStore {
  private readonly unpack = lazily(worker);
  private readonly known = new Map<string, Promise<Numbers | string>>();
  private readonly ready = new Map<string, Numbers>();

  has(name: string): boolean {
    return this.known.has(name) || document.getElementById(name) !== null;
  }

  numbers(name: string): Promise<Numbers> {
    return this.column(name) as Promise<Numbers>;
  }

  async json<T>(name: string): Promise<T> {
    return JSON.parse((await this.column(name)) as string) as T;
  }

  /** Numbers at once: columns of the first picture, or of a key. */
  now(name: string): Numbers {
    let found = this.ready.get(name);
    if (!found) {
      found = unpackedNow(taken(name));
      this.ready.set(name, found);
      this.known.set(name, Promise.resolve(found));
    }
    return found;
  }

  private column(name: string): Promise<Numbers | string> {
    let found = this.known.get(name);
    if (!found) {
      found = this.unpack(taken(name));
      this.known.set(name, found);
    }
    return found;
  }
}

/** A column, which leaves the document. */
function taken(name: string): PackedColumn {
  const element = document.getElementById(name);
  const { coding = "plain", width = "1", packing = "stored" } = element?.dataset ?? {};
  const text = element?.textContent ?? "";
  element?.remove();
  return { text, coding, width: Number(width), packing };
}
