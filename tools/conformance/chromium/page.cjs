// SPDX-License-Identifier: Apache-2.0
// The built-in page in Chromium, as a person uses it; and what the browser has of its own: EventSource, and
// fetch with abort.  PICTURES=FOLDER keeps pictures of the page.
// serve: --heartbeat-s 1
const fs = require('node:fs');
const net = require('node:net');
const {chromium} = require('playwright-core');
const {URL, SAID, LONG, client, version, check, equal, trying, words, cancels, until, metrics, ended, main} = require('claims.cjs');

const ASK = SAID.messages[0].content, PORT = Number(URL.split(':').at(-1));
// Six seconds: it is cut long before its end, however slow the machine.
const TALE = {max_tokens: 600, ignore_eos: true};
let browser;

// A wire that can be cut: the connections through it, and whether new ones are let through.
function wire() {
  const open = new Set();
  const server = net.createServer((a) => {
    if (server.dead) return a.destroy();
    const b = net.connect(PORT, '127.0.0.1');
    open.add(a);
    a.on('error', () => {}).on('close', () => { open.delete(a); b.destroy(); }).pipe(b);
    b.on('error', () => {}).on('close', () => a.destroy()).pipe(a);
  });
  server.cut = () => open.forEach((a) => a.resetAndDestroy());
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server)));
}

// A page of its own, with what was wrong in it, and the addresses it asked.
async function visit(how = {}, url = URL) {
  const context = await browser.newContext({viewport: {width: 1280, height: 800}, ...how});
  const page = await context.newPage();
  page.wrong = [];
  page.asked = new Set();
  page.on('pageerror', (e) => page.wrong.push(String(e)));
  page.on('console', (m) => { if (m.type() === 'error' && !/Failed to load resource/.test(m.text())) page.wrong.push(m.text()); });
  page.on('request', (r) => { if (!r.url().startsWith('data:')) page.asked.add(new globalThis.URL(r.url()).origin); });
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector('#model').textContent !== '');
  return page;
}
const option = async (page, values) => {
  await page.evaluate((v) => {
    for (const [k, x] of Object.entries(v)) if (typeof x === 'boolean') document.getElementById(k).checked = x; else document.getElementById(k).value = x;
    document.getElementById('options').dispatchEvent(new Event('change'));
  }, values);
};
const say = async (page, text = ASK) => { await page.fill('#text', text); await page.click('#send'); };
const answer = (page) => page.locator('article.answer').last().locator('.text').innerText();
const arrived = (page, n) => page.waitForFunction((k) => Number(document.querySelector('#m-n').textContent) >= k, n);
const state = (page, name) => page.waitForSelector(`#state[data-state=${name}]`, {timeout: 60000});
const endline = (page) => page.locator('article.answer').last().locator('.end').innerText();
async function picture(page, name) {
  if (process.env.PICTURES) await page.screenshot({path: `${process.env.PICTURES}/${name}.png`});
}

async function chat() {
  const [text, usage] = await words({max_tokens: 40});
  const page = await visit({colorScheme: 'light'});
  await picture(page, 'empty-light');
  await option(page, {max: '40', temp: '0'});
  await say(page);
  await state(page, 'incomplete');
  equal('stream', await answer(page), text, 'page: the text');
  check('stream', (await endline(page)).includes(`${usage.completion_tokens} tokens · prompt ${usage.prompt_tokens}`), 'page: usage', await endline(page), usage);
  equal('stream', await page.locator('#m-n').innerText(), String(usage.completion_tokens), 'page: tokens counted as they come');
  check('stream', / ms|s/.test(await page.locator('#m-ttft').innerText()), 'page: time to the first token');
  check('stream', await page.evaluate(() => { const c = document.querySelector('#chart'); return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v); }), 'page: the chart is drawn');
  const types = await page.locator('#events .type').allInnerTexts();
  check('stream', types[0] === 'response.started' && types.at(-1) === 'response.incomplete' && types.at(-2) === 'usage', 'page: events in order', types);
  await page.locator('#events button').last().click();
  check('stream', (await page.locator('#event').innerText()).includes('"finish_reason": "length"'), 'page: an event in full');
  await page.selectOption('#filter', 'text');
  check('stream', !(await page.locator('#events .type').allInnerTexts()).includes('output_text.delta'), 'page: events without text');
  await say(page, '<img src=x onerror=alert(1)><b>bold</b>');
  await state(page, 'incomplete');
  equal('other', await page.locator('#log img, #log b:not(.end b)').count(), 0, 'page: what is said is text');
  equal('other', await page.locator('article.user .text').last().innerText(), '<img src=x onerror=alert(1)><b>bold</b>', 'page: and shown as it is');
  equal('other', [...page.asked], [URL], 'page: nothing from elsewhere');
  equal('other', page.wrong, [], 'page: no error, nothing that its policy refuses');
  await picture(page, 'light');
  await page.context().close();
}

