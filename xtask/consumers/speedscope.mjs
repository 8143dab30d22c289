// speedscope's page in Chromium opens folded stacks: the sums are those of the profile that the page holds.
import {pathToFileURL} from 'node:url';
import fs from 'node:fs';
import path from 'node:path';
import {Browser} from './browser.mjs';

// The page's profiles are properties of its components.
const PROFILES = `
  (() => {
    const found = vnode => vnode && typeof vnode === 'object' && (vnode.props?.profileGroup ?? [vnode.__k].flat().reduce((group, kid) => group ?? found(kid), undefined));
    const root = [...document.querySelectorAll('*')].find(element => element.__k);
    return found(root?.__k)?.profiles.map(({profile}) => profile);
  })()`;

const FIGURES = `
  ${PROFILES}.map(profile => [profile.getName(), profile.getTotalWeight(), profile.samples.map((leaf, number) => {
    const places = [];
    for (let node = leaf; node && !node.isRoot(); node = node.parent) places.push(node.frame.name);
    return [profile.weights[number], places];
  })])`;

export async function speedscopeFigures(modules, file, device, {scratch, picture}) {
  const script = path.join(scratch, 'speedscope-load.js');
  const content = fs.readFileSync(file).toString('base64');
  fs.writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(path.basename(file))}, ${JSON.stringify(content)})`);
  const viewer = pathToFileURL(path.join(modules, 'speedscope/dist/release/index.html')).href;
  const page = await Browser.open(`${viewer}#localProfilePath=${script.slice(1)}`);
  try {
    await page.until(`!!${PROFILES}`);
    const profiles = await page.evaluate(FIGURES);
    if (picture) await leftHeavy(page, picture);
    const [[, total, stacks]] = profiles;
    // A frame is `main src/main.rs:7`.
    const lines = stacks.map(([bytes, names]) => [bytes, names.map(name => name.match(/ (\S+:\d+)$/)?.[1])]);
    return [{device, total, table: device.lines, bytes: device.lines.bytesIn(lines)}];
  } finally {
    await page.close();
  }
}

async function leftHeavy(page, picture) {
  await page.evaluate(`[...document.querySelectorAll('div')].find(({children, innerText}) => children.length < 2 && /Left Heavy$/.test(innerText)).click()`);
  await new Promise(done => setTimeout(done, 2000));
  await page.picture(picture);
}
