// speedscope's page in Chromium: the sums are those of the profiles that the page holds. Its schema is checked first.
import {pathToFileURL} from 'node:url';
import {createRequire} from 'node:module';
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
    for (let node = leaf; node && !node.isRoot(); node = node.parent) places.push(node.frame.file + ':' + node.frame.line);
    return [profile.weights[number], places];
  })])`;

export function conforms(modules, file) {
  const require = createRequire(path.join(modules, 'x.js'));
  const Ajv = require('ajv');
  const schema = JSON.parse(fs.readFileSync(path.join(modules, 'speedscope/dist/release/file-format-schema.json')));
  const validate = new Ajv({strict: false}).compile(schema);
  return validate(JSON.parse(fs.readFileSync(file))) || JSON.stringify(validate.errors.slice(0, 3));
}

export async function speedscopeFigures(modules, file, devices, {scratch, picture}) {
  const script = path.join(scratch, 'speedscope-load.js');
  const content = fs.readFileSync(file).toString('base64');
  fs.writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(path.basename(file))}, ${JSON.stringify(content)})`);
  const viewer = pathToFileURL(path.join(modules, 'speedscope/dist/release/index.html')).href;
  const page = await Browser.open(`${viewer}#localProfilePath=${script.slice(1)}`);
  try {
    await page.until(`!!${PROFILES}`);
    const profiles = await page.evaluate(FIGURES);
    if (picture) await leftHeavy(page, picture);
    return devices.map(device => {
      const [, total, stacks] = profiles.find(([name]) => name.startsWith(`${device.name} at the peak`));
      return {device, total, table: device.lines, bytes: device.lines.bytesIn(stacks)};
    });
  } finally {
    await page.close();
  }
}

async function leftHeavy(page, picture) {
  await page.evaluate(`[...document.querySelectorAll('div')].find(({children, innerText}) => children.length < 2 && /Left Heavy$/.test(innerText)).click()`);
  await new Promise(done => setTimeout(done, 2000));
  await page.picture(picture);
}
