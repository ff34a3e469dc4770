// SPDX-License-Identifier: Apache-2.0
// The built-in page of a server that asks for a key, and a WebSocket that gives one, in Chromium.
// serve: KEYS
const {chromium} = require('playwright-core');
const {URL, MODEL, client, equal, check, trying, main} = require('claims.cjs');

const KEY = process.env.TOKENRING_KEY, LIMITED = process.env.TOKENRING_KEY_LIMITED;
const NAMES = ['tokenring.events.v1', 'tokenring.key.'];
let browser;

async function visit() {
  const page = await (await browser.newContext()).newPage();
  page.wrong = [];
  page.on('pageerror', (e) => page.wrong.push(String(e)));
  await page.goto(URL);
  await page.waitForFunction(() => document.querySelector('#model').textContent !== '');
  return page;
}
const asked = (page) => page.waitForSelector('#keybox:not([hidden])');
const state = (page, name) => page.waitForSelector(`#state[data-state=${name}]`, {timeout: 60000});
async function give(page, key) {
  await page.fill('#key', key);
  const answer = page.waitForResponse((r) => r.url().endsWith('/v1/models'));
  await page.press('#key', 'Enter');
  return (await answer).status();
}
async function say(page) {
  await page.fill('#more', '{"max_tokens": 3, "ignore_eos": true}');
  await page.evaluate(() => document.getElementById('options').dispatchEvent(new Event('change')));
  await page.fill('#text', 'Tell me about rings.');
  await page.click('#send');
}

async function typed() {
  const page = await visit();
  await asked(page);
  equal('error', await give(page, 'tr-wrong'), 401, 'page: a wrong key is refused');
  await asked(page);
  equal('error', await give(page, KEY), 200, 'page: the right one is taken');
  equal('other', await page.locator('#keybox').isHidden(), true, 'page: and asked for no more');
  await page.evaluate(() => { document.querySelector('#options details, details#options, details')?.setAttribute('open', ''); });
  await say(page);
  await state(page, 'incomplete');
  check('stream', (await page.locator('article.answer .text').last().innerText()).length > 0, 'page: it streams with the key');
  await page.reload();
  await page.waitForFunction(() => document.querySelector('#model').textContent !== '');
  equal('other', await page.locator('#keybox').isHidden(), true, 'page: the tab keeps it');
  equal('other', page.wrong, [], 'page: nothing went wrong');
  await page.context().close();
}

async function limited() {
  const page = await visit();
  await asked(page);
  equal('error', await give(page, LIMITED), 200, 'page: a key with limits');
  await page.evaluate(() => { document.querySelectorAll('details').forEach((d) => d.setAttribute('open', '')); });
  for (let i = 0; i < 2; i++) {
    await say(page);
    await page.waitForFunction((n) => document.querySelectorAll('article.answer .end').length > n, i);
    await state(page, 'incomplete');
  }
  await say(page);
  await state(page, 'error');
  const said = await page.locator('article.answer').last().locator('.end').innerText();
  check('error', said.includes('in a minute: at most 2.'), 'page: a limit is told in the server\'s words', said);
  await page.context().close();
}

// What a page of one's own can do: there is no field to set.
async function socket() {
  const page = await visit();
  const open = (protocols) => page.evaluate(([url, names, model]) => new Promise((done) => {
    const ws = new WebSocket(url.replace('http', 'ws') + '/v1/ws', names);
    ws.onerror = () => done(['refused']);
    ws.onopen = () => ws.send(JSON.stringify({type: 'start', stream: 'a', request: {model, prompt: 'x', max_tokens: 2, ignore_eos: true}}));
    ws.onmessage = (m) => { const e = JSON.parse(m.data); if (e.type === 'response.incomplete') done([ws.protocol, e.finish_reason]); };
  }), [URL, protocols, MODEL]);
  equal('stream', await open([NAMES[0], NAMES[1] + KEY]), [NAMES[0], 'length'], 'WebSocket: the key comes as a subprotocol, and is not answered');
  equal('error', await open([NAMES[0], NAMES[1] + 'no']), ['refused'], 'WebSocket: a wrong one is refused');
  equal('error', await open([NAMES[0]]), ['refused'], 'WebSocket: none is refused');
  await page.context().close();
}

main(async () => {
  browser = await chromium.launch({executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
  client('chromium (the built-in page)', browser.version());
  for (const part of [typed, limited, socket]) await trying('other', part.name, part);
  await browser.close();
});
