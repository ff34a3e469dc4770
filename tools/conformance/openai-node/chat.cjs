// SPDX-License-Identifier: Apache-2.0
// openai-node: chat completions and completions.
const OpenAI = require('openai').OpenAI;
const {V1, MODEL, PROMPT, SAID, LONG, client, version, check, equal, trying, raises, post, words, cancels, full, main, sleep} = require('claims.cjs');
const c = new OpenAI({baseURL: V1, apiKey: 'none', maxRetries: 0});
const COMPLETION = {model: MODEL, prompt: PROMPT, max_tokens: 9, temperature: 0};

async function joined(parts) {
  let text = '';
  for await (const p of parts) text += p.choices[0]?.delta.content ?? '';
  return text;
}

const completed = async () => (await (await post('/v1/completions', COMPLETION)).json()).choices[0].text;

async function whole() {
  const [text, usage] = await words({max_tokens: 40});
  const {data, response, request_id} = await c.chat.completions.create({...SAID, max_tokens: 40}, {headers: {'X-Request-Id': 'mine'}}).withResponse();
  equal('whole', data.choices[0].message.content, text, 'the text');
  equal('whole', data.usage.completion_tokens, usage.completion_tokens, 'usage');
  equal('whole', [response.headers.get('x-request-id'), request_id], ['mine', 'mine'], 'its request id comes back');
  equal('whole', (await c.chat.completions.create({...SAID, max_tokens: 5, n: 2})).choices.map((x) => x.index), [0, 1], 'two choices');
  equal('whole', (await c.completions.create(COMPLETION)).choices[0].text, await completed(), 'completions');
  const ids = [];
  for await (const m of c.models.list()) ids.push(m.id);
  equal('whole', ids, [MODEL], 'models');
  equal('whole', (await c.models.retrieve(MODEL)).id, MODEL, 'a model');
}

async function stream() {
  const [text, usage] = await words({max_tokens: 40});
  const parts = [];
  for await (const p of await c.chat.completions.create({...SAID, max_tokens: 40, stream: true, stream_options: {include_usage: true}})) parts.push(p);
  equal('stream', await joined(parts), text, 'the text');
  equal('stream', [parts.at(-1).usage.completion_tokens, parts.at(-1).choices], [usage.completion_tokens, []], 'usage in the last one, without choices');
  equal('stream', new Set(parts.map((p) => p.id + p.created)).size, 1, 'one id, one time');
  const stop = [...text].slice(10, 13).join('');
  const got = (await c.chat.completions.stream({...SAID, max_tokens: 40, stop: [stop]}).finalChatCompletion()).choices[0];
  equal('stream', [got.message.content, got.finish_reason], [(await words({max_tokens: 40, stop: [stop]}))[0], 'stop'], "the helper's text");
  let all = '';
  for await (const p of await c.completions.create({...COMPLETION, stream: true})) all += p.choices[0].text;
  equal('stream', all, await completed(), 'completions');
}

async function cancel() {
  await cancels('left in the middle', async () => {
    let n = 0;
    for await (const _ of await c.chat.completions.create({...SAID, max_tokens: LONG, stream: true})) if (++n === 5) break;
  });
  await cancels('aborted while it streams', async () => {
    const st = await c.chat.completions.create({...SAID, max_tokens: LONG, stream: true});
    setTimeout(() => st.controller.abort(), 200);
    await joined(st).catch(() => {});
  });
  await cancels('aborted while it waits for an answer in one piece', async () => {
    const gone = new AbortController();
    setTimeout(() => gone.abort(), 300);
    await raises('cancel', OpenAI.APIUserAbortError, () => c.chat.completions.create({...SAID, max_tokens: LONG}, {signal: gone.signal}), 'it is told so');
  });
  await cancels("a time limit of the client's own", () =>
    raises('cancel', OpenAI.APIConnectionTimeoutError, () => c.chat.completions.create({...SAID, max_tokens: LONG}, {timeout: 500}), 'it times out'));
}

