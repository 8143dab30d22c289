// Start of the page.

import { App } from "./app.ts";
import { h } from "./dom.ts";
import type { PageHead } from "./head.ts";

const root = document.getElementById("page")!;
const text = document.getElementById("head")?.textContent;
/** All columns are in the document. */
const parsed = new Promise<void>((done) => {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => done());
  else done();
});

if (text) {
  const app = new App(JSON.parse(text) as PageHead, root, parsed);
  app.open().catch((error: unknown) => {
    console.error(error);
    root.prepend(h("p", { class: "error", role: "alert" }, `This browser cannot show the recording: ${String(error)}`));
  });
}
