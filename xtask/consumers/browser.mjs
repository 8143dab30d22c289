// Headless Chromium over the DevTools protocol on a pipe: opens a page, evaluates code in it, takes pictures.
import {spawn} from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader',
  '--hide-scrollbars', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
  '--disable-sync', '--allow-file-access-from-files', '--remote-debugging-pipe'];

export class Browser {
  #calls = new Map();
  #number = 0;
  #folder = fs.mkdtempSync(path.join(os.tmpdir(), 'memtrace-browser-'));

  static async open(url, {width = 1280, height = 640} = {}) {
    const browser = new Browser(width, height);
    const {targetId} = await browser.#call('Target.createTarget', {url: 'about:blank'});
    ({sessionId: browser.session} = await browser.#call('Target.attachToTarget', {targetId, flatten: true}));
    await browser.#call('Page.enable');
    await browser.#call('Page.navigate', {url});
    await browser.until('document.readyState === "complete"');
    return browser;
  }

  constructor(width, height) {
    this.process = spawn(process.env.CHROMIUM ?? 'chromium', [...FLAGS, `--window-size=${width},${height}`, `--user-data-dir=${this.#folder}`],
      {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
    let received = '';
    this.process.stdio[4].setEncoding('utf8').on('data', text => {
      const messages = (received + text).split('\0');
      received = messages.pop();
      messages.forEach(message => this.#receive(JSON.parse(message)));
    });
    this.process.on('error', error => this.#fail(error));
    this.process.on('exit', () => this.#fail(new Error('Chromium has ended')));
  }

  #receive({id, result, error}) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error) call?.reject(new Error(error.message)); else call?.resolve(result);
  }

  #fail(error) {
    this.#calls.forEach(call => call.reject(error));
    this.#calls.clear();
  }

  #call(method, params = {}) {
    const id = ++this.#number;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, {resolve, reject});
      this.process.stdio[3].write(JSON.stringify({id, method, params, sessionId: this.session}) + '\0');
    });
  }

  // The value of an expression in the page.
  async evaluate(expression) {
    const options = {expression, awaitPromise: true, returnByValue: true, replMode: true};
    const {result, exceptionDetails} = await this.#call('Runtime.evaluate', options);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  async until(condition, milliseconds = 60000) {
    for (const end = Date.now() + milliseconds; Date.now() < end; await new Promise(done => setTimeout(done, 50))) {
      if (await this.evaluate(condition)) return;
    }
    throw new Error(`the page never reached: ${condition}`);
  }

  async picture(file) {
    const {data} = await this.#call('Page.captureScreenshot', {format: 'png'});
    fs.writeFileSync(file, Buffer.from(data, 'base64'));
  }

  async close() {
    const ended = new Promise(done => this.process.once('exit', done));
    this.#call('Browser.close').catch(() => {});
    await ended;
    fs.rmSync(this.#folder, {recursive: true, force: true, maxRetries: 10, retryDelay: 100});
  }
}
