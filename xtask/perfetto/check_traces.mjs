// Compares the traces of a recording, as the trace processor reads them, with its report: `cargo xtask main-job`.
import fs from 'node:fs';
import {TraceProcessor} from './trace_processor.mjs';

const [engine, reportFile, timelineFile, layoutFile] = process.argv.slice(2);
if (!timelineFile) {
  console.error('usage: node check_traces.mjs ENGINE REPORT.json TIMELINE.json [LAYOUT.json]');
  process.exit(2);
}
const report = JSON.parse(fs.readFileSync(reportFile));
let failed = false;

function check(text, actual, expected) {
  const same = JSON.stringify(actual) === JSON.stringify(expected);
  console.log(`${same ? 'ok   ' : 'FAIL '} ${text}: ${JSON.stringify(actual)}${same ? '' : `, expected ${JSON.stringify(expected)}`}`);
  failed ||= !same;
}

const one = (processor, sql) => Object.values(processor.query(sql)[0] ?? {x: null})[0];
const arg = (slice, key) => `extract_arg(${slice}.arg_set_id, 'args.${key}')`;

async function load(file) {
  const began = Date.now();
  const processor = await TraceProcessor.load(engine, file);
  const memory = Math.round(process.resourceUsage().maxRSS / 1024);
  console.log(`      ${file}: ${fs.statSync(file).size} bytes, loaded in ${Date.now() - began} ms with at most ${memory} MiB`);
  check('import errors', processor.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0"), []);
  const {traceEvents: events, otherData} = JSON.parse(fs.readFileSync(file));
  check('slices in the trace processor and in the file',
    one(processor, 'select count(*) from slice'), events.filter(event => 'BXi'.includes(event.ph)).length);
  check('slices without an end in the file', events.filter(event => event.ph === 'B').length - events.filter(event => event.ph === 'E').length, 0);
  check('slices without an end', one(processor, 'select count(*) from slice where dur < 0'), 0);
  return {processor, leftOut: otherData.left_out ?? ''};
}

async function timeline() {
  const {processor: trace, leftOut} = await load(timelineFile);
  // Left-out allocations of all devices; each also leaves out its free.
  const without = Number(leftOut.match(/([\d,]+) allocations/)?.[1].replaceAll(',', '') ?? 0);
  if (without) {
    const all = report.devices.reduce((sum, device) => sum + device.records, 0);
    check(`memory events, with ${without} allocations left out`, one(trace, "select count(*) from slice where name = '[memory]'"), all - 2 * without);
  }
  for (const device of report.devices) {
    const kind = device.device === 'cpu' ? 0 : 1;
    const memory = `from slice s where name = '[memory]' and ${arg('s', 'Device Type')} = ${kind}` +
      (kind ? ` and ${arg('s', 'Device Id')} = ${device.device.split(':')[1]}` : '');
    const total = arg('s', 'Total Allocated'), name = `${device.device} allocated bytes`;
    const curve = `from counter c join counter_track t on t.id = c.track_id where t.name = '${name}'`;
    if (!without) check(`${device.device}: memory events`, one(trace, `select count(*) ${memory}`), device.records);
    check(`${device.device}: bytes at the end`, one(trace, `select ${total} ${memory} order by ts desc, s.id desc limit 1`),
      device.records ? device.stats['allocated_bytes.all.current'] : null);
    check(`${device.device}: the curve's end`, one(trace, `select value ${curve} order by ts desc, c.id desc limit 1`),
      device.stats['allocated_bytes.all.current']);
    if (device.records && device.records_overwritten === 0) {
      check(`${device.device}: the largest total`, one(trace, `select max(${total}) ${memory}`), device.peak.bytes);
      check(`${device.device}: the curve's highest point`, one(trace, `select max(value) ${curve}`), device.peak.bytes);
      check(`${device.device}: time of the highest point`, one(trace, `select min(ts) ${curve} and value = ${device.peak.bytes}`), device.peak.time_ns);
      const changes = one(trace, `select sum(${arg('s', 'Bytes')}) ${memory}`);
      const stats = device.stats;
      check(`${device.device}: the sum of all changes`, changes, stats['allocated_bytes.all.allocated'] - stats['allocated_bytes.all.freed']);
    }
    check(`${device.device}: mark of the peak`, trace.query(`select ts from slice where name like '${device.device} peak %'`), [{ts: device.peak.time_ns}]);
  }
  scopes(trace);
}

// Scopes entered during the recording. A scope that ends out of order has several slices.
function scopes(trace) {
  const rows = report.devices.flatMap(device => device.scopes).filter(scope => scope.calls > 0);
  const calls = new Map(rows.map(row => [row.path, row.calls]));
  const slices = trace.query(`select ${arg('s', 'scope')} as path, count(*) as n from slice s where category = 'user_annotation' group by path`);
  const known = report.devices.every(device => device.records_overwritten === 0);
  if (known) check('scopes', slices.map(row => row.path).sort(), [...calls.keys()].sort());
  check('scopes with fewer slices than calls', known ? slices.filter(row => row.n < calls.get(row.path)) : [], []);
}

async function layout() {
  const {processor: trace} = await load(layoutFile);
  check('nested blocks', one(trace, 'select count(*) from slice where depth > 0'), 0);
  check('overlapping blocks', one(trace, `select count(*) from (select ts + dur as end,
    lead(ts) over (partition by track_id order by ts, dur) as next from slice) where next < end`), 0);
  const rows = trace.query(`select p.name as space, t.name as row, sum(s.dur) / 1000 as bytes, count(*) as blocks from slice s
    join thread_track k on k.id = s.track_id join thread t using (utid) join process p using (upid) group by utid`);
  check('bytes and extents that differ', one(trace, `select count(*) from slice s where dur != ${arg('s', 'bytes')} * 1000`), 0);
  for (const device of report.devices.filter(device => device.peak.blocks > 0)) {
    const here = rows.filter(row => row.space === `${device.device} memory`);
    const peaks = here.filter(row => /\(peak\)|the peak/.test(row.row));
    check(`${device.device}: ${here.length} rows; bytes and blocks of the peak's`, peaks[0] && [peaks[0].bytes, peaks[0].blocks],
      [device.peak.bytes - device.peak.before_recording_bytes, device.peak.blocks]);
  }
}

await timeline();
if (layoutFile) await layout();
process.exit(failed ? 1 : 0);
