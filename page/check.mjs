// Checks a page in headless Chromium: `node check.mjs PAGE.html [REPORT.json] [--hostile] [--sources] [--screenshots FOLDER]`. The
// report is what `cargo memtrace export --to json` writes of the same recording. With --hostile, every text of the page is
// replaced by one that tries to be markup.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { browser as launched, open as opened, settled as drawn } from "./browser.mjs";
import { hostile } from "./hostile.mjs";

const arguments_ = process.argv.slice(2);
const at = arguments_.indexOf("--screenshots");
const screenshots = at < 0 ? null : arguments_.splice(at, 2)[1];
const isHostile = arguments_.includes("--hostile");
const hasSources = arguments_.includes("--sources");
const [given, reportFile] = arguments_.filter((argument) => !argument.startsWith("--"));
const file = isHostile ? hostile(given) : given;
const report = reportFile && JSON.parse(readFileSync(reportFile, "utf8"));
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

let passed = 0;
const failures = [];
const check = (what, isTrue, found = "") => {
  if (isTrue) passed++;
  else failures.push(`${what} ${found}`);
};

const browser = await launched();
const context = await browser.newContext({ viewport: { width: 1280, height: 1000 }, colorScheme: "light" });
const page = await context.newPage();
page.on("console", (message) => failures.push(`console: ${message.text()}`));
page.on("pageerror", (error) => failures.push(`error: ${error.message}`));
page.on("request", (request) => {
  const url = request.url();
  if (!url.startsWith("blob:") && url.split("#")[0] !== pathToFileURL(file).href) failures.push(`request: ${url.slice(0, 100)}`);
});
page.on("dialog", () => failures.push("a dialog opened"));

const open = (fragment = "") => opened(page, file, fragment);
const fragment = () => page.evaluate(() => location.hash);
const settled = () => drawn(page);
const rows = () =>
  page.evaluate(() =>
    [...document.querySelectorAll(".panel .sheet tbody tr")].map((row) =>
      [...row.children].map((cell) => (cell.hasAttribute("data-sort") ? Number(cell.getAttribute("data-sort")) : cell.textContent)),
    ),
  );
/** Different colours in a canvas. */
const colours = (selector) =>
  page.evaluate((selector) => {
    const canvas = document.querySelector(selector);
    if (!canvas) return 0;
    const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const ctx = copy.getContext("2d", { willReadFrequently: true });
    ctx.drawImage(canvas, 0, 0);
    const { data } = ctx.getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  }, selector);

/** Waits until a canvas has a picture: it is drawn in a frame after the text beside it. */
async function picture(selector) {
  const until = Date.now() + 30_000;
  let found;
  while ((found = await colours(selector)) <= 2 && Date.now() < until) await settled();
  return found > 2;
}

const began = Date.now();
await open();
console.log(`ready after ${Date.now() - began} ms`);
const head = await page.evaluate(() => JSON.parse(document.getElementById("head").textContent));
const recording = head.recordings[0];
const names = { line: "peak_by_line", "forward-line": "peak_by_forward_line", function: "peak_by_function", operator: "peak_by_operator", category: "peak_by_category", scope: "peak_by_scope", module: "peak_by_module", name: "peak_by_name" };

for (const [number, device] of recording.devices.entries()) {
  const told = report?.devices.find((other) => other.device === device.name);
  if (told) check(`${device.name}: peak`, told.peak.total_bytes === device.peak.total);
  for (const key of device.keys.map(({ name }) => name)) {
    await page.evaluate((to) => { location.hash = to; }, `#device=${number}&key=${key}`);
    await settled();
    await page.waitForSelector("html[data-ready=yes]", { state: "attached", timeout: 60_000 });
    await page.waitForSelector(`.tools button[data-key="${key}"][aria-pressed=true]`);
    await page.waitForSelector(".panel .sheet tbody tr");
    for (const more of await page.$$(".panel .sheet > button")) await more.click();
    const found = await rows();
    const sum = found.reduce((sum, row) => sum + row[0], 0);
    check(`${device.name} by ${key}: rows add up to the peak`, sum === device.peak.total, `${sum} ${device.peak.total}`);
    const table = told?.[names[key]];
    if (!table) continue;
    const shown = new Map(found.map((row) => [row[4], row]));
    check(`${device.name} by ${key}: as many rows`, shown.size === table.rows.length, `${shown.size} ${table.rows.length}`);
    for (const row of table.rows) {
      const [bytes, , count, median] = shown.get(row.label) ?? [];
      const isSame = bytes === row.bytes && (device.is_sample || row.count === null || (count === row.count && median === row.median_bytes));
      check(`${device.name} by ${key}: ${row.label}`, isSame, `${bytes} ${count} ${median}, not ${row.bytes} ${row.count} ${row.median_bytes}`);
    }
    check(`${device.name} by ${key}: timeline drawn`, (await colours("canvas.timeline")) > 4);
  }
}

