// Unit tests: bundles test/*.test.ts and runs them with node's test runner.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL("test/", import.meta.url));
const out = mkdtempSync(join(tmpdir(), "memtrace-page-"));
const entryPoints = readdirSync(folder).filter((name) => name.endsWith(".test.ts")).map((name) => join(folder, name));
await build({ entryPoints, bundle: true, outdir: out, platform: "node", format: "esm", outExtension: { ".js": ".mjs" }, logLevel: "warning" });
const files = readdirSync(out).map((name) => join(out, name));
const { status } = spawnSync(process.execPath, ["--test", ...files], { stdio: "inherit" });
rmSync(out, { recursive: true });
process.exit(status ?? 1);
