// SPDX-License-Identifier: Apache-2.0
// @ai-sdk/openai-compatible with the `ai` package against the server at BASE: prints one JSON object, what
// each scenario gave.  It knows no logit_bias, so a wrapper of fetch adds it.
const {createOpenAICompatible} = require('@ai-sdk/openai-compatible');
const {generateText, streamText} = require('ai');

const LONG = 'a '.repeat(7000);
const forced = (url, init) =>
  fetch(url, {...init, body: JSON.stringify({...JSON.parse(init.body), temperature: 0, logit_bias: {369: 100}})});
const provider = createOpenAICompatible({name: 'tokenring', baseURL: process.argv[2], apiKey: 'none', fetch: forced,
                                         includeUsage: true});
const model = provider.chatModel('smollm2');

// What went wrong comes as a part of the stream, not as an exception.
async function stream(prompt, maxOutputTokens, more = {}) {
  const out = {text: '', error: null};
  const got = streamText({model, prompt, maxOutputTokens, maxRetries: 0, onError() {}, ...more});
  for await (const part of got.fullStream) {
    if (part.type === 'text-delta') out.text += part.text;
    if (part.type === 'error') out.error = part.error;
    if (part.type === 'finish') [out.usage, out.reason] = [part.totalUsage, part.finishReason];
  }
  return out;
}

async function left() {
  const gone = new AbortController();
  let text = '';
  const got = streamText({model, prompt: 'x', maxOutputTokens: 8000, maxRetries: 0, abortSignal: gone.signal, onError() {}});
  for await (const part of got.fullStream) {
    if (part.type !== 'text-delta') continue;
    if (text.length < 6) text += part.text;
    if (text.length === 6) gone.abort();
  }
  return text;
}

async function main() {
  const queued = await stream('x', 20);
  if (queued.error) throw queued.error;
  const usage = await stream('Hi', 3);
  const cut = await stream('x', 8000, {headers: {'X-Request-Timeout': '0.3'}});
  const refused = await stream('x', 20, {topP: 5});
  let completions = '';
  for await (const part of streamText({model: provider.completionModel('smollm2'), prompt: 'x', maxOutputTokens: 20}).textStream)
    completions += part;
  console.log(JSON.stringify({
    queued: queued.text, prefill: (await stream(LONG, 20)).text,
    whole: (await generateText({model, prompt: 'x', maxOutputTokens: 20, maxRetries: 0})).text, completions,
    stop: (await stream('x', 20, {stopSequences: ['bab']})).text,
    usage: [usage.usage.inputTokens, usage.usage.outputTokens], reason: usage.reason,
    refused: [refused.error.statusCode, JSON.parse(refused.error.responseBody).error.param], cut: cut.error && (cut.error.code ?? String(cut.error.message ?? cut.error)),
    left: await left(),
  }));
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
