"""Tiny models of each architecture with random weights, and what they answer: written and computed here, in numpy.

    make_families.py [--check]      writes families/*.gguf and families.json beside this file

The forward passes below share no code with Kvarto's and no plan with it either: float64, one position after the other,
attention as a full matrix with a mask, one function an architecture. `--check` puts the same models through
llama.cpp (the Python package xllamacpp), with weights and cache in f32, and stops where its log-probabilities are
further than 0.01 away (its GELU looks up a table in f16; without it 0.00001 is reached).
"""

import argparse
import json
import math
import pathlib
import tempfile

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
VOCAB = 300
PROMPT = 70
TOP = 10


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def turn(x, base, factor=1.0):
    """Rotary embedding of x [position][head][dim], value i with value i + dim/2."""
    count, _, dim = x.shape
    half = dim // 2
    frequency = base ** (-2.0 * np.arange(half) / dim) / factor
    angle = np.arange(count)[:, None] * frequency[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(q, k, v, window=None):
    """q [position][query head][dim] over k, v [position][KV head][dim]."""
    count, q_heads, dim = q.shape
    group = q_heads // k.shape[1]
    out = np.zeros((count, q_heads, v.shape[2]))
    rows, columns = np.arange(count)[:, None], np.arange(count)[None, :]
    seen = columns <= rows
    if window is not None:
        seen &= rows - columns < window
    for head in range(q_heads):
        scores = q[:, head] @ k[:, head // group].T / math.sqrt(dim)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, head // group]
    return out.reshape(count, -1)


class Weights:
    """Tensors by name, as float64 of what the file holds."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.stored = {}

    def matrix(self, name, rows, columns, size=1.0):
        values = self.random.normal(0, size / math.sqrt(columns), (rows, columns))
        self.stored[name + ".weight"] = values.astype(np.float16)

    def norm(self, name, width, middle=1.0):
        self.stored[name + ".weight"] = (middle + 0.3 * self.random.normal(size=width)).astype(np.float32)

    def bias(self, name, width):
        self.stored[name + ".bias"] = (0.5 * self.random.normal(size=width)).astype(np.float32)

    def __getitem__(self, name):
        return self.stored[name].astype(np.float64)


def heads(x, count):
    return x.reshape(x.shape[0], count, -1)


def finish(w, x, eps):
    head = w["output.weight"] if "output.weight" in w.stored else w["token_embd.weight"]
    return rms(x, w["output_norm.weight"], eps) @ head.T


def qwen2(w, c, tokens):
    x = w["token_embd.weight"][tokens]
    for layer in range(c["layers"]):
        t = lambda name: w[f"blk.{layer}.{name}"]
        h = rms(x, t("attn_norm.weight"), c["eps"])
        q = heads(h @ t("attn_q.weight").T + t("attn_q.bias"), c["q"])
        k = heads(h @ t("attn_k.weight").T + t("attn_k.bias"), c["kv"])
        v = heads(h @ t("attn_v.weight").T + t("attn_v.bias"), c["kv"])
        x = x + attention(turn(q, c["base"]), turn(k, c["base"]), v) @ t("attn_output.weight").T
        h = rms(x, t("ffn_norm.weight"), c["eps"])
        x = x + (silu(h @ t("ffn_gate.weight").T) * (h @ t("ffn_up.weight").T)) @ t("ffn_down.weight").T
    return finish(w, x, c["eps"])


def qwen3(w, c, tokens):
    x = w["token_embd.weight"][tokens]
    for layer in range(c["layers"]):
        t = lambda name: w[f"blk.{layer}.{name}.weight"]
        h = rms(x, t("attn_norm"), c["eps"])
        q = rms(heads(h @ t("attn_q").T, c["q"]), t("attn_q_norm"), c["eps"])
        k = rms(heads(h @ t("attn_k").T, c["kv"]), t("attn_k_norm"), c["eps"])
        v = heads(h @ t("attn_v").T, c["kv"])
        x = x + attention(turn(q, c["base"]), turn(k, c["base"]), v) @ t("attn_output").T
        h = rms(x, t("ffn_norm"), c["eps"])
        x = x + (silu(h @ t("ffn_gate").T) * (h @ t("ffn_up").T)) @ t("ffn_down").T
    return finish(w, x, c["eps"])


def gemma3(w, c, tokens):
    x = w["token_embd.weight"][tokens] * math.sqrt(c["hidden"])
    for layer in range(c["layers"]):
        t = lambda name: w[f"blk.{layer}.{name}.weight"]
        slides = (layer + 1) % 6 != 0
        base, factor = (10000.0, 1.0) if slides else (c["base"], c["factor"])
        h = rms(x, t("attn_norm"), c["eps"])
        q = rms(heads(h @ t("attn_q").T, c["q"]), t("attn_q_norm"), c["eps"])
        k = rms(heads(h @ t("attn_k").T, c["kv"]), t("attn_k_norm"), c["eps"])
        v = heads(h @ t("attn_v").T, c["kv"])
        a = attention(turn(q, base, factor), turn(k, base, factor), v, c["window"] if slides else None)
        x = x + rms(a @ t("attn_output").T, t("post_attention_norm"), c["eps"])
        h = rms(x, t("ffn_norm"), c["eps"])
        f = (gelu(h @ t("ffn_gate").T) * (h @ t("ffn_up").T)) @ t("ffn_down").T
        x = x + rms(f, t("post_ffw_norm"), c["eps"])
    return finish(w, x[-1:] if c.get("last_only") else x, c["eps"])


CASES = {
    "qwen2": dict(run=qwen2, seed=2, layers=2, hidden=64, ffn=64, q=4, kv=2, dim=16, eps=1e-6, base=1e6, tied=False),
    "qwen2-tied": dict(run=qwen2, seed=5, layers=2, hidden=64, ffn=64, q=4, kv=1, dim=16, eps=1e-6, base=1e4, tied=True),
    "qwen3": dict(run=qwen3, seed=3, layers=3, hidden=32, ffn=64, q=4, kv=2, dim=32, eps=1e-6, base=1e6, tied=True),
    "qwen3-untied": dict(run=qwen3, seed=6, layers=2, hidden=32, ffn=64, q=4, kv=4, dim=24, eps=1e-6, base=1e6, tied=False),
    "gemma3": dict(run=gemma3, seed=4, layers=7, hidden=32, ffn=64, q=2, kv=1, dim=16, eps=1e-6, base=1e6, tied=True,
                   window=20, factor=8.0),
    # Fewer layers than a full one takes: every layer slides.
    "gemma3-sliding": dict(run=gemma3, seed=7, layers=2, hidden=32, ffn=64, q=4, kv=2, dim=32, eps=1e-6, base=1e6,
                           tied=True, window=33, factor=1.0),
}


def weights(c):
    name, w = c["run"].__name__, Weights(c["seed"])
    hidden, ffn, q, kv = c["hidden"], c["ffn"], c["q"] * c["dim"], c["kv"] * c["dim"]
    # Gemma multiplies embeddings by the root of the width: smaller ones, and a larger last norm, keep its logits mild.
    scaled = name == "gemma3"
    w.matrix("token_embd", VOCAB, hidden, 1.0 if scaled else 3.0 if c["tied"] else 8.0)
    if not c["tied"]:
        w.matrix("output", VOCAB, hidden, 3.0)
    w.norm("output_norm", hidden, 2.5 if scaled else 1.0)
    for layer in range(c["layers"]):
        b = f"blk.{layer}."
        w.norm(b + "attn_norm", hidden)
        for part, rows in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)]:
            w.matrix(b + part, rows, hidden)
            if name == "qwen2":
                w.bias(b + part, rows)
        w.matrix(b + "attn_output", hidden, q)
        w.norm(b + "ffn_norm", hidden)
        w.matrix(b + "ffn_gate", ffn, hidden)
        w.matrix(b + "ffn_up", ffn, hidden)
        w.matrix(b + "ffn_down", hidden, ffn)
        if name != "qwen2":
            w.norm(b + "attn_q_norm", c["dim"], 1.3)
            w.norm(b + "attn_k_norm", c["dim"], 1.3)
        if name == "gemma3":
            w.norm(b + "post_attention_norm", hidden)
            w.norm(b + "post_ffw_norm", hidden)
    return w


def bytes_as_characters():
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = iter(range(256, 1000))
    return [chr(b) if b in shown else chr(next(rest)) for b in range(256)]


def write(path, c, w, ty=None):
    arch = c["run"].__name__
    out = gguf.GGUFWriter(path, arch)
    out.add_name(path.stem)
    out.add_block_count(c["layers"])
    out.add_context_length(512)
    out.add_embedding_length(c["hidden"])
    out.add_feed_forward_length(c["ffn"])
    out.add_head_count(c["q"])
    out.add_head_count_kv(c["kv"])
    if c["dim"] * c["q"] != c["hidden"]:
        out.add_key_length(c["dim"])
        out.add_value_length(c["dim"])
    out.add_layer_norm_rms_eps(c["eps"])
    out.add_rope_freq_base(c["base"])
    if arch == "gemma3":
        out.add_sliding_window(c["window"])
        if c["factor"] != 1.0:
            out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            out.add_rope_scaling_factor(c["factor"])
        # SentencePiece: control tokens, bytes, then single letters.
        tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
        types = [3, 3, 3, 2] + [6] * 256
        letters = ["\u2581", *"abcdefghijklmnopqrstuvwxyz.,!'"]
        tokens += letters + [f"<unused{i}>" for i in range(VOCAB - len(tokens) - len(letters))]
        types += [1] * len(letters)
        types += [5] * (VOCAB - len(types))
        out.add_tokenizer_model("llama")
        out.add_tokenizer_pre("default")
        out.add_token_scores([0.0] * VOCAB)
        out.add_bos_token_id(2)
        out.add_eos_token_id(1)
        out.add_add_bos_token(True)
        out.add_add_space_prefix(False)
    else:
        tokens = bytes_as_characters() + ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a b".replace(" ", "")]
        tokens += [f"<|spare_{i}|>" for i in range(VOCAB - len(tokens))]
        types = [1] * 256 + [3, 3, 3, 1] + [5] * (VOCAB - 260)
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("qwen2")
        out.add_token_merges(["a b"])
        out.add_eos_token_id(256)
        out.add_add_bos_token(False)
    assert len(tokens) == len(types) == VOCAB
    out.add_token_list(tokens)
    out.add_token_types(types)
    for name, values in w.stored.items():
        out.add_tensor(name, values if ty is None else values.astype(ty))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def llama_cpp(path, tokens):
    """Log-probabilities of the likeliest after each prefix, as llama.cpp says them."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 512
    params.n_gpu_layers = 0
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.n_parallel = 1
    server = xllamacpp.Server(params)
    said = []
    for end in range(1, len(tokens) + 1):
        request = dict(prompt=tokens[:end], max_tokens=1, logprobs=TOP, temperature=0, cache_prompt=False)
        answer = server.handle_completions(request)["choices"][0]["logprobs"]
        # Nothing is said of a position whose likeliest token is part of a character.
        top = answer["content"][0]["top_logprobs"] if answer else []
        said.append({t["id"]: t["logprob"] for t in top})
    return said


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", action="store_true")
    check = arguments.parse_args().check
    folder = HERE / "families"
    folder.mkdir(exist_ok=True)
    golden = {}
    for name, c in CASES.items():
        path = folder / f"{name}.gguf"
        w = weights(c)
        write(path, c, w)
        tokens = [int(t) for t in np.random.default_rng(c["seed"] + 100).integers(4, 256, PROMPT)]
        said = log_softmax(c["run"](w, c, tokens))
        if c.get("window"):
            # A golden that does not depend on the window would not test it.
            everywhere = log_softmax(c["run"](w, dict(c, window=None), tokens))
            assert np.abs(everywhere - said)[c["window"] + 1 :].max() > 0.5, name
        top = np.argsort(-said, -1)[:, :TOP]
        golden[name] = dict(
            tokens=tokens,
            top=[dict(ids=row.tolist(), logprobs=[round(float(said[i, t]), 6) for t in row]) for i, row in enumerate(top)],
        )
        print(f"{name}: {path.stat().st_size} bytes, likeliest {np.exp(said.max(-1)).mean():.3f} in the mean")
        if check:
            with tempfile.TemporaryDirectory() as wide:
                write(pathlib.Path(wide) / path.name, c, w, np.float32)
                worst, rows = 0.0, llama_cpp(pathlib.Path(wide) / path.name, tokens)
            assert sum(len(row) > 0 for row in rows) > PROMPT / 4
            for i, row in enumerate(rows):
                worst = max([worst, *(abs(said[i, t] - logprob) for t, logprob in row.items())])
            print(f"  llama.cpp is at most {worst:.5f} away")
            assert worst < 0.01, name
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in golden.items())
    (HERE / "families.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
