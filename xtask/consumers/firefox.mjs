// The Firefox Profiler's code, in its command line, imports DHAT's files. Its trees have no lines, so functions are compared.
import {execFileSync} from 'node:child_process';
import path from 'node:path';

export async function firefoxFigures(modules, file, device, {scratch}) {
  const program = path.join(modules, '@firefox-devtools/profiler-cli/dist/profiler-cli.js');
  const options = {encoding: 'utf8', maxBuffer: 1 << 30, env: {...process.env, PROFILER_CLI_SESSION_DIR: scratch}, stdio: ['ignore', 'pipe', 'ignore']};
  const call = (...words) => execFileSync('node', [program, ...words, '--session', 'memtrace'], options);
  try {
    // Its server has half a second to start; a busy machine takes longer.
    try { call('load', file); } catch {}
    for (let tries = 0; ; tries++) {
      try { call('profile', 'info'); break; } catch (error) { if (tries === 20) throw error; }
      await new Promise(done => setTimeout(done, 500));
    }
    // A DHAT file has four tracks; the third is at the global maximum.
    const tracks = call('thread', 'samples-top-down', '--thread', 't-2', '--max-lines', '10000000', '--json');
    const {regularCallTree: tree} = JSON.parse(tracks);
    return [{device, total: tree.totalSamples, table: device.functions, bytes: device.functions.bytesIn(leaves(tree, []))}];
  } finally {
    call('stop');
  }
}

// The bytes of each node itself, with the functions from the allocation outwards.
function leaves(node, outer) {
  const names = [node.name, ...outer];
  const kids = (node.children ?? []).flatMap(kid => leaves(kid, names));
  return node.selfSamples ? [[node.selfSamples, names], ...kids] : kids;
}
