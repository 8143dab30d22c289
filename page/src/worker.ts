// Worker: unpacks columns off the main thread.

import { unpacked, type PackedColumn } from "./columns.ts";

interface Request extends PackedColumn {
  id: number;
}

const scope = self as unknown as { postMessage(message: unknown, transfer: Transferable[]): void };

self.addEventListener("message", async (event) => {
  const { id, ...column } = event.data as Request;
  try {
    const value = await unpacked(column);
    scope.postMessage({ id, value }, typeof value === "string" ? [] : [value.buffer as ArrayBuffer]);
  } catch (error) {
    scope.postMessage({ id, error: String(error) }, []);
  }
});
