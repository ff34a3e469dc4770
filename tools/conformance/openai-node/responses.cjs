// SPDX-License-Identifier: Apache-2.0
// openai-node: Responses, in the background too.
const OpenAI = require('openai').OpenAI;
const {V1, MODEL, PROMPT, LONG, client, version, check, equal, trying, raises, words, metrics, until, cancels, full, main} = require('claims.cjs');
const c = new OpenAI({baseURL: V1, apiKey: 'none', maxRetries: 0});
const ASK = {model: MODEL, input: PROMPT, temperature: 0}, DELTA = 'response.output_text.delta';

async function all(events) {
  const out = [];
  for await (const e of events) out.push(e);
  return out;
}

const joined = (events) => events.filter((e) => e.type === DELTA).map((e) => e.delta).join('');

const finished = (id) => until(async () => {
  const r = await c.responses.retrieve(id);
  return r.status !== 'queued' && r.status !== 'in_progress' && r;
});

async function whole() {
  const [text, usage] = await words({max_tokens: 40});
  const {data, request_id} = await c.responses.create({...ASK, max_output_tokens: 40}, {headers: {'X-Request-Id': 'mine'}}).withResponse();
  equal('whole', [data.output_text, data.status, data.incomplete_details], [text, 'incomplete', {reason: 'max_output_tokens'}], 'the text');
  equal('whole', [data.usage.input_tokens, data.usage.output_tokens], [usage.prompt_tokens, usage.completion_tokens], 'usage');
  equal('whole', request_id, 'mine', 'its request id comes back');
  const input = [{role: 'user', content: PROMPT}, ...data.output, {role: 'user', content: 'Go on.'}];
  check('whole', (await c.responses.create({...ASK, input, max_output_tokens: 5})).output_text, 'a second turn with the items of the first');
  equal('whole', (await c.responses.inputTokens.count({model: MODEL, input: PROMPT})).input_tokens, usage.prompt_tokens, 'input_tokens');
}

async function stream() {
  const [text, usage] = await words({max_tokens: 40});
  const events = await all(await c.responses.create({...ASK, max_output_tokens: 40, stream: true}));
  const numbers = events.map((e) => e.sequence_number);
  equal('stream', joined(events), text, 'the text');
  check('stream', numbers[0] === 0 && numbers.every((n, i) => !i || n > numbers[i - 1]), 'their numbers grow from 0', numbers);
  const {type, response} = events.at(-1);
  equal('stream', [type, response.usage.input_tokens, response.usage.output_tokens],
        ['response.incomplete', usage.prompt_tokens, usage.completion_tokens], 'usage in the last one');
  const helper = c.responses.stream({...ASK, max_output_tokens: 1000});
  let seen = '';
  helper.on(DELTA, (e) => { seen += e.delta; });
  const got = await helper.finalResponse();
  equal('stream', [got.status, got.output_text], ['completed', seen], "the helper's object");
}

async function background() {
  const [text] = await words({max_tokens: 100});
  const {id, status} = await c.responses.create({...ASK, max_output_tokens: 100, background: true});
  equal('other', status, 'queued', 'in the background: it is told of at once');
  equal('other', (await finished(id)).output_text, text, 'retrieve: its text');
  const events = await all(await c.responses.retrieve(id, {stream: true}));
  for (const after of [0, 4, 12, events.at(-2).sequence_number]) {
    const rest = await all(await c.responses.retrieve(id, {stream: true, starting_after: after}));
    equal('other', [joined(rest), rest.at(-1).type], [joined(events.filter((e) => e.sequence_number > after)), 'response.incomplete'], `starting_after ${after}: the rest`);
  }
  const items = await all(c.responses.inputItems.list(id, {limit: 1}));
  equal('other', items.map((i) => [i.role, i.content[0].text]), [['user', PROMPT]], 'input_items');
  await c.responses.delete(id);
  await raises('other', OpenAI.NotFoundError, () => c.responses.retrieve(id), 'deleted');
  // The connection of a background stream is lost, and another goes on where it ended.
  const seen = [];
  for await (const e of await c.responses.create({...ASK, max_output_tokens: 100, background: true, stream: true})) if (seen.push(e) === 12) break;
  const [rid, last] = [seen[0].response.id, seen.at(-1).sequence_number];
  const rest = await all(await c.responses.retrieve(rid, {stream: true, starting_after: last}));
  equal('stream', joined(seen) + joined(rest), text, 'left, and gone on with in the middle');
  const helper = c.responses.stream({response_id: rid, starting_after: 4});
  equal('stream', joined(await all(helper)), text, 'the helper from event 4 on');
  await c.responses.delete(rid);
}