async function stops() {
  const page = await visit({colorScheme: 'dark'});
  await option(page, {max: String(LONG), more: '{"ignore_eos": true}'});
  await cancels('page, stop', async () => {
    await say(page);
    await arrived(page, 10);
    await picture(page, 'dark');
    check('stream', (await page.locator('article.live .text').innerText()) !== '', 'page: text is there before the end');
    await page.click('#stop');
    await state(page, 'cancelled');
  }, 'cancel', 'cancelled');
  check('cancel', /^Stopped · \d+ tokens/.test(await endline(page)), 'page, stop: with the usage', await endline(page));
  await option(page, {hold: false});
  await cancels('page, stop by abort', async () => {
    await say(page);
    await arrived(page, 10);
    await page.click('#stop');
    await state(page, 'cancelled');
  });
  await cancels('page, closed', async () => {
    await say(page);
    await arrived(page, 10);
    await page.close();
  });
  await page.context().close();
}

// The engine has four places: the page is the fifth, and the second in the queue is told so.
async function waits() {
  const post = {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({...SAID, max_tokens: LONG, ignore_eos: true})};
  const held = [], page = await visit();
  for (let i = 0; i < 5; i++) {
    const stop = new AbortController();
    held.push(stop);
    await fetch(URL + '/v1/streams', {...post, signal: stop.signal});
  }
  await option(page, {max: '5'});
  await say(page);
  await state(page, 'queued');
  check('stream', await until(async () => /^Waiting: 1 before this one/.test(await page.locator('#says').innerText())), 'page: its place in the queue', await page.locator('#says').innerText());
  await picture(page, 'queued');
  await cancels('page, stop in the queue', async () => { await page.click('#stop'); await state(page, 'cancelled'); held.forEach((h) => h.abort()); }, 'cancel', 'cancelled');
  await page.context().close();
}

async function reload() {
  const [text] = await words(TALE);
  const page = await visit();
  await option(page, {max: String(TALE.max_tokens), temp: '0', more: '{"ignore_eos": true}'});
  await say(page);
  await arrived(page, 10);
  const resumed = page.waitForRequest(/streams\/tr-/);
  await page.reload();
  check('retry', /:\d+$/.test((await resumed).headers()['last-event-id']), 'page, reloaded: it goes on after the last event it has');
  await page.waitForSelector('#state:is([data-state=completed],[data-state=incomplete])');
  equal('retry', await answer(page), text, 'page, reloaded: all of the text, nothing twice');
  equal('retry', await page.locator('article').count(), 2, 'page, reloaded: the conversation is there');
  equal('retry', page.wrong, [], 'page, reloaded: no error');
  await page.context().close();
}

async function lost() {
  const [text] = await words(TALE);
  const proxy = await wire(), page = await visit({}, `http://127.0.0.1:${proxy.address().port}`);
  await option(page, {max: String(TALE.max_tokens), temp: '0', more: '{"ignore_eos": true}'});
  await say(page);
  await arrived(page, 10);
  proxy.dead = true;
  proxy.cut();
  await state(page, 'lost');
  await picture(page, 'lost');
  proxy.dead = false;
  await arrived(page, 30);
  proxy.cut(); // and once more
  await page.waitForSelector('#state:is([data-state=completed],[data-state=incomplete])');
  equal('retry', await answer(page), text, 'page, cut: resumed, all of the text, nothing twice');
  await option(page, {hold: false, max: String(LONG)});
  await say(page);
  await arrived(page, 5);
  proxy.cut();
  await state(page, 'error');
  check('error', (await endline(page)).startsWith('The connection was lost'), 'page, cut without a hold: it is said', await endline(page));
  await page.context().close();
  proxy.close();
}