// The tables of the report: rows that are shown are the JSON's, and folded rows keep the sum.
for (const [number, device] of recording.devices.entries()) {
  const told = report?.devices.find((other) => other.device === device.name);
  if (!told) continue;
  await page.evaluate((to) => { location.hash = to; }, `#device=${number}&view=report`);
  await page.waitForSelector("html[data-ready=yes]", { state: "attached", timeout: 60_000 });
  await settled();
  const sections = await page.$$eval(".report-section", (sections) =>
    sections.map((section) => [
      section.id.slice(8),
      [...section.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => (cell.hasAttribute("data-sort") ? Number(cell.getAttribute("data-sort")) : cell.textContent))),
    ]),
  );
  check(`${device.name}: sections`, sections.length === device.report.sections.length, `${sections.length}`);
  for (const [key, shown] of sections) compareSection(`${device.name} ${key}`, key, shown, told[key]);
}

function compareSection(what, key, shown, told) {
  if (/^(peak|live)_by_/.test(key) && told) {
    const known = new Map(told.rows.map((row) => [row.label, row]));
    // Tables of lines have a running sum behind the share.
    const same = (cells) => {
      const [[bytes], [count, median, label]] = [cells, cells.slice(-3)];
      const row = known.get(label);
      if (!row) return /^\(\d+ more rows\)$/.test(label);
      return row.bytes === bytes && (row.count === null || (row.count === count && row.median_bytes === median));
    };
    shown.forEach((row) => check(`${what}: ${row.at(-1)}`, same(row), row.join(" ")));
    const sum = (rows, of) => rows.reduce((sum, row) => sum + of(row), 0);
    check(`${what}: sum`, sum(shown, (row) => row[0]) === sum(told.rows, (row) => row.bytes));
  } else if (key === "temporaries" && told) {
    for (const row of shown) {
      const found = told.find(({ label }) => label === row.at(-1));
      if (found) check(`${what}: ${row.at(-1)}`, row.includes(found.bytes) && row.includes(found.count) && row.includes(found.largest_bytes), row.join(" "));
    }
    check(`${what}: rows`, shown.some((row) => told.some(({ label }) => label === row.at(-1))) || told.length === 0);
  } else if (key === "live_twice" && told) {
    const found = told.every(({ size, count, older_bytes: older }) => shown.some((row) => row[0] === older && row[2] === count && row[3] === size));
    check(`${what}: rows`, found || shown.length >= 50);
  }
}

