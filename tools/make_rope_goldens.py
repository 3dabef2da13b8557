#!/usr/bin/env python3
"""Writes tests/nn/data/rope.json: the rotary frequencies of transformers' ROPE_INIT_FUNCTIONS.

Needs the PyPI packages torch and transformers 4.57. Usage: make_rope_goldens.py [FILE]

Each case has the head's size, the base, `scaling` as in config.json, the length of the sequence,
and transformers' float32 frequencies (`values`) and factor of cos and sin (`attention_factor`).
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

ROOT = pathlib.Path(__file__).resolve().parent.parent
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
# (head's size, base, positions trained for, scaling, length)
CASES = [
    (16, 10000.0, 64, {"rope_type": "default"}, 10),
    (64, 500000.0, 64, {"rope_type": "default"}, 10),
    (64, 10000.0, 64, {"rope_type": "linear", "factor": 3.5}, 10),
    (64, 10000.0, 64, DYNAMIC, 10),
    (64, 10000.0, 64, DYNAMIC, 64),
    (64, 10000.0, 64, DYNAMIC, 65),
    (16, 10000.0, 64, DYNAMIC | {"factor": 4.0}, 1000),
    (64, 500000.0, 131072, LLAMA3, 10),
    (128, 500000.0, 131072, LLAMA3 | {"factor": 32.0}, 10),
    (16, 10000.0, 64, LLAMA3 | {"low_freq_factor": 2.0, "original_max_position_embeddings": 100}, 10),
    (64, 1000000.0, 32768, YARN, 10),
    (128, 1000000.0, 32768, YARN | {"beta_fast": 16.0, "beta_slow": 2.0}, 10),
    (64, 10000.0, 4096, YARN | {"attention_factor": 1.25, "truncate": False}, 10),
    (64, 10000.0, 4096, YARN | {"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.5}, 10),
    (64, 10000.0, 4096, YARN | {"mscale": 0.707}, 10),
    # A ramp of no width, and one outside of the dims.
    (16, 10000.0, 4096, YARN | {"original_max_position_embeddings": 4}, 10),
    (16, 2.0, 4096, YARN, 10),
]


def golden(dim, base, positions, scaling, length):
    config = transformers.LlamaConfig(hidden_size=dim * 2, num_attention_heads=2, head_dim=dim,
                                      rope_theta=base, max_position_embeddings=positions,
                                      rope_scaling=dict(scaling))
    values, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=length)
    assert values.dtype == torch.float32
    return {"dim": dim, "base": base, "positions": positions, "scaling": scaling, "length": length,
            "attention_factor": factor, "values": values.tolist()}


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/nn/data/rope.json"
    cases = [golden(*case) for case in CASES]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
