// Valgrind's viewer of DHAT's files, in Chromium or, without a page, in Node: the sums are those of its tree.
import {pathToFileURL} from 'node:url';
import fs from 'node:fs';
import vm from 'node:vm';
import {Browser} from './browser.mjs';

export const VIEWER = process.env.DH_VIEW ?? '/usr/libexec/valgrind/dh_view.html';

// The leaves of the tree, with their frames from the allocation outwards.
const LEAVES = `
  (function leaves(node, inner) {
    const frames = [...inner, ...node._frames];
    return node._kids ? node._kids.flatMap(kid => leaves(kid, frames)) : [[node._atTGmaxBytes, frames.map(frame => gData.ftbl[frame])]];
  })(gRoot, [])`;

async function inPage(data, picture) {
  const page = await Browser.open(pathToFileURL(VIEWER).href);
  try {
    await page.evaluate(`
      gFilename = 'run.dhat.json';
      gData = ${data};
      buildTree();
      gSelect.selectedIndex = gSelectData.findIndex(({cmpField}) => cmpField === '_atTGmaxBytes');
      displayTree()`);
    if (picture) await page.picture(picture);
    return await page.evaluate(`[gRoot._atTGmaxBytes, ${LEAVES}]`);
  } finally {
    await page.close();
  }
}

function inNode(data) {
  const script = fs.readFileSync(VIEWER.replace('.html', '.js'), 'utf8');
  const tree = `gSelect = {selectedIndex: 0, childNodes: gSelectData.map(() => ({}))}; gData = ${data}; buildTree(); [gRoot._atTGmaxBytes, ${LEAVES}]`;
  return vm.runInNewContext(`${script};${tree}`, {document: {}});
}

export async function dhatFigures(file, device, {isSmall, picture}) {
  const data = fs.readFileSync(file, 'utf8');
  const [total, leaves] = isSmall ? inNode(data) : await inPage(data, picture);
  const line = frame => frame.match(/\((.*:\d+)\)$/)?.[1];
  const stacks = leaves.map(([bytes, frames]) => [bytes, [...frames].map(line)]);
  return [{device, total, table: device.lines, bytes: device.lines.bytesIn(stacks)}];
}