async function errors() {
  const page = await visit();
  await option(page, {temp: '7'});
  await say(page);
  await state(page, 'error');
  check('error', (await endline(page)).includes('temperature'), 'page: what the server refuses is said', await endline(page));
  await option(page, {temp: '', more: '{'});
  await say(page);
  check('error', (await page.locator('#says').innerText()).includes('not JSON'), 'page: fields that are no JSON');
  await page.route('**/v1/streams', (r) => r.fulfill({status: 401, contentType: 'application/json', body: '{"error":{"message":"A key is needed."}}'}));
  await option(page, {more: ''});
  await say(page);
  await page.waitForSelector('#keybox:not([hidden])');
  await page.unroute('**/v1/streams');
  const sent = page.waitForRequest((r) => r.url().endsWith('/v1/streams'));
  await page.fill('#key', 'secret');
  await page.press('#key', 'Enter');
  await option(page, {max: '3'});
  await say(page);
  equal('error', (await sent).headers().authorization, 'Bearer secret', 'page: a key that was asked for is sent');
  await state(page, 'incomplete');
  await page.context().close();
}

// What the engine of a test does not do by itself, from a server that is made up.
async function shapes() {
  const id = 'tr-0-0-0123456789abcdef', page = await visit();
  const all = [
    {type: 'response.started', stream_id: id, schema: 'tokenring.events.v1', model: 'x', created: 1, request_id: 'r', choices: 1},
    {type: 'reasoning.delta', index: 0, text: 'Let me see.', tokens: 3},
    {type: 'tool_call.delta', index: 0, call: 0, call_id: 'c1', name: 'weather', arguments: '{"city":', tokens: 2},
    {type: 'tool_call.delta', index: 0, call: 0, arguments: '"Oslo"}', tokens: 2},
    {type: 'tool_call.done', index: 0, call: 0, tokens: 1},
    {type: 'something.new', index: 0},
    {type: 'usage', usage: {prompt_tokens: 9, completion_tokens: 8, total_tokens: 17, prompt_tokens_details: {cached_tokens: 4}}},
    {type: 'response.completed', finish_reason: 'tool_calls'},
  ].map((e, i) => ({...e, id: `${id}:${i}`}));
  let body;
  await page.route('**/v1/streams', (r) => {
    body = r.request().postDataJSON();
    return r.fulfill({status: 200, contentType: 'application/x-ndjson', headers: {'X-Tokenring-Stream': id}, body: [{type: 'response.queued', position: 3}, {type: 'response.prefill', done: 1, total: 9}, ...all].map((e) => JSON.stringify(e) + '\n').join('')});
  });
  await say(page);
  await state(page, 'completed');
  equal('stream', await page.locator('.thought .text').innerText(), 'Let me see.', 'page: thoughts');
  equal('stream', await page.locator('.call').innerText(), 'Calls weather\n{"city":"Oslo"}', 'page: a call');
  check('stream', (await endline(page)).includes('prompt 9 (4 cached)'), 'page: cached tokens', await endline(page));
  equal('stream', await page.getAttribute('#text', 'placeholder'), 'Result of weather', 'page: it asks for the result of the call');
  await picture(page, 'tools');
  await say(page, 'rain');
  await until(() => body.messages.length === 3);
  equal('stream', body.messages.map((m) => [m.role, m.tool_call_id ?? m.tool_calls?.[0].id ?? '']), [['user', ''], ['assistant', 'c1'], ['tool', 'c1']], 'page: and sends it');
  check('stream', body.messages.every((m) => !('end' in m || 'held' in m || 'stream' in m || 'last' in m)), 'page: of its own notes it sends none', body.messages);
  equal('stream', page.wrong, [], 'page: an event it does not know does no harm');
  await page.context().close();
}

