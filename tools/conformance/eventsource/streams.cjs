// SPDX-License-Identifier: Apache-2.0
// eventsource, which is what a browser has, on the route that resumes, through a wire that is cut; and
// eventsource-parser on every shape there is.
// serve: --heartbeat-s 1
const net = require('node:net');
const {URL, SAID, LONG, client, version, check, equal, trying, words, cancels, until, metrics, main} = require('claims.cjs');

// The whole text of a resumable stream, which is cut after so many events: its id and what it said.
async function held(n) {
  const res = await fetch(URL + '/v1/streams', {method: 'POST', headers: {'content-type': 'application/json'},
                                                body: JSON.stringify({...SAID, max_tokens: 40, on_disconnect: 'hold'})});
  const reader = res.body.getReader();
  for (let i = 0; i < n; i++) await reader.read();
  await reader.cancel();
  return res.headers.get('x-tokenring-stream');
}

// A proxy that cuts each connection after so many bytes of the answer, the first `cuts` times.
function cutter(bytes, cuts) {
  const server = net.createServer((a) => {
    const b = net.connect(Number(URL.split(':').at(-1)), '127.0.0.1');
    let seen = 0;
    const limit = cuts-- > 0 ? bytes : Infinity;
    a.on('error', () => b.destroy()).on('data', (d) => b.write(d)).on('close', () => b.destroy());
    b.on('error', () => a.destroy()).on('close', () => a.end()).on('data', (d) => {
      a.write(d.subarray(0, Math.max(0, limit - seen)));
      seen += d.length;
      if (seen > limit) a.destroySoon();
    });
  });
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server)));
}

async function source() {
  const {EventSource} = require('eventsource');
  const [text] = await words({max_tokens: 40});
  const proxy = await cutter(2500, 3);
  const id = await held(3);
  const ids = [];
  let said = '', opens = 0, end;
  const es = new EventSource(`http://127.0.0.1:${proxy.address().port}/v1/streams/${id}`);
  es.addEventListener('open', () => opens++);
  es.addEventListener('output_text.delta', (e) => {
    ids.push(e.lastEventId);
    said += JSON.parse(e.data).text;
  });
  for (const name of ['response.completed', 'response.incomplete', 'response.cancelled', 'error']) es.addEventListener(name, (e) => (end = e.data ? e : end));
  check('retry', await until(async () => end), 'it comes to the end', opens, ids.length);
  es.close();
  proxy.close();
  equal('retry', said, text, 'the text, through three cuts');
  check('retry', opens >= 3 && new Set(ids).size === ids.length, 'opened again and again, and nothing twice', opens);
  // It is over: 204, and a browser does not come back.
  let failed = 0;
  const again = new EventSource(`${URL}/v1/streams/${id}`, {fetch: (u, i) => fetch(u, {...i, headers: {...i.headers, 'Last-Event-ID': end.lastEventId}})});
  again.addEventListener('error', () => failed++);
  check('other', await until(async () => again.readyState === EventSource.CLOSED), 'stays away after the last event', failed);
  const none = new EventSource(`${URL}/v1/streams/tr-0-1-0123456789abcdef`);
  check('error', await until(async () => none.readyState === EventSource.CLOSED), 'a stream that is not there');
}

async function parse(path, more, headers = {}) {
  const {createParser} = require('eventsource-parser');
  const events = [];
  const parser = createParser({onEvent: (e) => events.push(e), onError: (e) => { throw e; }});
  const res = await fetch(URL + path, {method: 'POST', headers: {'content-type': 'application/json', ...headers}, body: JSON.stringify({...SAID, ...more})});
  const decoder = new TextDecoder();
  for await (const chunk of res.body) parser.feed(decoder.decode(chunk, {stream: true}));
  return events;
}

async function parser() {
  const [text] = await words({max_tokens: 40});
  const chat = await parse('/v1/chat/completions', {max_tokens: 40, stream: true});
  equal('stream', chat.at(-1).data, '[DONE]', 'chat: the end');
  equal('stream', chat.slice(0, -1).map((e) => JSON.parse(e.data).choices[0].delta.content ?? '').join(''), text, 'chat: the text');
  const native = await parse('/v1/streams', {max_tokens: 40});
  equal('stream', native.map((e) => JSON.parse(e.data).text ?? '').join(''), text, 'native: the text');
  check('stream', native.every((e) => JSON.parse(e.data).type === e.event), 'native: names');
  const cut = await parse('/v1/streams', {max_tokens: LONG, timeout_s: 0.3});
  equal('error', JSON.parse(cut.at(-1).data).reason, 'deadline_exceeded', 'why it ended');
  await cancels('left in the middle', async () => {
    const gone = new AbortController();
    const res = await fetch(URL + '/v1/streams', {method: 'POST', headers: {'content-type': 'application/json'}, signal: gone.signal,
                                                  body: JSON.stringify({...SAID, max_tokens: LONG})});
    await res.body.getReader().read();
    gone.abort();
  });
}

main(async () => {
  client('eventsource', version('eventsource'));
  await trying('retry', 'no exception', source);
  client('eventsource-parser', version('eventsource-parser'));
  await trying('stream', 'no exception', parser);
});
