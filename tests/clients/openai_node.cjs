// SPDX-License-Identifier: Apache-2.0
// openai-node against the server at BASE: prints one JSON object, what each scenario gave.
const OpenAI = require('openai').OpenAI;

const LONG = 'a '.repeat(7000);
const FORCED = {model: 'smollm2', temperature: 0, logit_bias: {369: 100}};
const c = new OpenAI({baseURL: process.argv[2], apiKey: 'none', maxRetries: 0});
const ask = (text = 'x') => ({...FORCED, messages: [{role: 'user', content: text}]});

async function chat(more) {
  const out = [];
  for await (const part of await c.chat.completions.create({stream: true, ...more}))
    for (const choice of part.choices) out[choice.index] = (out[choice.index] ?? '') + (choice.delta.content ?? '');
  return out.length === 1 ? out[0] : out;
}

async function completions() {
  let text = '';
  for await (const part of await c.completions.create({...FORCED, prompt: 'x', max_tokens: 20, stream: true}))
    text += part.choices[0].text;
  return text;
}

async function usage() {
  const parts = [];
  const more = {max_tokens: 3, stream: true, stream_options: {include_usage: true}};
  for await (const part of await c.chat.completions.create({...ask('Hi'), ...more})) parts.push(part);
  const u = parts.at(-1).usage;
  return [u.prompt_tokens, u.completion_tokens, new Set(parts.map((p) => p.id)).size];
}

async function helper() {
  const got = await c.chat.completions.stream({...ask(), stop: ['bab'], max_tokens: 20}).finalChatCompletion();
  return [got.choices[0].message.content, got.choices[0].finish_reason];
}

async function refusal(more) {
  try {
    await chat({...ask(), ...more});
  } catch (e) {
    if (e instanceof OpenAI.BadRequestError) return [e.status, e.param];
    throw e;
  }
}

// The end of a stream that the server cannot finish is an exception, no answer.
async function cut() {
  try {
    return await chat({...ask(), max_tokens: 8000, timeout_s: 0.3});
  } catch (e) {
    if (e instanceof OpenAI.APIError) return e.code;
    throw e;
  }
}

async function left() {
  let text = '', n = 0;
  for await (const part of await c.chat.completions.create({...ask(), max_tokens: 8000, stream: true})) {
    text += part.choices[0].delta.content ?? '';
    if (++n === 4) break;
  }
  return text;
}

async function main() {
  const tool = {type: 'function', function: {name: 'f', parameters: {type: 'object', properties: {}}}};
  console.log(JSON.stringify({
    queued: await chat({...ask(), max_tokens: 20}), prefill: await chat({...ask(LONG), max_tokens: 20}),
    two: await chat({...ask(), max_tokens: 5, n: 2}),
    whole: (await c.chat.completions.create({...ask(), max_tokens: 20})).choices[0].message.content,
    completions: await completions(), empty: await chat({...ask(), logit_bias: {2: 100}}),
    stop: await chat({...ask(), stop: ['bab'], max_tokens: 20}), usage: await usage(), helper: await helper(),
    refused: await refusal({max_tokens: -1}), tools: await refusal({tools: [tool], tool_choice: 'required'}),
    cut: await cut(), left: await left(),
  }));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
