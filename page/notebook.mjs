// Shows a page in JupyterLab: `node notebook.mjs FOLDER`. The folder has show.ipynb; its server is the one in PATH.

import { spawn } from "node:child_process";
import { browser as launched } from "./browser.mjs";

const folder = process.argv[2];
const options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0", "--IdentityProvider.token=", `--ServerApp.root_dir=${folder}`];
const server = spawn("jupyter", ["lab", ...options], { stdio: ["ignore", "ignore", "pipe"] });

/** The server's address, when it says it. */
const address = await new Promise((found, failed) => {
  let said = "";
  server.stderr.on("data", (text) => {
    said += text;
    const at = /http:\/\/127\.0\.0\.1:\d+\//.exec(said);
    if (at) found(at[0]);
  });
  server.on("exit", (code) => failed(new Error(`jupyter ended with ${code}: ${said}`)));
});

const browser = await launched();
const errors = [];
try {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1200 } });
  await page.goto(`${address}lab/tree/show.ipynb`);
  await page.click(".jp-Notebook .jp-Cell", { timeout: 60_000 });
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.waitForSelector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', { timeout: 60_000 });
  await page.keyboard.press("Shift+Enter");
  const element = await page.waitForSelector(".jp-OutputArea-output iframe", { timeout: 60_000 });
  const frame = await element.contentFrame();
  await frame.waitForSelector("html[data-ready=yes]", { state: "attached", timeout: 60_000 });
  const holders = await frame.$$eval(".holders li", (items) => items.length);
  const tabs = await frame.$$eval(".tabs button", (buttons) => buttons.length);
  // A click draws the tabs anew.
  for (let at = 0; at < tabs; at++) {
    await frame.locator(".tabs button").nth(at).click();
    await frame.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null)))));
  }
  const reached = await frame.evaluate(() => {
    try {
      return String(parent.document.title);
    } catch (error) {
      return error.name;
    }
  });
  if (process.argv[3]) await page.screenshot({ path: process.argv[3] });
  if (holders === 0 || tabs < 5 || reached !== "SecurityError" || errors.length > 0)
    throw new Error(`${holders} holders, ${tabs} views, the notebook: ${reached}; ${errors.join("; ")}`);
  console.log(`${holders} holders and ${tabs} views in a notebook, which they cannot reach`);
} finally {
  await browser.close();
  server.kill();
}
process.exit(0);
