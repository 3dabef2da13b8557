#!/usr/bin/env python3
"""Writes tests/models/data/families/qwen2_int8: a tiny checkpoint whose matrices are numbers of 8 bits with a scale for
each row, as bitsandbytes writes them (`load_in_8bit`).

    python3 tools/goldens/byte_rows.py [FOLDER]

Needs the PyPI packages torch, transformers 5.24, accelerate, bitsandbytes 0.50 and safetensors.

FOLDER/<case>/config.json, model.safetensors   matrices as bitsandbytes' own function quantizes them; the rest bfloat16
FOLDER/<case>/ref.safetensors                  as make_model_goldens.py writes it: logits of the model that transformers
    reads from the folder, with matrices made plain by bitsandbytes, whose layers would round activations, too
"""

import bitsandbytes.functional
import torch
import transformers
from tiny_checkpoint import is_plain, random_state, write_cases, write_checkpoint, write_reference

SIZES = dict(hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             head_dim=8, vocab_size=61, max_position_embeddings=64)
CASES = {"qwen2_int8": "Qwen2"}


def stored(state):
    tensors = {}
    for name, tensor in state.items():
        if is_plain(name, tensor):
            tensors[name] = tensor
            continue
        base = name.removesuffix("weight")
        numbers, largest, _ = bitsandbytes.functional.int8_vectorwise_quant(tensor.half())
        tensors |= {name: numbers, f"{base}SCB": largest, f"{base}weight_format": torch.tensor(0, dtype=torch.uint8)}
    return tensors


def write_case(folder, name, seed):
    family = CASES[name]
    config = getattr(transformers, family + "Config")(**SIZES)
    config._attn_implementation = "eager"
    config.dtype = torch.bfloat16
    model = getattr(transformers, family + "ForCausalLM")(config)
    quantization = transformers.BitsAndBytesConfig(load_in_8bit=True)
    write_checkpoint(folder, family, config, stored(random_state(model, seed)), quantization.to_dict())
    model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", device_map="cpu")
    write_reference(folder, model.dequantize(torch.float32).float().eval())


if __name__ == "__main__":
    write_cases(CASES, write_case)
