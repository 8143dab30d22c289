// Runs the example server: requests side by side, a profile fetched by `go tool pprof`, then Ctrl-C, or SIGKILL while requests run.
import {spawn} from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import {Expected} from './report.mjs';
import {pprofFigures} from './pprof.mjs';

const [end, scratch, ...command] = process.argv.slice(2);
if (!command.length) {
  console.error('usage: node server.mjs SIGINT|SIGKILL SCRATCH COMMAND…');
  process.exit(2);
}
const server = spawn(command[0], command.slice(1), {stdio: ['ignore', 'pipe', 'inherit']});
const ended = new Promise(done => server.on('exit', (code, signal) => done(signal ?? code)));
const address = await new Promise((done, failed) => {
  server.stdout.once('data', line => done(String(line).trim()));
  ended.then(status => failed(new Error(`the server ended with ${status}`)));
});
const get = async route => {
  const response = await fetch(address + route);
  if (!response.ok) throw new Error(`${route}: ${response.status} ${await response.text()}`);
  return await response.text();
};
const requests = tokens => Promise.all(tokens.map(tokens => get(`/generate/${tokens}`)));
let failed = false;

await requests([200, 150, 100]);
if (end === 'SIGINT') {
  const milliseconds = [];
  for (let call = 0; call < 3; call++) {
    const began = performance.now();
    await fetch(address + '/debug/pprof/heap').then(response => response.arrayBuffer());
    milliseconds.push(Math.round(performance.now() - began));
  }
  fs.writeFileSync(path.join(scratch, 'report.json'), await get('/report'));
  // Answers may raise the heap's peak if the model is on a GPU.
  const {main} = new Expected(path.join(scratch, 'report.json'));
  for (const {device, total, table, bytes} of pprofFigures(address + '/debug/pprof/heap', [main])) {
    for (const [what, actual, wanted] of [[`bytes at the peak of ${device.name}`, total, device.total], [`bytes of ${table.largest}`, bytes, table.bytes]]) {
      console.log(`${actual === wanted ? 'ok   ' : 'FAIL '} server: go tool pprof http://…, ${what}: ${actual}${actual === wanted ? '' : `, not ${wanted}`}`);
      failed ||= actual !== wanted;
    }
  }
  console.log(`      a profile takes ${milliseconds.join(', then ')} ms`);
} else {
  requests([400, 400]).catch(() => {});
  await new Promise(done => setTimeout(done, 500));
}
server.kill(end);
const status = await ended;
if (end === 'SIGINT' && status !== 0) throw new Error(`the server ended with ${status}`);
process.exit(failed ? 1 : 0);
