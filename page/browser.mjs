// Debian's Chromium, headless, for checks and measurements.

import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

export async function browser() {
  return chromium.launch({
    executablePath: process.env.MEMTRACE_CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
}

/** Opens a page's file and waits until all of it is drawn. */
export async function open(page, file, fragment = "") {
  await page.goto("about:blank");
  await page.goto(pathToFileURL(file).href + fragment);
  await page.waitForSelector("html[data-ready=yes]", { state: "attached", timeout: 120_000 });
}

export const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null)))));