const main = recording.devices[recording.main];
if (report) {
  await open();
  const findings = report.devices.find((other) => other.device === main.name)?.findings ?? [];
  const shown = await page.$$eval(".findings li", (items) => items.map((item) => item.textContent));
  check("findings: as many as in the report", shown.length === findings.length, `${shown.length} ${findings.length}`);
  for (const { what, kind, advice } of findings) check(`finding ${kind}`, shown.some((text) => text.includes(what ?? "") && text.includes(advice.join("\n"))));
}
if (report) {
  const findings = report.devices.find((other) => other.device === main.name)?.findings ?? [];
  const peaks = findings.filter(({ advice }) => advice.some((line) => /^The peak would be /.test(line))).length;
  check("findings: each new peak is shown", (await page.$$(".findings .then")).length === peaks);
}
await open();
for (const view of await page.$$eval(".tabs button", (tabs) => tabs.map((tab) => tab.id.slice(4)))) {
  await page.click(`#tab-${view}`);
  await settled();
  check(`view ${view}: in the fragment`, view === "table" || (await fragment()).includes(`view=${view}`));
  // A view may read columns of its own before it shows anything.
  const hasContent = await page.waitForFunction(() => document.querySelector(".panel").textContent.length > 10, null, { timeout: 30_000 }).catch(() => null);
  check(`view ${view}: has content`, hasContent !== null);
  if (await page.$(".panel canvas:not([hidden])")) check(`view ${view}: drawn`, await picture(".panel canvas"));
  if (view === "growth") {
    const titles = await page.$$eval(".panel th", (cells) => cells.map((cell) => cell.textContent));
    const [change, before, after] = ["Change", "Before", "After"].map((title) => titles.indexOf(title));
    const found = await rows();
    const isNothing = /\(0 B\) to .*\(0 B\)/.test(await page.textContent(".panel .told"));
    check("growth: rows", (found.length > 0 || isNothing) && found.every((row) => row[change] === row[after] - row[before]));
  }
  if (screenshots) {
    for (const scheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: scheme });
      await settled();
      await page.screenshot({ path: `${screenshots}/${view}-${scheme}.png`, fullPage: true });
    }
    await page.emulateMedia({ colorScheme: "light" });
  }
}
// The tabs are on the first screen, and a hover is clear of the pinned block.
await page.setViewportSize({ width: 1280, height: 800 });
await open();
for (const y of [0, 1e6]) {
  await page.evaluate((y) => scrollTo(0, y), y);
  const seen = await page.$$eval(".tabs button", (tabs) => tabs.every((tab) => tab.getBoundingClientRect().top >= 0 && tab.getBoundingClientRect().bottom <= innerHeight));
  check(`tabs: within the window, scrolled by ${y}`, seen);
}
await page.evaluate(() => scrollTo(0, 0));
for (const [width, height] of [[1366, 650], [1100, 800], [1280, 800]]) {
  await page.setViewportSize({ width, height });
  await settled();
  const [timeline, tabs] = await page.evaluate(() => [document.querySelector("canvas.timeline").getBoundingClientRect().bottom, document.querySelector(".tabs").getBoundingClientRect().top]);
  check(`timeline: above the tabs at ${width} x ${height}`, timeline <= tabs, `${timeline} ${tabs}`);
}
await page.click("#tab-allocator");
await settled();
await page.waitForFunction(() => document.querySelector(".panel .told")?.textContent !== "");
check("tabs: the chosen view is in the window", await page.$eval(".panel", (panel) => panel.getBoundingClientRect().top <= innerHeight - 240));
const map = await page.$("canvas.allocator:not([hidden])");
if (map) {
  await page.waitForTimeout(100);
  await page.evaluate(() => { location.hash += "&pin=0"; });
  await settled();
  const area = await map.boundingBox();
  const free = [];
  for (let y = area.y + 10; y < Math.min(area.y + area.height, 750); y += 22) {
    for (let x = area.x + 4; x < area.x + area.width; x += 23) {
      const isMap = await page.evaluate(([x, y]) => document.elementFromPoint(x, y)?.className === "allocator", [x, y]);
      if (!isMap) continue;
      await page.mouse.move(x, y);
      const [text, isClear] = await page.evaluate(() => {
        const [hover, pinned] = [document.querySelector(".hover"), document.querySelector(".pinned")];
        const [a, b] = [hover, pinned].map((element) => element.getBoundingClientRect());
        return [hover.hidden ? "" : hover.textContent, hover.hidden || pinned.hidden || a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top];
      });
      check(`hover at ${x} ${y}: clear of the pinned block`, isClear);
      if (text.startsWith("free")) free.push(text);
    }
  }
  check("allocator: a hole says its size", free.every((text) => /^free: [\d.]+ [KMG]?i?B[\d,]+ bytes at 0x/.test(text)), free[0]);
  console.log(`${free.length} holes under the pointer`);
}
await page.setViewportSize({ width: 1280, height: 1000 });
// Brush, back, selection, search, keyboard. An old snapshot of PyTorch has no times.
const hasTimes = main.end_ns - main.start_ns > 1000;
await open();
if (hasTimes) {
  await (await page.$("canvas.timeline")).scrollIntoViewIfNeeded();
  const box = await (await page.$("canvas.timeline")).boundingBox();
  await page.mouse.move(box.x + 300, box.y + 150);
  await page.mouse.down();
  await page.mouse.move(box.x + 600, box.y + 150, { steps: 4 });
  await page.mouse.up();
  await settled();
  check("brush: range in the fragment", /from=\d+/.test(await fragment()) && /to=\d+/.test(await fragment()), await fragment());
  await page.goBack();
  await settled();
  check("back: all time again", !(await fragment()).includes("from="), await fragment());
  await page.mouse.click(box.x + 400, box.y + 200);
  await settled();
  check("click: a moment is selected", /at=\d+/.test(await fragment()), await fragment());
  check("click: the table is of that moment", ((await page.textContent(".panel h3", { timeout: 2000 }).catch(() => "no table")) ?? "").startsWith("Live after"));
  await page.focus("canvas.timeline");
  const before = await fragment();
  await page.keyboard.press("ArrowRight");
  await settled();
  check("keyboard: the moment moves", (await fragment()) !== before);
  await page.keyboard.press("p");
  await settled();
  check("keyboard: back at the peak", !(await fragment()).includes("at="));
  await page.keyboard.press("+");
  await settled();
  check("keyboard: zoom", (await fragment()).includes("from="));
  await page.keyboard.press("0");
}
await page.keyboard.press("2");
await settled();
check("keyboard: second view", (await fragment()).includes("view=flame"));
await page.keyboard.press("1");
await page.click('.tools button[data-key="line"]');
await settled();
await page.keyboard.press("/");
await page.keyboard.type("zzz-nothing");
await settled();
check("search: nothing matches", (await page.$$(".panel .sheet tbody tr")).length === 0);
await page.fill("#search", "");
await settled();
if (await page.$('.tools button[data-key="category"]')) {
  const line = await page.$eval(".panel .sheet tbody tr td:last-child", (cell) => cell.textContent);
  await page.click('.tools button[data-key="category"]');
  await page.fill("#search", line);
  await settled();
  await page.click('.panel button:has-text("By line, ")');
  await settled();
  check("search: the key that has a match", (await page.$$(".panel .sheet tbody tr")).length > 0);
  await page.fill("#search", "");
  await settled();
}
await page.click(".panel .sheet tbody tr");
await settled();
check("selection: in the fragment", (await fragment()).includes("label="));
check("selection: row marked", (await page.$$('.panel tr[aria-selected="true"]')).length === 1);
if (main.report.findings.length > 0) check("findings: shown", (await page.$$(".findings li")).length === main.report.findings.length);

