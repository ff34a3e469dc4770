// SPDX-License-Identifier: Apache-2.0
// Vercel's ai with its providers openai-compatible, openai (chat and responses), open-responses and anthropic, which
// have the strictest schema of a chunk.
const {createAnthropic} = require('@ai-sdk/anthropic');
const {createOpenAI} = require('@ai-sdk/openai');
const {createOpenResponses} = require('@ai-sdk/open-responses');
const {createOpenAICompatible} = require('@ai-sdk/openai-compatible');
const ai = require('ai');
const {generateText, jsonSchema, stepCountIs, streamText, tool} = ai;
const {V1, MODEL, PROMPT, LONG, client, version, check, equal, trying, raises, post, words, cancels, full, main} = require('claims.cjs');

// A provider may have a class of its own for what is this error.
const APICallError = {[Symbol.hasInstance]: (e) => ai.APICallError.isInstance(e)};

// The limit of the server, which the providers know no field for.
const limited = (seconds) => ({headers: {'X-Request-Timeout': String(seconds)}});

async function read(model, more) {
  const out = {text: '', error: null};
  for await (const part of streamText({model, prompt: PROMPT, temperature: 0, maxRetries: 0, onError() {}, ...more}).fullStream) {
    if (part.type === 'text-delta') out.text += part.text;
    if (part.type === 'error') out.error = part.error;
    if (part.type === 'finish') [out.usage, out.reason, out.raw] = [part.totalUsage, part.finishReason, part.rawFinishReason];
  }
  return out;
}

const weather = tool({
  description: 'Weather of a city',
  inputSchema: jsonSchema({type: 'object', properties: {city: {type: 'string', enum: ['Paris', 'Rome']}}, required: ['city'], additionalProperties: false}),
  execute: ({city}) => `It rains in ${city}.`,
});

// Its first step has to call the tool, the second may not.
const loop = (toolChoice) => ({
  prompt: PROMPT, temperature: 0, maxRetries: 0, maxOutputTokens: 300, tools: {weather}, stopWhen: stepCountIs(2),
  prepareStep: ({stepNumber}) => ({toolChoice: stepNumber ? 'none' : toolChoice}),
});

// A call that is forced, what the tool gave, and the answer to that, in one piece and streamed.  One provider
// keeps the arguments until they are all there.
async function calls(model, pieces) {
  for (const toolChoice of ['required', {type: 'tool', toolName: 'weather'}]) {
    const name = JSON.stringify(toolChoice);
    const got = await generateText({model, ...loop(toolChoice)});
    const [first, second] = got.steps;
    const call = first.toolCalls[0];
    equal('whole', [got.steps.length, first.finishReason, first.toolCalls.length, call?.toolName, call?.invalid ?? false], [2, 'tool-calls', 1, 'weather', false], `${name}: a call alone`);
    equal('whole', first.toolResults.map((r) => r.output), [`It rains in ${call?.input.city}.`], `${name}: the tool takes its arguments`);
    check('whole', second?.text && second.toolCalls.length === 0 && ['stop', 'length'].includes(second.finishReason), `${name}: an answer to what it gave`, second?.text, second?.finishReason);
    const parts = [];
    for await (const part of streamText({model, ...loop(toolChoice), onError() {}}).fullStream) parts.push(part);
    const of = (type) => parts.filter((p) => p.type === type);
    equal('stream', of('tool-call').map((p) => [p.toolName, p.input]), [[call?.toolName, call?.input]], `${name}: the same call`);
    const joined = of('tool-input-delta').map((p) => p.delta).join('');
    equal('stream', JSON.parse(joined || 'null'), pieces ? call?.input : null, `${name}: its arguments in pieces`);
    const counts = ['tool-input-start', 'tool-input-end', 'tool-result', 'error'].map((type) => of(type).length);
    equal('stream', counts, pieces ? [1, 1, 1, 0] : [0, 0, 1, 0], `${name}: its events`);
    equal('stream', of('text-delta').map((p) => p.text).join(''), second?.text, `${name}: the same answer`);
  }
}

