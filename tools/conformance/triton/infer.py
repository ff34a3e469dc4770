# SPDX-License-Identifier: Apache-2.0
"""tritonclient over gRPC, with callbacks and with asyncio, and grpcio's health.

serve: --grpc-port 0
"""
import asyncio
import importlib.metadata
import queue
import time

import grpc
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.utils import InferenceServerException

from claims import *

GRPC = os.environ["TOKENRING_GRPC"]
ENDLESS = dict(max_tokens=LONG, ignore_eos=True)


def inputs(text=PROMPT, stream=None, **sampling):
    out = []
    for name, kind, value in (("text_input", "BYTES", text.encode()), ("stream", "BOOL", stream),
                              ("sampling_parameters", "BYTES", json.dumps(dict(dict(temperature=0), **sampling)).encode())):
        if value is not None:
            out.append(triton.InferInput(name, [1], kind))
            out[-1].set_data_from_numpy(np.array([value], dtype=np.object_ if kind == "BYTES" else bool))
    return out


def text_of(result):
    return result.as_numpy("text_output")[0].decode()


def is_last(result):
    return result.get_response().parameters["triton_final_response"].bool_param


def completed(**kw):
    t = truth("/v1/completions", prompt=PROMPT, temperature=0, **kw)
    return t["choices"][0]["text"], t["usage"], t["choices"][0]["finish_reason"]


def told(result):
    return (int(result.as_numpy("prompt_tokens")[0]), int(result.as_numpy("completion_tokens")[0]),
            result.as_numpy("finish_reason")[0].decode())


def truly(usage, finish):
    return usage["prompt_tokens"], usage["completion_tokens"], finish


class Callback:
    """What start_stream wants: results and errors in the order in which they come."""

    def __init__(self):
        self.got = queue.Queue()

    def __call__(self, result, error):
        self.got.put(error or result)

    def next(self):
        return self.got.get(timeout=WAIT_S)

    def until_last(self):
        out = [self.next()]
        while not isinstance(out[-1], Exception) and not is_last(out[-1]):
            out.append(self.next())
        return out


def whole(c):
    check("whole", c.is_server_live() and c.is_server_ready() and c.is_model_ready(MODEL), "live and ready")
    equal("whole", c.is_model_ready("other"), False, "another model is not")
    equal("whole", c.get_server_metadata().name, "tokenring", "server metadata")
    m = c.get_model_metadata(MODEL)
    equal("whole", ([t.name for t in m.inputs], [t.name for t in m.outputs]),
          (["text_input", "stream", "sampling_parameters"],
           ["text_output", "finish_reason", "prompt_tokens", "completion_tokens"]), "model metadata")
    text, usage, finish = completed(max_tokens=20)
    r = c.infer(MODEL, inputs(max_tokens=20), request_id="17")
    equal("whole", (text_of(r), told(r)), (text, truly(usage, finish)), "infer: text, counts, reason")
    equal("whole", r.get_response().id, "17", "its id comes back")
    r = c.infer(MODEL, inputs(max_tokens=20), outputs=[triton.InferRequestedOutput("text_output")])
    equal("whole", (text_of(r), r.as_numpy("finish_reason")), (text, None), "only the output that was asked for")
    got = Callback()
    call = c.async_infer(MODEL, inputs(max_tokens=20), got)
    equal("whole", text_of(got.next()), text, "async_infer")
    del call
    equal("whole", text_of(c.infer(MODEL, inputs(temperature="0", max_tokens="7", top_p="1"))), completed(max_tokens=7)[0], "numbers as strings")


def stream(c):
    got = Callback()
    c.start_stream(callback=got)
    text, usage, finish = completed(max_tokens=30)
    for empty in (False, True):
        c.async_stream_infer(MODEL, inputs(stream=True, max_tokens=30), request_id=f"s{empty}",
                             enable_empty_final_response=empty)
        r = got.until_last()
        equal("stream", ("".join(map(text_of, r)), told(r[-1])), (text, truly(usage, finish)), f"the text, counts and reason ({empty})")
        check("stream", len(r) == 31 and {x.get_response().id for x in r} == {f"s{empty}"}, "a response for each token, and the last")
        c.async_stream_infer(MODEL, inputs(stream=False, max_tokens=30), enable_empty_final_response=empty)
        r = got.until_last()
        equal("stream", (len(r), "".join(map(text_of, r)), told(r[-1])), (1 + empty, text, truly(usage, finish)), f"whole ({empty})")
    for i in range(5):
        c.async_stream_infer(MODEL, inputs(max_tokens=10 + i), request_id=str(i))
    texts, ends = {}, {}
    while len(ends) < 5:
        r = got.next()
        key = r.get_response().id
        texts[key] = texts.get(key, "") + text_of(r)
        if is_last(r):
            ends[key] = told(r)[1]
    equal("stream", (ends["0"], ends["4"], texts["4"]), (10, 14, completed(max_tokens=14)[0]), "five at a time, told apart by id")
    c.stop_stream()
    check("stream", got.got.empty(), "and nothing behind it")