if (!hasSources) check("source text and links: only if they were asked for", (await page.$$(".source, a")).length === 0);
else {
  await page.click(".holder");
  await settled();
  check("source text: beside the selected line, which is marked", (await page.$$(".panel .source mark")).length === 1);
  const links = await page.$$eval(".panel a", (links) => links.map(({ href, textContent }) => [href, textContent]));
  check("links: beside the selected line, to the file and the line", links.length === 1 && links[0][0].startsWith("vscode://file/") && links[0][0].endsWith(`/${links[0][1]}`), links.join());
  await page.click(".panel .blocks button");
  await settled();
  check("links: in a stack", (await page.$$(".pinned a")).length > 0);
}

for (const scheme of ["light", "dark"]) {
  await page.emulateMedia({ colorScheme: scheme });
  await settled();
  const { violations } = await page.evaluate(`(() => { ${axe}; return axe.run(document, { resultTypes: ["violations"] }); })()`);
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  check(`axe, ${scheme}`, serious.length === 0, serious.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 160)} ${nodes[0].failureSummary}`).join("; "));
}
if (isHostile) {
  check("hostile texts: no element but the page's own", (await page.$$("img, iframe, object, svg, a")).length === 0);
  check("hostile texts: shown as they are", (await page.textContent("h1")).includes("<img src=x onerror="));
}
await browser.close();
failures.forEach((failure) => console.log(`FAILED ${failure}`));
console.log(`${passed} checks passed, ${failures.length} failed`);
process.exit(failures.length > 0 ? 1 : 0);
