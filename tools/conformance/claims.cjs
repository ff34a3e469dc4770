// SPDX-License-Identifier: Apache-2.0
// What the Node programs of tools/conformance say and look at; see claims.py, which this is the twin of.
const fs = require('node:fs');
const net = require('node:net');

const URL_ = process.env.TOKENRING_URL, V1 = URL_ + '/v1', MODEL = 'smollm2', PROMPT = 'Tell me about rings.', LONG = 100000;
const SAID = {model: MODEL, messages: [{role: 'user', content: PROMPT}], temperature: 0};
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const say = (x) => process.stdout.write(JSON.stringify(x) + '\n');

const client = (name, version) => say({client: name, version});

// Of a package of the family.
const version = (name) => JSON.parse(fs.readFileSync(`${process.env.PLACE}/node_modules/${name}/package.json`)).version;

function check(area, good, claim, ...seen) {
  const text = (s) => (s instanceof Error ? String(s.stack) : typeof s === 'string' ? s : JSON.stringify(s) ?? String(s)).slice(0, 700);
  say({area, claim, good: Boolean(good), seen: seen.map(text)});
  return Boolean(good);
}

const equal = (area, got, want, claim) => check(area, JSON.stringify(got) === JSON.stringify(want), claim, 'got', got, 'want', want);

async function trying(area, claim, fn) {
  try {
    return await fn();
  } catch (e) {
    check(area, false, claim, e);
  }
}

// What fn throws, which must be a `kind`; undefined otherwise.
async function raises(area, kind, fn, claim) {
  let out;
  try {
    out = await fn();
  } catch (e) {
    check(area, e instanceof kind, claim, e);
    return e;
  }
  check(area, false, claim, 'threw nothing, gave', out);
}

async function post(path, body) {
  return fetch(URL_ + path, {method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify(body)});
}

// [text, usage] of a plain chat that is not streamed.
async function words(more = {}) {
  const t = await (await post('/v1/chat/completions', {...SAID, ...more})).json();
  return [t.choices[0].message.content, t.usage];
}

async function metrics() {
  const out = {};
  for (const line of (await (await fetch(URL_ + '/metrics')).text()).split('\n')) {
    const m = /^tokenring_(\S+) (\S+)$/.exec(line);
    if (m) out[m[1]] = Number(m[2]);
  }
  return out;
}

async function until(fn, limit = 60000) {
  for (const end = Date.now() + limit; ; await sleep(20)) {
    const v = await fn();
    if (v || Date.now() > end) return v;
  }
}

const refused = async () => (await metrics())['requests_refused_total{reason="overloaded"}'] ?? 0;
const ended = async (reason) => (await metrics())[`streams_ended_total{reason="${reason}"}`] ?? 0;

// What fn does must end one request so, and leave nothing running.
async function cancels(claim, fn, area = 'cancel', reason = 'client_disconnected') {
  const before = await ended(reason);
  const out = await fn();
  check(area, await until(async () => (await ended(reason)) === before + 1), `${claim}: ended as ${reason}`, await metrics());
  check(area, await until(async () => (await metrics()).requests_running === 0), `${claim}: nothing runs any more`);
  return out;
}

// The server has no place until it has refused somebody; then those who hold them leave.
async function full(fn) {
  const body = JSON.stringify({...SAID, max_tokens: LONG, ignore_eos: true, stream: true});
  const held = [];
  for (let i = 0; i < 6; i++) {
    const s = net.connect(Number(URL_.split(':').at(-1)), '127.0.0.1');
    s.on('error', () => {});
    s.write(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    await new Promise((done) => s.once('data', done)); // admitted
    held.push(s);
  }
  const before = await refused();
  let over = false;
  const left = until(async () => over || (await refused()) > before).then(() => held.forEach((s) => s.destroy()));
  try {
    return await fn();
  } finally {
    over = true;
    await left;
    await until(async () => (await metrics()).requests_running === 0);
  }
}

// Runs the program; an exception that nobody caught is its end.
const main = (fn) => fn().then(() => process.exit(0), (e) => {
  console.error(e);
  process.exit(1);
});

module.exports = {URL: URL_, V1, MODEL, PROMPT, SAID, LONG, client, version, check, equal, trying, raises, post, words, metrics, until, ended, cancels, full, main, sleep};
