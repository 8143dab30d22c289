// The Firefox Profiler's code, in its command line: its own profiles, and its import of DHAT's files. Its trees have no lines, so
// functions are compared.
import {execFileSync} from 'node:child_process';
import path from 'node:path';

export class FirefoxProfiler {
  #number = 0;

  constructor(modules, scratch) {
    this.program = path.join(modules, '@firefox-devtools/profiler-cli/dist/profiler-cli.js');
    this.environment = {...process.env, PROFILER_CLI_SESSION_DIR: scratch};
  }

  #call(...options) {
    const all = [this.program, ...options, '--session', `memtrace-${this.#number}`];
    return execFileSync('node', all, {encoding: 'utf8', maxBuffer: 1 << 30, env: this.environment, stdio: ['ignore', 'pipe', 'ignore']});
  }

  // Calls `look` with a function that returns a command's JSON.
  async with(file, look) {
    this.#number += 1;
    try {
      // Its server has half a second to start; a busy machine takes longer.
      try { this.#call('load', file); } catch {}
      for (let tries = 0; ; tries++) {
        try { this.#call('profile', 'info'); break; } catch (error) { if (tries === 20) throw error; }
        await new Promise(done => setTimeout(done, 500));
      }
      return look((...options) => JSON.parse(this.#call(...options, '--json')));
    } finally {
      this.#call('stop');
    }
  }

  // Retained memory in the range of the marker `peak`, on the device's thread.
  figures(file, devices) {
    return this.with(file, query => devices.map((device, number) => {
      const thread = ['--thread', `t-${number}`];
      const marker = query('thread', 'markers', ...thread, '--search', 'name:peak', '--list').flatMarkers[0]?.handle;
      if (marker) query('zoom', 'push', marker);
      const strategy = ['--strategy', 'native-retained-allocations', '--max-lines', '10000000'];
      const {friendlyThreadName, regularCallTree: tree} = query('thread', 'samples-top-down', ...thread, ...strategy);
      if (marker) query('zoom', 'clear');
      if (friendlyThreadName !== device.name) throw new Error(`thread ${number} is ${friendlyThreadName}, not ${device.name}`);
      return {device, total: tree.totalSamples, table: device.functions, bytes: device.functions.bytesIn(leaves(tree, []))};
    }));
  }

  // The four tracks of a DHAT file; the third is at the global maximum.
  dhatFigures(file, device) {
    return this.with(file, query => {
      const {regularCallTree: tree} = query('thread', 'samples-top-down', '--thread', 't-2', '--max-lines', '10000000');
      const stacks = leaves(tree, []);
      return [{device, total: tree.totalSamples, table: device.functions, bytes: device.functions.bytesIn(stacks)}];
    });
  }
}

// The bytes of each node itself, with the functions from the allocation outwards.
function leaves(node, outer) {
  const names = [node.name, ...outer];
  const kids = (node.children ?? []).flatMap(kid => leaves(kid, names));
  return node.selfSamples ? [[node.selfSamples, names], ...kids] : kids;
}