def cancel(c):
    with cancels("stop_stream(cancel_requests=True)"):
        got = Callback()
        c.start_stream(callback=got)
        c.async_stream_infer(MODEL, inputs(**ENDLESS))
        for _ in range(5):
            got.next()
        c.stop_stream(cancel_requests=True)
    with cancels("the call of async_infer is cancelled"):
        got = Callback()
        call = c.async_infer(MODEL, inputs(**ENDLESS), got)
        until(lambda: metrics()["requests_running"])
        call.cancel()
        check("cancel", "cancel" in str(got.next()).lower(), "it is told so")
    with cancels("the client is closed"):
        other = triton.InferenceServerClient(GRPC)
        got = Callback()
        other.start_stream(callback=got)
        other.async_stream_infer(MODEL, inputs(**ENDLESS))
        got.next()
        other.stop_stream(cancel_requests=True)
        other.close()
    e = raises("cancel", InferenceServerException, lambda: c.infer(MODEL, inputs(**ENDLESS), client_timeout=0.3), "a time limit of the client's own")
    equal("cancel", e and e.status(), "StatusCode.DEADLINE_EXCEEDED", "is its deadline")
    e = raises("cancel", InferenceServerException, lambda: c.infer(MODEL, inputs(**ENDLESS), timeout=100000), "a time limit of the server's")
    equal("cancel", e and e.status(), "StatusCode.DEADLINE_EXCEEDED", "the same")
    check("cancel", until(lambda: metrics()["requests_running"] == 0), "nothing runs any more")


def error(c):
    e = raises("error", InferenceServerException, lambda: c.infer("other", inputs()), "another model")
    equal("error", e and e.status(), "StatusCode.NOT_FOUND", "NOT_FOUND")
    e = raises("error", InferenceServerException, lambda: c.infer(MODEL, inputs(max_tokens=-1)), "a field that is wrong")
    check("error", e and e.status() == "StatusCode.INVALID_ARGUMENT" and "max_tokens" in e.message(), "is named", e)
    e = raises("error", InferenceServerException, lambda: c.get_model_config(MODEL), "a method that is not here")
    equal("error", e and e.status(), "StatusCode.UNIMPLEMENTED", "UNIMPLEMENTED")
    got = Callback()
    c.start_stream(callback=got)
    c.async_stream_infer(MODEL, inputs(max_tokens=-1))
    check("error", isinstance(got.next(), InferenceServerException), "an error in the stream")
    c.async_stream_infer(MODEL, inputs(max_tokens=3))
    r = got.until_last()
    equal("error", told(r[-1])[1] if is_last(r[-1]) else r, 3, "does not end it")
    c.stop_stream()


def retry(c):
    with full():
        e = raises("retry", InferenceServerException, lambda: c.infer(MODEL, inputs(max_tokens=2)), "no place")
        equal("retry", e and e.status(), "StatusCode.UNAVAILABLE", "UNAVAILABLE, which policies of gRPC try again")
    options = [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": {
        "maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "1s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]}}]}))]
    with triton.InferenceServerClient(GRPC, channel_args=options) as again, full():
        with trying("retry", "with such a policy"):
            equal("retry", told(again.infer(MODEL, inputs(max_tokens=2)))[1], 2, "with such a policy")


async def with_asyncio():
    async with triton_aio.InferenceServerClient(GRPC) as c:
        text, usage, finish = completed(max_tokens=20)
        r = await c.infer(MODEL, inputs(max_tokens=20))
        equal("whole", (text_of(r), told(r)), (text, truly(usage, finish)), "infer")

        async def requests():
            for i in range(3):
                yield {"model_name": MODEL, "inputs": inputs(max_tokens=20), "request_id": str(i), "enable_empty_final_response": True}
        texts, errors = {}, []
        async for r, e in c.stream_infer(requests()):
            if e:
                errors.append(e)
            else:
                key = r.get_response().id
                texts[key] = texts.get(key, "") + text_of(r)
        equal("stream", (texts, errors), ({str(i): text for i in range(3)}, []), "stream_infer to its end")

        async def endless():
            yield {"model_name": MODEL, "inputs": inputs(**ENDLESS)}
            await asyncio.sleep(WAIT_S)
        with cancels("the iterator is cancelled"):
            it = c.stream_infer(endless())
            n = 0
            async for r, e in it:
                n += 1
                if n == 5:
                    it.cancel()
                    break
        with cancels("a task is cancelled"):
            t = asyncio.ensure_future(c.infer(MODEL, inputs(**ENDLESS)))
            await asyncio.sleep(0.3)
            t.cancel()
            check("cancel", isinstance((await asyncio.gather(t, return_exceptions=True))[0], asyncio.CancelledError), "it is told so")


def health():
    with grpc.insecure_channel(GRPC) as ch:
        stub = health_pb2_grpc.HealthStub(ch)
        for service in ("", "inference.GRPCInferenceService"):
            equal("whole", stub.Check(health_pb2.HealthCheckRequest(service=service)).status, 1, f"Check {service!r}")
        e = raises("error", grpc.RpcError, lambda: stub.Check(health_pb2.HealthCheckRequest(service="other")), "another service")
        equal("error", e and e.code(), grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        w = stub.Watch(health_pb2.HealthCheckRequest())
        equal("stream", next(w).status, 1, "Watch")
        w.cancel()


version = importlib.metadata.version
client("tritonclient, gRPC", version("tritonclient"))
with triton.InferenceServerClient(GRPC) as c:
    for area, part in (("whole", whole), ("stream", stream), ("cancel", cancel), ("error", error), ("retry", retry)):
        with trying(area, f"{part.__name__} ran to its end"):
            part(c)
client("tritonclient, gRPC with asyncio", version("tritonclient"))
with trying("other", "asyncio ran to its end"):
    asyncio.run(with_asyncio())
client("grpcio", version("grpcio"))
with trying("other", "health ran to its end"):
    health()
