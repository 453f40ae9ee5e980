#!/usr/bin/env python3
"""Check `smollm2-135m.json` against a second model, written here in numpy from the published Llama architecture.

It uses only numpy and `gguf` (for reading and dequantising), works on the GGUF's own row order (rotary
pairs side by side), and runs in float64 and in float32, teacher-forced with the golden's tokens.

    venv/bin/python check_f64.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf

It prints, per prompt, the arg-maxes that differ from the golden's and the largest difference of the
golden's top-10 log-probabilities; it fails over the limits below.
"""

import argparse
import json
import os

import gguf
import numpy as np

LIMIT = {"float64": 1e-3, "float32": 1e-3}


def load(path):
    reader = gguf.GGUFReader(path)
    get = lambda key: reader.fields["llama." + key].contents()
    weights = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    shape = {
        "layers": get("block_count"),
        "heads": get("attention.head_count"),
        "kv": get("attention.head_count_kv"),
        "eps": get("attention.layer_norm_rms_epsilon"),
        "base": get("rope.freq_base"),
    }
    return weights, shape


def forward(w, s, ids, kind, disturbed=None):
    """Logits of every position, all arithmetic in `kind`; with `disturbed`, a random generator, keys and values are
    rounded to f16 and the embeddings disturbed by a millionth."""
    get = lambda name: w[name].astype(kind)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + kind(s["eps"])) * get(name)

    n, heads, kv = len(ids), s["heads"], s["kv"]
    x = get("token_embd.weight")[ids]
    stored = lambda x: x
    if disturbed is not None:
        x = (x * (1 + 1e-6 * disturbed.standard_normal(x.shape))).astype(kind)
        stored = lambda x: x.astype(np.float16).astype(kind)
    d = x.shape[1] // heads
    angle = np.arange(n)[:, None] * s["base"] ** (-np.arange(0, d, 2) / d)  # float64 for both kinds
    cos, sin = np.cos(angle).astype(kind)[:, None], np.sin(angle).astype(kind)[:, None]

    def rotate(v):
        even, odd = v[..., 0::2], v[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(v.shape)

    hidden = np.triu(np.ones((n, n), bool), 1)
    for i in range(s["layers"]):
        p = f"blk.{i}."
        h = norm(x, p + "attn_norm.weight")
        q = rotate((h @ get(p + "attn_q.weight").T).reshape(n, heads, d))
        k = stored(rotate((h @ get(p + "attn_k.weight").T).reshape(n, kv, d)))
        v = stored((h @ get(p + "attn_v.weight").T).reshape(n, kv, d))
        out = np.empty((n, heads, d), kind)
        for head in range(heads):
            group = head // (heads // kv)
            score = q[:, head] @ k[:, group].T / kind(np.sqrt(d))
            score[hidden] = -np.inf
            score = np.exp(score - score.max(-1, keepdims=True))
            out[:, head] = score / score.sum(-1, keepdims=True) @ v[:, group]
        x = x + out.reshape(n, -1) @ get(p + "attn_output.weight").T
        h = norm(x, p + "ffn_norm.weight")
        gate = h @ get(p + "ffn_gate.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ get(p + "ffn_up.weight").T)) @ get(p + "ffn_down.weight").T
    assert x.dtype == kind
    return norm(x, "output_norm.weight") @ get("token_embd.weight").T


def distances(logits, prompt):
    """The largest difference of the golden's top-10 log-probabilities, position by position."""
    top = logits.max(-1, keepdims=True)
    logprobs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    return [float(np.abs(row[t["ids"]] - t["logprobs"]).max()) for row, t in zip(logprobs, prompt["top"])]


def trials(w, s, golden, count):
    """Median and worst of the first 16 and of all 64 positions, K and V rounded to f16."""
    w = {name: x.astype(np.float32) for name, x in w.items()}
    for prompt in golden["prompts"]:
        ids = prompt["prompt_ids"] + prompt["new_ids"]
        for trial in range(count):
            logits = forward(w, s, ids[:-1], np.float32, np.random.default_rng(trial))
            each = distances(logits[len(prompt["prompt_ids"]) - 1 :].astype(np.float64), prompt)
            of = lambda part: f"median {sorted(part)[len(part) // 2]:.2e}, worst {max(part):.2e}"
            print(f"{prompt['name']:13}trial {trial}: 16 positions {of(each[:16])}; 64 {of(each)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gguf", required=True)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--golden", default=os.path.join(here, "smollm2-135m.json"))
    parser.add_argument("--half", type=int, metavar="TRIALS", help="how far rounding K and V to f16 moves the model")
    args = parser.parse_args()
    golden = json.load(open(args.golden))
    w, s = load(args.gguf)
    print(f"numpy {np.__version__}")
    if args.half:
        return trials(w, s, golden, args.half)
    for prompt in golden["prompts"]:
        ids = prompt["prompt_ids"] + prompt["new_ids"]
        for kind in (np.float64, np.float32):
            logits = forward(w, s, ids[:-1], kind)[len(prompt["prompt_ids"]) - 1 :].astype(np.float64)
            assert len(logits) == len(prompt["top"]) == len(prompt["new_ids"])
            top = logits.max(-1, keepdims=True)
            logprobs = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
            wrong, worst, sets = 0, 0.0, 0
            for row, want, token in zip(logprobs, prompt["top"], prompt["new_ids"]):
                wrong += int(row.argmax() != token)
                sets += set(np.argsort(-row)[:10].tolist()) != set(want["ids"])
                worst = max(worst, float(np.abs(row[want["ids"]] - want["logprobs"]).max()))
            print(
                f"{prompt['name']:13}{kind.__name__}: {wrong} of {len(logits)} arg-maxes differ; "
                f"{sets} top-10 sets differ; largest log-probability difference {worst:.2e}",
                flush=True,
            )
            if wrong or worst > LIMIT[kind.__name__]:
                raise SystemExit("CHECK FAILED")


if __name__ == "__main__":
    main()
