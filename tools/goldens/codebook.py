#!/usr/bin/env python3
"""Writes tests/models/data/families/{llama_nf4,qwen3_fp4}: tiny checkpoints whose matrices are codes of 4 bits, as
bitsandbytes writes them.

    python3 tools/goldens/codebook.py [FOLDER]

Needs the PyPI packages torch, transformers 5.24, accelerate, bitsandbytes 0.50 and safetensors.

FOLDER/<case>/config.json, model.safetensors   matrices as bitsandbytes' own functions quantize and pack them, for
                                               numbers of float32; the rest bfloat16
FOLDER/<case>/ref.safetensors                  as make_model_goldens.py writes it: logits of the model that transformers
    reads from the folder and runs on bitsandbytes' own layers
"""

import bitsandbytes.functional
import torch
import transformers
from tiny_checkpoint import is_plain, random_state, write_cases, write_checkpoint, write_reference

SIZES = dict(hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             head_dim=8, vocab_size=61, max_position_embeddings=64)
# Case: class of the model, type of the codes, codes that share a scale, whether scales are codes themselves. Rows are
# of 48 or 72 codes, so that those that share a scale are of several rows.
CASES = {
    "llama_nf4": ("Llama", "nf4", 64, True),
    "qwen3_fp4": ("Qwen3", "fp4", 128, False),
}


def stored(state, kind, blocksize, is_nested):
    tensors = {}
    for name, tensor in state.items():
        if is_plain(name, tensor):
            tensors[name] = tensor
            continue
        codes, how = bitsandbytes.functional.quantize_4bit(tensor.float(), blocksize=blocksize, quant_type=kind,
                                                           compress_statistics=is_nested)
        tensors[name] = codes
        tensors |= {f"{name}.{part}": value.contiguous() for part, value in how.as_dict(packed=True).items()}
    return tensors


def write_case(folder, name, seed):
    family, kind, blocksize, is_nested = CASES[name]
    config = getattr(transformers, family + "Config")(**SIZES)
    config._attn_implementation = "eager"
    config.dtype = torch.bfloat16
    model = getattr(transformers, family + "ForCausalLM")(config)
    quantization = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=is_nested,
        bnb_4bit_compute_dtype="float32")
    tensors = stored(random_state(model, seed), kind, blocksize, is_nested)
    write_checkpoint(folder, family, config, tensors, quantization.to_dict())
    model = type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    # What is not quantized keeps the type of the file otherwise.
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = parameter.data.float()
    write_reference(folder, model)


if __name__ == "__main__":
    write_cases(CASES, write_case)
