// SPDX-License-Identifier: Apache-2.0
// anthropic (Node): Messages.
const Anthropic = require('@anthropic-ai/sdk').Anthropic;
const {URL, MODEL, SAID, LONG, client, version, check, equal, trying, raises, words, cancels, full, main} = require('claims.cjs');
const c = new Anthropic({baseURL: URL, apiKey: 'none', maxRetries: 0});
const TOOL = {name: 'f', input_schema: {type: 'object', properties: {a: {enum: ['x', 'y']}}, required: ['a']}};

const ask = (max_tokens = 40, more = {}) => ({...SAID, max_tokens, ...more});
const texts = (message) => message.content.map((b) => b.text).join('');
const counts = (u) => [u.input_tokens + u.cache_read_input_tokens, u.output_tokens];
const wanted = (u) => [u.prompt_tokens, u.completion_tokens];

async function joined(events) {
  let text = '';
  for await (const e of events) if (e.type === 'content_block_delta') text += e.delta.text;
  return text;
}

async function whole() {
  const [text, usage] = await words({max_tokens: 40});
  const {data, response, request_id} = await c.messages.create(ask(), {headers: {'X-Request-Id': 'mine'}}).withResponse();
  equal('whole', [texts(data), data.stop_reason, data.stop_sequence], [text, 'max_tokens', null], 'the text');
  equal('whole', counts(data.usage), wanted(usage), 'usage');
  equal('whole', [response.headers.get('request-id'), request_id], ['mine', 'mine'], 'its request id comes back');
  const stop = [...text].slice(10, 13).join('');
  const got = await c.messages.create(ask(40, {stop_sequences: ['\0', stop]}));
  equal('whole', [texts(got), got.stop_reason, got.stop_sequence], [(await words({max_tokens: 40, stop: [stop]}))[0], 'stop_sequence', stop], 'a stop sequence');
  equal('whole', (await c.messages.countTokens({model: MODEL, messages: SAID.messages})).input_tokens, usage.prompt_tokens, 'counted before');
  const said = [{role: 'system', content: 'Be brief.'}, ...SAID.messages, {role: 'assistant', content: 'Yes?'}, ...SAID.messages];
  const brief = await c.messages.create(ask(9, {system: [{type: 'text', text: 'Be brief.'}], messages: said.slice(1)}));
  equal('whole', texts(brief), (await words({max_tokens: 9, messages: said}))[0], 'a system prompt and a history');
  const ids = [];
  for await (const m of c.models.list()) ids.push(m.id);
  equal('whole', ids, [MODEL], 'models');
  equal('whole', (await c.models.retrieve(MODEL)).display_name, MODEL, 'a model');
}

async function stream() {
  const [text, usage] = await words({max_tokens: 40});
  let came = '';
  let message = await c.messages.stream(ask()).on('text', (t) => (came += t)).finalMessage();
  equal('stream', [came, texts(message), message.stop_reason], [text, text, 'max_tokens'], 'the text');
  equal('stream', counts(message.usage), wanted(usage), 'usage');
  const kinds = [];
  for await (const e of await c.messages.create({...ask(), stream: true})) kinds.push(e.type);
  const deltas = kinds.filter((k) => k === 'content_block_delta');
  equal('stream', kinds, ['message_start', 'content_block_start', ...deltas, 'content_block_stop', 'message_delta', 'message_stop'], 'the order of events');
  const stop = [...text].slice(10, 13).join('');
  message = await c.messages.stream(ask(40, {stop_sequences: [stop]})).finalMessage();
  const got = [texts(message), message.stop_reason, message.stop_sequence];
  equal('stream', got, [(await words({max_tokens: 40, stop: [stop]}))[0], 'stop_sequence', stop], 'a stop sequence');
  message = await c.messages.stream(ask(400)).finalMessage();
  equal('stream', [texts(message), message.stop_reason], [(await words({max_tokens: 400}))[0], 'end_turn'], 'an answer to its own end');
  message = await c.messages.stream(ask(0)).finalMessage();
  equal('stream', [message.content, message.stop_reason], [[], 'max_tokens'], 'no token at all');
}