async function error() {
  let e = await raises('error', OpenAI.BadRequestError, () => c.chat.completions.create({...SAID, max_tokens: -1}), 'a bad value');
  equal('error', [e?.status, e?.param, e?.code], [400, 'max_tokens', 'invalid_value'], 'its field');
  e = await raises('error', OpenAI.BadRequestError, () => c.chat.completions.create({...SAID, temperature: 9, stream: true}), 'before a stream');
  equal('error', e?.param, 'temperature', 'its field');
  await raises('error', OpenAI.NotFoundError, () => c.chat.completions.create({...SAID, model: 'other'}), 'another model');
  e = await raises('error', OpenAI.APIError, async () => joined(await c.chat.completions.create({...SAID, max_tokens: LONG, stream: true, timeout_s: 0.3})),
                   'a stream that the server cannot finish');
  equal('error', e?.code, 'deadline_exceeded', 'why');
  await raises('error', OpenAI.APIError, () => c.chat.completions.create({...SAID, max_tokens: LONG, timeout_s: 0.3}), 'an answer in one piece that it cannot finish');
}

async function retry() {
  await full(async () => {
    const e = await raises('retry', OpenAI.InternalServerError, () => c.chat.completions.create({...SAID, max_tokens: 3}), 'no place, without retries');
    equal('retry', [e?.status, Number(e?.headers.get('retry-after')) > 0], [503, true], '503 with a Retry-After');
  });
  await full(async () => {
    const got = await c.chat.completions.create({...SAID, max_tokens: 3}, {maxRetries: 4});
    equal('retry', got.choices[0].message.content, (await words({max_tokens: 3}))[0], 'tries again until there is one');
  });
  await full(async () => {
    const got = await joined(await c.chat.completions.create({...SAID, max_tokens: 3, stream: true}, {maxRetries: 4}));
    equal('retry', got, (await words({max_tokens: 3}))[0], 'the same with a stream');
  });
}

// A call that is forced, in one piece and by the helpers that collect a stream and run the tool.
async function tools() {
  const asked = [];
  const f = {name: 'f', strict: true, parameters: {type: 'object', properties: {a: {type: 'string', enum: ['x', 'y']}}, required: ['a'], additionalProperties: false}};
  const forced = {...SAID, max_tokens: 300, tools: [{type: 'function', function: f}], tool_choice: 'required', parallel_tool_calls: false};
  const {message, finish_reason} = (await c.chat.completions.create(forced)).choices[0];
  const call = message.tool_calls?.[0];
  equal('whole', [finish_reason, message.content, message.tool_calls?.length, call?.function.name], ['tool_calls', null, 1, 'f'], 'a call alone');
  const st = c.chat.completions.stream(forced);
  let pieces = 0, done = '';
  st.on('tool_calls.function.arguments.delta', () => pieces++).on('tool_calls.function.arguments.done', (e) => (done = e.arguments));
  const again = (await st.finalChatCompletion()).choices[0];
  equal('stream', [again.finish_reason, again.message.tool_calls?.[0]?.function.arguments, done], ['tool_calls', call?.function.arguments, call?.function.arguments], 'the same call');
  check('stream', pieces > 1 && ['x', 'y'].includes(JSON.parse(done).a), 'arguments in pieces, which obey the schema', pieces, done);
  // It runs the tool once if it is named.
  const run = {...forced, tools: [{type: 'function', function: {...f, parse: JSON.parse, function: ({a}) => (asked.push(a), `${a} it is`)}}],
               tool_choice: {type: 'function', function: {name: 'f'}}};
  for (const stream of [false, true]) {
    const runner = c.chat.completions.runTools({...run, stream});
    await runner.done();
    equal(stream ? 'stream' : 'whole', runner.messages.at(-1), {role: 'tool', tool_call_id: runner.messages.at(-2).tool_calls?.[0].id, content: `${asked.at(-1)} it is`},
          'run by the helper');
  }
  const history = [...SAID.messages, message, {role: 'tool', tool_call_id: call?.id, content: 'It is y.'}];
  const after = {...SAID, messages: history, tools: forced.tools, max_tokens: 40};
  const answer = (await c.chat.completions.create(after)).choices[0].message.content;
  equal('whole', answer, (await words({messages: history, tools: forced.tools, max_tokens: 40}))[0], 'an answer to what it gave');
  equal('stream', await joined(await c.chat.completions.create({...after, stream: true})), answer, 'the same answer');
}

main(async () => {
  client('openai-node', version('openai'));
  for (const fn of [whole, stream, cancel, error, retry, tools]) await trying(fn.name, 'no exception', fn);
});
