// Builds the viewer: one HTML file without data, at core/src/export/html/page.html or the path given.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

const bundle = async (entry, define = {}) => {
  const result = await build({
    entryPoints: [here(entry)], bundle: true, write: false, format: "iife", target: "es2022", minify: true, charset: "utf8",
    legalComments: "none", define, logLevel: "warning",
  });
  return result.outputFiles[0].text.trim();
};

const hash = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;

const worker = await bundle("src/worker.ts");
const script = (await bundle("src/main.ts", { WORKER_SOURCE: JSON.stringify(worker) })).replaceAll("</script", "<\\/script");
const style = (await build({ entryPoints: [here("src/style.css")], write: false, minify: true, logLevel: "warning" })).outputFiles[0].text.trim();
const parts = { "{script-hash}": hash(script), "{style-hash}": hash(style), "{style}": style, "{script}": script };
let page = readFileSync(here("src/page.html"), "utf8");
for (const [mark, text] of Object.entries(parts)) page = page.replace(mark, () => text);
const out = process.argv[2] ?? here("../core/src/export/html/page.html");
writeFileSync(out, page);
console.log(`${out}: ${page.length} characters`);
