// `go tool pprof`: the totals are its sums by the label `device`, the stacks its listing of samples.
import {execFileSync, spawn} from 'node:child_process';
import os from 'node:os';
import {Browser} from './browser.mjs';

function pprof(file, ...options) {
  const all = ['tool', 'pprof', '-sample_index=inuse_space', '-unit=b', ...options, file];
  // Where it keeps what it fetches from a server.
  const env = {...process.env, PPROF_TMPDIR: os.tmpdir()};
  return execFileSync('go', all, {encoding: 'utf8', maxBuffer: 1 << 30, env, stdio: ['ignore', 'pipe', 'ignore']});
}

// The bytes of each device, from the table of labels.
function totals(file) {
  const table = pprof(file, '-tags').split(/^ *(?=\w+: Total )/m).find(table => table.startsWith('device: ')) ?? '';
  return new Map([...table.matchAll(/^ *([\d.]+)B \([^)]*\): (.*)$/gm)].map(([, bytes, device]) => [device, Number(bytes)]));
}

// The samples of a device as [bytes, lines], innermost first. Rows of dashes separate them.
function stacks(samples, device) {
  const of = samples.filter(sample => sample.match(/^ *device: +(.*)$/m)?.[1] === device);
  return of.map(sample => {
    const rows = sample.split('\n').filter(row => row.trim() && !/^ *(device|scope|operator|category): /.test(row));
    const lines = rows.map(row => row.replace(/ \(inline\)$/, '').match(/([^ ]+:\d+)$/)?.[1]);
    return [Number(rows[0]?.match(/^ *(\d+)B /)?.[1] ?? 0), lines];
  });
}

// The flame graph of the web page.
export async function pprofPicture(file, picture, port = 6161) {
  const options = ['tool', 'pprof', '-sample_index=inuse_space', '-no_browser', `-http=127.0.0.1:${port}`, file];
  const server = spawn('go', options, {stdio: 'ignore', detached: true});
  try {
    const address = `http://127.0.0.1:${port}/ui/flamegraph`;
    for (let tries = 0; tries < 100 && !await fetch(address).catch(() => null); tries++) await new Promise(done => setTimeout(done, 100));
    const page = await Browser.open(address);
    try {
      await page.until(`document.querySelectorAll('.d3-flame-graph rect').length > 5`);
      // The page fades the graph in.
      await new Promise(done => setTimeout(done, 2000));
      await page.picture(picture);
    } finally {
      await page.close();
    }
  } finally {
    process.kill(-server.pid);
  }
}

// `file` may also be the address of a server.
export function pprofFigures(file, devices) {
  const [bytes, samples] = [totals(file), pprof(file, '-traces', '-lines').split(/^-+\+-+$/m).slice(1)];
  const figures = device => ({
    device, total: bytes.get(device.name) ?? 0, table: device.lines, bytes: device.lines.bytesIn(stacks(samples, device.name)),
  });
  return devices.map(figures);
}