async function cancel() {
  await cancels('left in the middle', async () => {
    let n = 0;
    for await (const _ of await c.responses.create({...ASK, max_output_tokens: LONG, stream: true})) if (++n === 8) break;
  });
  await cancels('aborted while it waits for an answer in one piece', async () => {
    const gone = new AbortController();
    setTimeout(() => gone.abort(), 300);
    await raises('cancel', OpenAI.APIUserAbortError, () => c.responses.create({...ASK, max_output_tokens: LONG}, {signal: gone.signal}), 'it is told so');
  });
  await cancels('the helper is aborted', async () => {
    const helper = c.responses.stream({...ASK, max_output_tokens: LONG});
    let n = 0;
    helper.on(DELTA, () => { if (++n === 5) helper.abort(); });
    await helper.finalResponse().catch(() => {});
  });
  await cancels("a time limit of the client's own", () =>
    raises('cancel', OpenAI.APIConnectionTimeoutError, () => c.responses.create({...ASK, max_output_tokens: LONG}, {timeout: 400}), 'it times out'));
  const {id} = await cancels('responses.cancel', async () => {
    const got = await c.responses.create({...ASK, max_output_tokens: LONG, background: true, ignore_eos: true});
    await until(async () => (await metrics()).requests_running === 1);
    equal('cancel', (await c.responses.cancel(got.id)).status, 'cancelled', 'the object says so');
    return got;
  }, 'cancel', 'cancelled');
  equal('cancel', (await c.responses.cancel(id)).status, 'cancelled', 'again');
  const e = await raises('cancel', OpenAI.APIError, async () => all(await c.responses.retrieve(id, {stream: true})), 'its events end with an error');
  equal('cancel', e?.code, 'cancelled', 'which says why');
}

async function error() {
  let e = await raises('error', OpenAI.BadRequestError, () => c.responses.create({...ASK, max_output_tokens: -1}), 'a bad value');
  equal('error', [e?.param, e?.code, e?.status], ['max_output_tokens', 'invalid_value', 400], 'its field');
  e = await raises('error', OpenAI.BadRequestError, () => c.responses.create({...ASK, top_p: 9, stream: true}), 'before a stream');
  equal('error', e?.param, 'top_p', 'its field');
  e = await raises('error', OpenAI.BadRequestError, () => c.responses.create({...ASK, previous_response_id: 'resp_1'}), 'what is not stored: refused, not dropped');
  equal('error', e?.param, 'previous_response_id', 'by name');
  await raises('error', OpenAI.NotFoundError, () => c.responses.create({...ASK, model: 'other'}), 'another model');
  await raises('error', OpenAI.NotFoundError, () => c.responses.retrieve('resp_none'), 'a response that is not there');
  const late = {...ASK, max_output_tokens: LONG, timeout_s: 0.3};
  e = await raises('error', OpenAI.APIError, async () => all(await c.responses.create({...late, stream: true})), 'a stream that the server cannot finish');
  equal('error', e?.code, 'deadline_exceeded', 'why');
  await raises('error', OpenAI.APIError, () => c.responses.create(late), 'an answer in one piece that it cannot finish');
  const {id} = await c.responses.create({...late, background: true});
  const got = await finished(id);
  equal('error', [got.status, got.error?.code, got.error?.tokenring?.code], ['failed', 'server_error', 'deadline_exceeded'], 'one in the background that it cannot finish');
}

async function retry() {
  const ask = {...ASK, max_output_tokens: 3}, [text] = await words({max_tokens: 3});
  await full(async () => {
    const e = await raises('retry', OpenAI.InternalServerError, () => c.responses.create(ask), 'no place, without retries');
    equal('retry', [e?.status, Number(e?.headers.get('retry-after')) > 0], [503, true], '503 with a Retry-After');
  });
  await full(async () => equal('retry', (await c.responses.create(ask, {maxRetries: 4})).output_text, text, 'tries again until there is one'));
  await full(async () =>
    equal('retry', joined(await all(await c.responses.create({...ask, stream: true}, {maxRetries: 4}))), text, 'the same with a stream'));
}

main(async () => {
  client('openai-node (responses)', version('openai'));
  for (const fn of [whole, stream, background, cancel, error, retry]) await trying(fn.name, 'no exception', fn);
});
