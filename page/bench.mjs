// Measures a page in headless Chromium: `node bench.mjs PAGE.html [SNAPSHOT.pickle]`. With a snapshot of PyTorch,
// MEMTRACE_SNAPSHOT_CHECK names a program that opens it in PyTorch's MemoryViz.js, `PROGRAM --quick SNAPSHOT.pickle OUTDIR`,
// and writes how long that took to OUTDIR/js-*/view.json. It runs between two halves of the measurement.

import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { browser, open } from "./browser.mjs";

const [file, snapshot] = process.argv.slice(2);
const ROUNDS = 5;
const opened = await browser();
const page = await opened.newPage({ viewport: { width: 1280, height: 1000 } });

const median = (times) => [...times].sort((a, b) => a - b)[times.length >> 1];
const first = [];
const all = [];

/** Until the browser has painted the first picture, and until everything is drawn. */
async function rounds() {
  for (let round = 0; round < ROUNDS; round++) {
    const began = Date.now();
    await open(page, file);
    all.push(Date.now() - began);
    first.push(
      await page.evaluate(() => {
        const at = (name) => performance.getEntriesByName(name)[0].startTime;
        return Math.max(at("first-picture"), at("first-contentful-paint"));
      }),
    );
  }
}

/** What MemoryViz.js took, by version. */
function memoryViz() {
  const program = process.env.MEMTRACE_SNAPSHOT_CHECK;
  if (!snapshot || !program) return [];
  const folder = mkdtempSync(join(tmpdir(), "memtrace-page-"));
  try {
    execFileSync(program, ["--quick", snapshot, folder], { stdio: ["ignore", "ignore", "inherit"] });
  } catch (error) {
    console.log(`${program}: ${error.message}`);
  }
  const versions = readdirSync(folder).filter((name) => existsSync(join(folder, name, "view.json")));
  const found = versions.map((name) => [name, JSON.parse(readFileSync(join(folder, name, "view.json"), "utf8")).timings]);
  rmSync(folder, { recursive: true });
  return found;
}

await rounds();
const others = memoryViz();
await rounds();
const head = await page.evaluate(() => JSON.parse(document.getElementById("head").textContent));
const device = head.recordings[0].devices[head.recordings[0].main];
const span = device.end_ns - device.start_ns;
const at = (part) => Math.round(device.start_ns + span * part);

/** Milliseconds from a change of the fragment to the frame that shows it. */
const interaction = (fragment) =>
  page.evaluate(
    (fragment) =>
      new Promise((done) => {
        const began = performance.now();
        location.hash = fragment;
        const drawn = () => {
          const state = document.documentElement.dataset.drawn;
          if (state === fragment || (fragment === "" && state === "all")) requestAnimationFrame(() => done(performance.now() - began));
          else requestAnimationFrame(drawn);
        };
        drawn();
      }),
    fragment,
  );

const CHANGES = {
  "zoom to a tenth": `from=${at(0.45)}&to=${at(0.55)}`,
  "zoom to a thousandth": `from=${at(0.5)}&to=${at(0.501)}`,
  "select a moment": `at=${at(0.5)}`,
  "by line": "key=line",
  "flame graph": "view=flame",
  growth: "view=growth",
  "blocks over time": "view=blocks",
  "blocks over time, a tenth": `from=${at(0.45)}&to=${at(0.55)}&view=blocks`,
  "allocator": "view=allocator",
};
const size = statSync(file).size;
console.log(`${device.records} records, ${(size / 2 ** 20).toFixed(1)} MiB, ${device.rows} blocks`);
console.log(`first picture ${median(first).toFixed(0)} ms, everything ${median(all)} ms`);
for (const [name, fragment] of Object.entries(CHANGES)) {
  const times = [];
  for (let round = 0; round < ROUNDS; round++) {
    await interaction("");
    times.push(await interaction(fragment));
  }
  console.log(`${name}: ${median(times).toFixed(0)} ms`);
}
const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
console.log(`heap of the page's main thread ${(heap / 2 ** 20).toFixed(0)} MiB`);
for (const [name, { first_view_ms: shown, ...views }] of others) {
  console.log(`MemoryViz.js, ${name}: first picture ${shown} ms, ${(shown / median(first)).toFixed(1)} times; ${JSON.stringify(views)}`);
}
await opened.close();
