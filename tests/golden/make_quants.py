"""Blocks of random bits of the GGUF types that are spread out at load, with the values that the `gguf` package gives
them. Run: pip install gguf==0.19.0 numpy==2.4.6; python make_quants.py > quants.json"""

import json

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

random = np.random.default_rng(20261129)
# Where each type's blocks keep f16 numbers: random bits there would be infinities now and then.
HALVES = {"Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
cases = {}
for name, halves in HALVES.items():
    kind = Type[name]
    values, size = GGML_QUANT_SIZES[kind]
    blocks = 512 // values
    data = random.integers(0, 256, (blocks, size), dtype=np.uint8)
    for at in halves:
        numbers = (random.standard_normal(blocks) * 0.1).astype(np.float16)
        data[:, at : at + 2] = numbers.view(np.uint8).reshape(blocks, 2)
    out = dequantize(data.reshape(-1), kind).astype(np.float32)
    cases[name] = {"blocks": data.tobytes().hex(), "values": out.astype("<f4").tobytes().hex()}
print(json.dumps(cases))
