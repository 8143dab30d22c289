// DuckDB on the Parquet tables: the sums are its answers.
import {execFileSync} from 'node:child_process';
import path from 'node:path';
import {lineOf} from './report.mjs';

const SCRIPT = `
import duckdb, json, sys
blocks, stacks = (f"'{sys.argv[1]}/*/{table}.parquet'" for table in ("blocks", "stacks"))
rows = duckdb.sql(f"select device, coalesce(line, name, ''), sum(peak_bytes)::bigint from {blocks} left join {stacks} using (run, stack) group by all")
print(json.dumps(rows.fetchall()))
`;

export function duckdbFigures(python, runs, devices) {
  const rows = JSON.parse(execFileSync(python, ['-c', SCRIPT, path.resolve(runs)], {encoding: 'utf8', maxBuffer: 1 << 30}));
  return devices.map(device => {
    const of = rows.filter(([name]) => name === device.name);
    const total = of.reduce((sum, [, , bytes]) => sum + bytes, 0);
    return {device, total, table: device.lines, bytes: device.lines.bytesIn(of.map(([, line, bytes]) => [bytes, [lineOf(line)]]))};
  });
}