async function cancel() {
  const long = ask(LONG, {ignore_eos: true});
  await cancels('left in the middle', async () => {
    let n = 0;
    for await (const _ of await c.messages.create({...long, stream: true})) if (++n === 5) break;
  });
  await cancels('aborted while it streams', async () => {
    const st = c.messages.stream(long);
    st.on('text', () => st.abort());
    await raises('cancel', Anthropic.APIUserAbortError, () => st.finalMessage(), 'it is told so');
  });
  await cancels('aborted while it waits for an answer in one piece', async () => {
    const gone = new AbortController();
    setTimeout(() => gone.abort(), 300);
    await raises('cancel', Anthropic.APIUserAbortError, () => c.messages.create(ask(4000, {ignore_eos: true}), {signal: gone.signal}), 'it is told so');
  });
  await cancels("a time limit of the client's own", () =>
    raises('cancel', Anthropic.APIConnectionTimeoutError, () => c.messages.create(ask(4000, {ignore_eos: true}), {timeout: 500}), 'it times out'));
}

async function error() {
  for (const [claim, body, kind, want] of [
    ['a bad value', ask(-1), Anthropic.BadRequestError, [400, 'invalid_request_error', 'invalid_value', 'max_tokens']],
    ['another model', ask(3, {model: 'other'}), Anthropic.NotFoundError, [404, 'not_found_error', 'model_not_found', 'model']],
    ['a choice without tools', ask(3, {tool_choice: {type: 'any'}}), Anthropic.BadRequestError, [400, 'invalid_request_error', 'invalid_value', 'tool_choice']],
  ])
    for (const stream of [false, true]) {
      const e = await raises('error', kind, () => c.messages.create({...body, stream}), `${claim}, stream=${stream}`);
      const {type, message, details} = e?.error?.error ?? {};
      equal('error', [e?.status, type, details?.error_code, details?.param], want, `${claim}: what it says`);
      check('error', e?.requestID && message.startsWith(want[3]), `${claim}: request id, and the field in the message`, e);
    }
  const limited = ask(4000, {ignore_eos: true, timeout_s: 0.3});
  let e = await raises('error', Anthropic.APIError, async () => joined(await c.messages.create({...limited, stream: true})), 'a stream that the server cannot finish');
  equal('error', [e?.type, e?.error?.error?.details?.error_code], ['timeout_error', 'deadline_exceeded'], 'why');
  e = await raises('error', Anthropic.APIError, () => c.messages.create(limited), 'an answer in one piece that it cannot finish');
  equal('error', [e?.status, e?.type], [504, 'timeout_error'], 'why');
}

async function retry() {
  await full(async () => {
    const e = await raises('retry', Anthropic.APIError, () => c.messages.create(ask(3)), 'no place, without retries');
    equal('retry', [e?.status, e?.type, Number(e?.headers.get('retry-after')) > 0], [503, 'overloaded_error', true], '503 with a Retry-After');
  });
  await full(async () => {
    equal('retry', texts(await c.messages.create(ask(3), {maxRetries: 4})), (await words({max_tokens: 3}))[0], 'tries again until there is one');
  });
  await full(async () => {
    const got = await joined(await c.messages.create({...ask(3), stream: true}, {maxRetries: 4}));
    equal('retry', got, (await words({max_tokens: 3}))[0], 'the same with a stream');
  });
}

// A call that is forced, in one piece and by the helper that collects a stream; its result, and the answer to that.
async function tools() {
  const forced = ask(300, {tools: [TOOL], tool_choice: {type: 'tool', name: 'f', disable_parallel_tool_use: true}});
  const got = await c.messages.create(forced);
  equal('whole', [got.stop_reason, got.content.map((b) => b.type)], ['tool_use', ['tool_use']], 'a call alone');
  let pieces = '';
  const message = await c.messages.stream(forced).on('inputJson', (piece) => (pieces += piece)).finalMessage();
  equal('stream', [message.stop_reason, message.content[0]?.name, message.content[0]?.input], ['tool_use', got.content[0]?.name, got.content[0]?.input], 'the same call');
  equal('stream', JSON.parse(pieces), got.content[0]?.input, 'the helper sees its input come');
  check('stream', ['x', 'y'].includes(message.content[0]?.input.a), 'an input that obeys the schema', message);
  const result = {role: 'user', content: [{type: 'tool_result', tool_use_id: got.content[0]?.id, content: 'It is y.'}]};
  const after = ask(40, {tools: [TOOL], tool_choice: {type: 'none'}, messages: [...SAID.messages, {role: 'assistant', content: got.content}, result]});
  const answer = await c.messages.create(after);
  check('whole', texts(answer) && answer.stop_reason !== 'tool_use', 'an answer to its result', answer);
  equal('stream', texts(await c.messages.stream(after).finalMessage()), texts(answer), 'the same answer');
}

main(async () => {
  client('anthropic-node', version('@anthropic-ai/sdk'));
  for (const fn of [whole, stream, cancel, error, retry, tools]) await trying(fn.name, 'no exception', fn);
});
