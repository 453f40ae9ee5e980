"""Gemma 3 270M by the forward pass of make_families.py over the real file's weights: greedy tokens and their
log-probabilities, written to gemma3-270m.json.

    make_gemma3.py GEMMA.gguf

The long prompt is longer than the model's window of 512 tokens. Token ids of the prompts come from llama.cpp (the
package xllamacpp), whose greedy tokens are compared: at the first that is not numpy's, the two must be within 0.5 of
each other (llama.cpp rounds activations to 8 bits before it multiplies by such weights: 0.1 to 0.3 are seen).
"""

import hashlib
import json
import pathlib
import sys
import urllib.request

import gguf
import numpy as np

from make_families import gemma3, log_softmax

HERE = pathlib.Path(__file__).parent
NEW, TOP = 16, 5
PROMPTS = {
    "capital": "The capital of France is",
    "count": "one, two, three, four, five, six,",
    "code": "def fibonacci(n):\n    \"\"\"",
    "long": " ".join(f"Line {i}: the number {i} squared is {i * i}." for i in range(1, 40)) + " Line 40:",
}


class File:
    """Tensors of a GGUF file, spread out as they are asked for."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.stored = {t.name: t for t in reader.tensors}
        self.kept = {}

    def __getitem__(self, name):
        if name not in self.kept:
            t = self.stored[name]
            values = gguf.quants.dequantize(t.data, t.tensor_type)
            self.kept[name] = np.asarray(values, np.float64)
        return self.kept[name]


def main(path):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 1024
    params.warmup = False
    params.n_parallel = 1
    server = xllamacpp.Server(params)

    def ids(text):
        body = json.dumps(dict(content=text, add_special=True, parse_special=False)).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body)
        return json.load(urllib.request.urlopen(request))["tokens"]

    config = dict(layers=18, hidden=640, q=4, kv=1, eps=1e-6, base=1e6, factor=1.0, window=512, last_only=True)
    weights, cases = File(path), []
    for name, text in PROMPTS.items():
        prompt = ids(text)
        new, top, count = [], [], NEW if len(prompt) < 100 else 4
        request = dict(prompt=prompt, max_tokens=count, logprobs=TOP, temperature=0, cache_prompt=False)
        others = [t["id"] for t in server.handle_completions(request)["choices"][0]["logprobs"]["content"]]
        for at in range(count):
            said = log_softmax(gemma3(weights, config, prompt + new)[-1])
            best = np.argsort(-said)[:TOP]
            # From the first token that differs on, llama.cpp continues another text.
            if others[:at] == new and at < len(others):
                assert abs(said[others[at]] - said[best[0]]) < 0.5, (name, others[at], best)
            new.append(int(best[0]))
            top.append(dict(ids=best.tolist(), logprobs=[round(float(said[t]), 5) for t in best]))
        print(name, len(prompt), new, flush=True)
        cases.append(dict(name=name, text=text, prompt=prompt, new=new, top=top))
    digest = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    golden = dict(file=pathlib.Path(path).name, sha256=digest, numpy=np.__version__, cases=cases)
    (HERE / "gemma3-270m.json").write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
