#!/usr/bin/env python3
"""llama.cpp's native CPU build on the default model, as `kvarto bench generate` measures ours: a prefill to a depth, then
single tokens from there on, flash attention on.

    pip install --no-binary llama-cpp-python llama-cpp-python==0.3.36     # built from source, for this CPU
    python assets/bench/peer_llama.py --model "$(kvarto models path smollm2-135m)" --threads 2 --depth 7168 --kv q4_0

Prints one JSON object. Run it beside `kvarto bench generate --backend cpu --threads 2 --depth 7168 --kv tq3 --json`, in
turn and on a machine that does nothing else.
"""

import argparse
import json
import statistics
import time

import llama_cpp

TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0, "q4_0": llama_cpp.GGML_TYPE_Q4_0}
TEXT = "The cache of a language model holds a key and a value for every token, layer and head. "


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--depth", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--kv", choices=TYPES, default="f16")
    args = parser.parse_args()
    model = llama_cpp.Llama(
        args.model,
        n_ctx=8192,
        n_batch=512,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        flash_attn=True,
        type_k=TYPES[args.kv],
        type_v=TYPES[args.kv],
        verbose=False,
    )
    unit = model.tokenize(TEXT.encode(), add_bos=False)
    prompt = (unit * (args.depth // len(unit) + 1))[: args.depth]
    model.eval(prompt[:32])
    model.reset()
    start = time.perf_counter()
    model.eval(prompt)
    prefill = args.depth / (time.perf_counter() - start)
    speeds = []
    for at in range(args.tokens):
        # Any token takes as long as any other.
        token = unit[(args.depth + at) % len(unit)]
        start = time.perf_counter()
        model.eval([token])
        speeds.append(1 / (time.perf_counter() - start))
    report = {"kv": args.kv, "depth": args.depth, "prefill_tokens_per_s": prefill}
    report["decode_tokens_per_s"] = statistics.median(speeds)
    print(json.dumps({**report, "version": llama_cpp.__version__, "threads": args.threads}))


if __name__ == "__main__":
    main()
