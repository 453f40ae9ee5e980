"""Ids of SentencePiece vocabularies: a small one trained here, and Gemma 3's as llama.cpp cuts it.

    make_pieces.py [GEMMA.gguf]     writes pieces.json and, given the model, gemma3-tokenizer.json beside this file

The small one is encoded by the library sentencepiece itself, with and without a space put before the text.
"""

import io
import json
import pathlib
import sys
import urllib.request

HERE = pathlib.Path(__file__).parent
TEXTS = [
    "Hello world",
    " leading space",
    "trailing space ",
    "two  spaces   three    four",
    "The cache keeps keys and values of every token.",
    "don't I'll we've",
    "tabs\tand\nnewlines\n\n\nand\r\n",
    "numbers 0 1 12 123 1234567890 3.14159",
    "UPPER lower MiXeD camelCase snake_case",
    "punctuation!?.,;:'\"()[]{}<>/\\|@#$%^&*~`",
    "naïve café façade über Straße",
    "日本語のテキスト",
    "中文分词测试",
    "한국어 문장",
    "Привет, мир",
    "مرحبا بالعالم",
    "emoji 🙂 👩‍👩‍👧 🇩🇪",
    "▁ the mark itself ▁▁",
    "\u00a0no-break\u2003em space\u200bzero width",
    "fn main() { println!(\"{}\", x_1); }",
    "    indented = code[0]\n        deeper",
    "a",
    " ",
    "  ",
    "\n",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<0x0A> is how a byte is written",
    "<unused3> and <s>",
    "https://example.org/path?query=1&other=%20",
    "combining e\u0301 and o\u0308",
    "the the the there then them these",
    "mean mean-square normalised normalisation",
    "\x00\x01\x7f control",
]
SPECIAL = [
    "text with <bos> inside",
    "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n",
    "a<eos>b",
]


def small():
    import sentencepiece as sp

    text = (HERE / "README.md").read_text()
    cases = {}
    for prefix in (False, True):
        model = io.BytesIO()
        sp.SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()), model_writer=model, model_type="bpe", vocab_size=700,
            byte_fallback=True, add_dummy_prefix=prefix, remove_extra_whitespaces=False, num_threads=1,
            normalization_rule_name="identity", character_coverage=0.999, minloglevel=2,
        )
        p = sp.SentencePieceProcessor(model_proto=model.getvalue())
        count = p.get_piece_size()
        kind = lambda i: 2 if p.is_unknown(i) else 3 if p.is_control(i) else 6 if p.is_byte(i) else 1
        cases["prefix" if prefix else "plain"] = dict(
            pieces=[p.id_to_piece(i) for i in range(count)],
            scores=[p.get_score(i) for i in range(count)],
            types=[kind(i) for i in range(count)],
            # A NUL ends the text in some builds of the library, so that one is left to the other golden.
            cases=[dict(text=t, ids=p.encode(t)) for t in TEXTS if "\x00" not in t],
        )
    write("pieces.json", dict(sentencepiece=sp.__version__, **cases))


def gemma(path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 64
    params.warmup = False
    params.n_parallel = 1
    server = xllamacpp.Server(params)

    def ids(text, special):
        # `parse_special` false: what a user typed.
        body = json.dumps(dict(content=text, add_special=True, parse_special=special)).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body)
        return json.load(urllib.request.urlopen(request))["tokens"]

    cases = [dict(text=t, special=False, ids=ids(t, False)) for t in TEXTS + SPECIAL]
    cases += [dict(text=t, special=True, ids=ids(t, True)) for t in SPECIAL]
    write("gemma3-tokenizer.json", dict(xllamacpp=xllamacpp.__version__, file=pathlib.Path(path).name, cases=cases))


def write(name, content):
    (HERE / name).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


small()
if len(sys.argv) > 1:
    gemma(sys.argv[1])
