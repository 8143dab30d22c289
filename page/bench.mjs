// Measures a page in headless Chromium: `node bench.mjs PAGE.html [VIEW.json]`. VIEW.json holds the `timings` of PyTorch's
// MemoryViz.js on the same recording in the same environment (`first_view_ms`); ratios are printed beside it.

import { readFileSync, statSync } from "node:fs";
import { browser, open } from "./browser.mjs";

const [file, other] = process.argv.slice(2);
const ROUNDS = 5;
const opened = await browser();
const page = await opened.newPage({ viewport: { width: 1280, height: 1000 } });

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1];
const first = [];
const all = [];
for (let round = 0; round < ROUNDS; round++) {
  const began = Date.now();
  await open(page, file);
  all.push(Date.now() - began);
  first.push(await page.evaluate(() => performance.getEntriesByName("first-picture")[0].startTime));
}
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
if (other) {
  const { timings } = JSON.parse(readFileSync(other, "utf8"));
  console.log(`MemoryViz.js: first picture ${timings.first_view_ms} ms, ${(timings.first_view_ms / median(first)).toFixed(1)} times`);
}
await opened.close();
