// Opens a recording's files in their consumers and compares what these compute with the report: `cargo xtask consumers`.
import fs from 'node:fs';
import path from 'node:path';
import {execFileSync} from 'node:child_process';
import {VIEWER, dhatFigures} from './dhat.mjs';
import {duckdbFigures} from './duckdb.mjs';
import {Expected} from './report.mjs';
import {firefoxFigures} from './firefox.mjs';
import {pprofFigures, pprofPicture} from './pprof.mjs';
import {speedscopeFigures} from './speedscope.mjs';

const [size, modules, python, scratch, folder, pictures] = process.argv.slice(2);
if (!folder) {
  console.error('usage: node check.mjs small|full MODULES PYTHON SCRATCH FOLDER [PICTURES]');
  process.exit(2);
}
const isSmall = size === 'small';
const name = path.basename(folder);
const file = end => path.join(folder, end);
const options = consumer => ({isSmall, scratch, picture: pictures && path.join(pictures, `${consumer}.png`)});
const expected = new Expected(file('report.json'));

// Each consumer: its name, whether it is here, and its figures. A new format is a row.
const CONSUMERS = [
  ['go tool pprof', () => runs('go', 'version'), () => pprofFigures(file('peak.pb.gz'), expected.devices)],
  [`DHAT's viewer`, () => fs.existsSync(VIEWER), () => dhatFigures(file('run.dhat.json'), expected.main, options('dhat'))],
  ['speedscope', () => !isSmall, () => speedscopeFigures(modules, file('peak.folded'), expected.main, options('speedscope'))],
  ['the Firefox Profiler', () => !isSmall, () => firefoxFigures(modules, file('run.dhat.json'), expected.main, options('firefox'))],
  ['DuckDB', () => !isSmall, () => duckdbFigures(python, file('runs'), expected.devices)],
];

let failed = false;

function check(text, actual, wanted) {
  const same = actual === wanted;
  console.log(`${same ? 'ok   ' : 'FAIL '} ${name}: ${text}: ${actual}${same ? '' : `, not ${wanted}`}`);
  failed ||= !same;
}

function runs(program, ...options) {
  try { return !!execFileSync(program, options); } catch { return false; }
}

for (const [consumer, isHere, figures] of CONSUMERS) {
  if (!isHere()) {
    if (!isSmall) throw new Error(`${consumer} is not installed`);
    continue;
  }
  for (const {device, total, table, bytes} of await figures()) {
    check(`${consumer}, bytes at the peak of ${device.name}`, total, device.total);
    if (table.largest) check(`${consumer}, bytes of ${table.largest}`, bytes, table.bytes);
  }
}
if (pictures) await pprofPicture(file('peak.pb.gz'), path.join(pictures, 'pprof.png'));
process.exit(failed ? 1 : 0);