// The API of Responses has no field for stop strings.
function kinds(model, stops) {
  const one = (more) => generateText({model, prompt: PROMPT, temperature: 0, maxRetries: 0, ...more});
  return {
    async whole() {
      const [text, usage] = await words({max_tokens: 40});
      const got = await one({maxOutputTokens: 40});
      equal('whole', [got.text, got.finishReason], [text, 'length'], 'the text');
      equal('whole', [got.usage.inputTokens, got.usage.outputTokens], [usage.prompt_tokens, usage.completion_tokens], 'usage');
    },
    async stream() {
      const [text, usage] = await words({max_tokens: 40});
      const got = await read(model, {maxOutputTokens: 40});
      equal('stream', [got.text, got.error, got.reason], [text, null, 'length'], 'the text');
      equal('stream', [got.usage.inputTokens, got.usage.outputTokens], [usage.prompt_tokens, usage.completion_tokens], 'usage');
      if (stops) {
        const stop = [...text].slice(10, 13).join('');
        const cut = await read(model, {maxOutputTokens: 40, stopSequences: [stop]});
        equal('stream', [cut.text, cut.reason], [(await words({max_tokens: 40, stop: [stop]}))[0], 'stop'], 'a stop string');
      }
      const res = streamText({model, prompt: PROMPT, temperature: 0, maxOutputTokens: 40}).toUIMessageStreamResponse();
      const parts = (await res.text()).split('\n').filter((x) => x.startsWith('data: {')).map((x) => JSON.parse(x.slice(6)));
      equal('stream', parts.filter((p) => p.type === 'text-delta').map((p) => p.delta).join(''), text, 'as a stream for a user interface');
    },
    async cancel() {
      await cancels('aborted while it streams', async () => {
        const gone = new AbortController();
        const got = streamText({model, prompt: PROMPT, temperature: 0, maxOutputTokens: LONG, maxRetries: 0, abortSignal: gone.signal, onError() {}});
        for await (const part of got.fullStream) if (part.type === 'text-delta') gone.abort();
      });
      await cancels('aborted while it waits', async () => {
        const gone = new AbortController();
        setTimeout(() => gone.abort(), 300);
        await raises('cancel', Error, () => one({maxOutputTokens: LONG, abortSignal: gone.signal}), 'it is told so');
      });
    },
    async error() {
      const bad = {topP: 5, temperature: undefined}; // one provider sends one of both only
      const e = await raises('error', APICallError, () => one(bad), 'a bad value');
      const told = JSON.parse(e?.responseBody ?? '{}').error;
      equal('error', [e?.statusCode, e?.isRetryable, told?.param ?? told?.details?.param], [400, false, 'top_p'], 'its field');
      const before = await read(model, bad);
      equal('error', [before.error?.statusCode, before.text], [400, ''], 'before a stream');
      const cut = await read(model, {maxOutputTokens: LONG, ...limited(0.3)});
      const why = cut.error?.code ?? cut.error?.message ?? cut.error ?? cut.raw; // one has its code alone, as the reason why it ended
      check('error', /deadline/.test(JSON.stringify(why)) || (cut.reason === 'error' && why === 'server_error'), 'a stream that the server cannot finish', cut);
    },
    async retry() {
      await full(async () => {
        const e = await raises('retry', APICallError, () => one({maxOutputTokens: 3}), 'no place, without retries');
        equal('retry', [e?.statusCode, e?.isRetryable], [503, true], '503, which it would try again');
        equal('retry', e?.message, JSON.parse(e?.responseBody ?? '{}').error?.message, "with the server's message, though it names no field");
      });
      await full(async () =>
        equal('retry', (await one({maxOutputTokens: 3, maxRetries: 4})).text, (await words({max_tokens: 3}))[0], 'tries again until there is one'));
      await full(async () =>
        equal('retry', (await read(model, {maxOutputTokens: 3, maxRetries: 4})).text, (await words({max_tokens: 3}))[0], 'the same with a stream'));
    },
  };
}

main(async () => {
  const compatible = createOpenAICompatible({name: 'tokenring', baseURL: V1, apiKey: 'none', includeUsage: true});
  const openai = createOpenAI({baseURL: V1, apiKey: 'none'});
  const anthropic = createAnthropic({baseURL: V1, apiKey: 'none'});
  const open = createOpenResponses({name: 'tokenring', url: V1 + '/responses', apiKey: 'none'});
  for (const [name, kind, model] of [['openai-compatible', 'chat', compatible.chatModel(MODEL)], ['openai', 'chat', openai.chat(MODEL)],
                                     ['openai', 'responses', openai.responses(MODEL)], ['open-responses', 'responses', open(MODEL)],
                                     ['anthropic', 'messages', anthropic(MODEL)]]) {
    client(`ai, @ai-sdk/${name} (${kind})`, `${version('ai')}, ${version('@ai-sdk/' + name)}`);
    for (const [area, fn] of Object.entries(kinds(model, kind !== 'responses'))) await trying(area, 'no exception', fn);
    await trying('whole', 'tools: no exception', () => calls(model, name !== 'open-responses'));
  }
  client('ai, @ai-sdk/openai-compatible (completions)', `${version('ai')}, ${version('@ai-sdk/openai-compatible')}`);
  const want = await (await post('/v1/completions', {model: MODEL, prompt: PROMPT, max_tokens: 9, temperature: 0, seed: 1})).json();
  const model = compatible.completionModel(MODEL);
  await trying('whole', 'no exception', async () =>
    check('whole', (await generateText({model, prompt: PROMPT, maxOutputTokens: 9, temperature: 0})).text, 'a text', want));
  await trying('stream', 'no exception', async () =>
    equal('stream', (await read(model, {maxOutputTokens: 9})).text, (await generateText({model, prompt: PROMPT, maxOutputTokens: 9, temperature: 0})).text,
          'the text'));
});
