// Column store: finds columns in the document and has the worker unpack them, each at most once.

import { unpacked, type Numbers, type PackedColumn } from "./columns.ts";

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

export class ColumnStore {
  private readonly unpack = worker();
  private readonly known = new Map<string, Promise<Numbers | string>>();

  has(name: string): boolean {
    return this.known.has(name) || document.getElementById(name) !== null;
  }

  numbers(name: string): Promise<Numbers> {
    return this.column(name) as Promise<Numbers>;
  }

  async json<T>(name: string): Promise<T> {
    return JSON.parse((await this.column(name)) as string) as T;
  }

  private column(name: string): Promise<Numbers | string> {
    let found = this.known.get(name);
    if (!found) {
      const element = document.getElementById(name);
      const { coding = "plain", width = "1", packing = "stored" } = element?.dataset ?? {};
      const text = element?.textContent ?? "";
      element?.remove();
      found = this.unpack({ text, coding, width: Number(width), packing });
      this.known.set(name, found);
    }
    return found;
  }
}
