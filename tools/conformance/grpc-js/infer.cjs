// SPDX-License-Identifier: Apache-2.0
// @grpc/grpc-js, with the messages of frontend/oip.proto.
// serve: --grpc-port 0
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const {MODEL, PROMPT, LONG, client, version, check, equal, trying, raises, post, cancels, full, main, sleep} = require('claims.cjs');
const HERE = path.join(process.env.CONFORMANCE, '../../frontend');
const load = (name) => grpc.loadPackageDefinition(loader.loadSync(path.join(HERE, name), {keepCase: true, longs: Number, enums: String, defaults: true}));
const target = [process.env.TOKENRING_GRPC, grpc.credentials.createInsecure()];
const c = new (load('oip.proto').inference.GRPCInferenceService)(...target);
const health = new (load('health.proto').grpc.health.v1.Health)(...target);

const bytes = (name, text) => ({name, datatype: 'BYTES', shape: [1], contents: {bytes_contents: [Buffer.from(text)]}});
const request = (sampling, more = {}) => ({
  model_name: MODEL,
  inputs: [bytes('text_input', PROMPT), bytes('sampling_parameters', JSON.stringify({temperature: 0, ...sampling}))],
  ...more,
});
const call = (method, message, options = {}, stub = c) =>
  new Promise((good, bad) => stub[method](message, new grpc.Metadata(), options, (e, a) => (e ? bad(e) : good(a))));

// The outputs of an answer by name.
function outputs(a) {
  const out = {};
  a.outputs.forEach((o, i) => {
    const raw = a.raw_output_contents[i];
    out[o.name] = o.datatype === 'INT64' ? Number(raw.readBigInt64LE()) : raw.subarray(4).toString();
  });
  return out;
}

const ENDLESS = {max_tokens: LONG, ignore_eos: true};
const isLast = (r) => r.infer_response.parameters.triton_final_response.bool_param;

async function completed(more) {
  const t = await (await post('/v1/completions', {model: MODEL, prompt: PROMPT, temperature: 0, ...more})).json();
  return [t.choices[0].text, t.usage.prompt_tokens, t.usage.completion_tokens, t.choices[0].finish_reason];
}

const told = (text, o) => [text, o.prompt_tokens, o.completion_tokens, o.finish_reason];

async function whole() {
  equal('whole', [(await call('ServerLive', {})).live, (await call('ServerReady', {})).ready, (await call('ModelReady', {name: MODEL})).ready], [true, true, true], 'live and ready');
  equal('whole', (await call('ModelMetadata', {name: MODEL})).outputs.length, 4, 'metadata');
  const a = await call('ModelInfer', request({max_tokens: 20}, {id: 'q'}));
  const o = outputs(a);
  equal('whole', [a.id, told(o.text_output, o)], ['q', await completed({max_tokens: 20})], 'text, counts, reason');
  equal('whole', (await call('Check', {service: ''}, {}, health)).status, 'SERVING', 'health');
}

function read(s) {
  const got = [];
  return {got, end: new Promise((done) => s.on('data', (r) => got.push(r)).on('error', (e) => done(e)).on('end', () => done()))};
}

async function stream() {
  const s = c.ModelStreamInfer();
  const {got, end} = read(s);
  for (let i = 0; i < 4; i++) s.write(request({max_tokens: 20 + i}, {id: String(i)}));
  s.write(request({max_tokens: -1}, {id: 'bad'}));
  s.end();
  equal('stream', await end, undefined, 'it ends well');
  for (let i = 0; i < 4; i++) {
    const mine = got.filter((r) => r.infer_response.id === String(i));
    const text = mine.map((r) => outputs(r.infer_response).text_output).join('');
    equal('stream', told(text, outputs(mine.at(-1).infer_response)), await completed({max_tokens: 20 + i}), `request ${i}: text, counts, reason`);
    equal('stream', mine.filter(isLast).length, 1, `request ${i}: one last response`);
  }
  const bad = got.filter((r) => r.infer_response.id === 'bad');
  check('error', bad.length === 1 && bad[0].error_message && isLast(bad[0]), 'an error in the stream', bad);
  const w = health.Watch({service: ''});
  equal('stream', (await new Promise((done) => w.once('data', done))).status, 'SERVING', 'Watch');
  w.on('error', () => {});
  w.cancel();
}

async function cancel() {
  await cancels('a stream is cancelled', async () => {
    const s = c.ModelStreamInfer();
    const {got, end} = read(s);
    s.write(request(ENDLESS));
    while (got.length < 5) await sleep(5);
    s.cancel();
    equal('cancel', (await end).code, grpc.status.CANCELLED, 'it is told so');
  });
  await cancels('a call is cancelled', async () => {
    const u = c.ModelInfer(request(ENDLESS), () => {});
    await sleep(300);
    u.cancel();
  });
  await cancels('the client is closed', async () => {
    const other = new c.constructor(...target, {'grpc.use_local_subchannel_pool': 1});
    const s = other.ModelStreamInfer();
    const {got} = read(s);
    s.write(request(ENDLESS));
    while (got.length < 2) await sleep(5);
    s.cancel();
    other.close();
  });
  const e = await raises('cancel', Error, () => call('ModelInfer', request(ENDLESS), {deadline: Date.now() + 300}), 'a deadline');
  equal('cancel', e?.code, grpc.status.DEADLINE_EXCEEDED, 'is told so');
}

async function error() {
  for (const [claim, code, message, word] of [
    ['another model', grpc.status.NOT_FOUND, request({}, {model_name: 'other'}), MODEL],
    ['a field that is wrong', grpc.status.INVALID_ARGUMENT, request({temperature: 9}), 'temperature'],
    ['no input', grpc.status.INVALID_ARGUMENT, {model_name: MODEL}, 'text_input'],
  ]) {
    const e = await raises('error', Error, () => call('ModelInfer', message), claim);
    check('error', e?.code === code && e.details.includes(word), `${claim}: code and words`, e);
  }
}

async function retry() {
  await full(async () => {
    const e = await raises('retry', Error, () => call('ModelInfer', request({max_tokens: 2})), 'no place');
    equal('retry', e?.code, grpc.status.UNAVAILABLE, 'UNAVAILABLE');
  });
  const policy = {methodConfig: [{name: [{}], retryPolicy: {maxAttempts: 5, initialBackoff: '0.5s', maxBackoff: '1s', backoffMultiplier: 2, retryableStatusCodes: ['UNAVAILABLE']}}]};
  const again = new c.constructor(...target, {'grpc.service_config': JSON.stringify(policy)});
  await full(async () => {
    equal('retry', outputs(await call('ModelInfer', request({max_tokens: 2}), {}, again)).completion_tokens, 2, 'with a policy it tries again');
  });
  again.close();
}

main(async () => {
  client('@grpc/grpc-js', version('@grpc/grpc-js'));
  for (const fn of [whole, stream, cancel, error, retry]) await trying(fn.name, 'no exception', fn);
});