async function keyboard() {
  const page = await visit({reducedMotion: 'reduce'});
  await option(page, {max: String(LONG), more: '{"ignore_eos": true}'});
  await page.keyboard.press('Tab');
  equal('other', await page.evaluate(() => document.activeElement.className), 'unseen skip', 'keyboard: first comes the way to the message');
  await page.keyboard.press('Enter');
  await page.keyboard.type(ASK);
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('Twice.');
  equal('other', await page.inputValue('#text'), ASK + '\nTwice.', 'keyboard: a new line');
  await cancels('keyboard: sent with Enter, stopped with Escape', async () => {
    await page.keyboard.press('Enter');
    await arrived(page, 5);
    await page.keyboard.press('Escape');
    await state(page, 'cancelled');
  }, 'cancel', 'cancelled');
  const reached = new Set();
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.parentElement?.id || document.activeElement.tagName));
  }
  for (const id of ['fresh', 'log', 'text', 'send', 'options', 'filter', 'events']) check('other', reached.has(id), `keyboard: ${id} is reached`, [...reached]);
  check('other', (await page.locator('#spoken').innerText()) !== '' , 'ear: what was said is told in sentences');
  const names = await page.evaluate(() => [...document.querySelectorAll('button, input, select, textarea, canvas')].filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).map((e) => e.id));
  equal('other', names, [], 'ear: everything has a name');
  equal('other', await page.evaluate(() => getComputedStyle(document.body).animationName), 'none', 'nothing moves for who wants no motion');
  await page.context().close();
}

async function narrow() {
  for (const [name, how] of [['phone', {viewport: {width: 375, height: 667}, isMobile: true, hasTouch: true, deviceScaleFactor: 2}], ['small', {viewport: {width: 320, height: 568}}]]) {
    const page = await visit({...how, colorScheme: 'dark'});
    await option(page, {max: '60', temp: '0'});
    await say(page);
    await state(page, 'incomplete');
    await picture(page, name);
    equal('other', await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name}: nothing to the side`);
    const box = await page.locator('#send').boundingBox();
    check('other', box && box.y + box.height <= how.viewport.height && box.height >= 40, `${name}: the button can be touched`, box);
    await page.click('#toggle');
    check('other', await page.locator('#chart').isVisible() && !(await page.locator('#log').isVisible()), `${name}: the timing has the screen`);
    await picture(page, name + '-timing');
    await page.click('#options summary').catch(() => {});
    await page.context().close();
  }
}

async function native() {
  const [text] = await words(TALE);
  const proxy = await wire(), page = await visit({}, `http://127.0.0.1:${proxy.address().port}`);
  const last = [];
  page.on('request', async (r) => { if (/streams\/tr-/.test(r.url())) last.push((await r.allHeaders())['last-event-id'] ?? ''); });
  const reading = page.evaluate(async (body) => {
    const post = await fetch('/v1/streams', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
    const id = post.headers.get('X-Tokenring-Stream'), out = {text: '', ids: [], opens: 0};
    await post.body.cancel();
    return new Promise((done) => {
      const s = new EventSource('/v1/streams/' + id);
      window.seen = out;
      s.onopen = () => out.opens++;
      s.addEventListener('output_text.delta', (e) => { out.text += JSON.parse(e.data).text; out.ids.push(e.lastEventId); });
      for (const t of ['response.completed', 'response.incomplete', 'response.cancelled']) s.addEventListener(t, (e) => { s.close(); done({...out, end: e.type}); });
    });
  }, {...SAID, ...TALE, on_disconnect: 'hold'});
  await page.waitForFunction(() => window.seen?.ids.length >= 10);
  proxy.cut();
  const out = await reading;
  equal('retry', out.text, text, 'EventSource, cut: all of the text, nothing twice');
  equal('retry', out.opens, 2, 'EventSource, cut: it connected again');
  check('retry', new Set(out.ids).size === out.ids.length, 'EventSource: no id twice');
  check('retry', last.length === 2 && out.ids.includes(last[1]), 'EventSource: with Last-Event-ID', last);
  await cancels('fetch, abort', () => page.evaluate(async (body) => {
    const stop = new AbortController();
    const res = await fetch('/v1/streams', {method: 'POST', signal: stop.signal, headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)});
    const reader = res.body.getReader();
    for (let i = 0; i < 5; i++) await reader.read();
    stop.abort();
  }, {...SAID, max_tokens: LONG, ignore_eos: true}));
  await page.context().close();
  proxy.close();
}

main(async () => {
  browser = await chromium.launch({executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu']});
  client('chromium (the built-in page)', browser.version());
  for (const part of [chat, stops, waits, reload, lost, errors, shapes, keyboard, narrow, native]) await trying('other', part.name, part);
  await browser.close();
});
