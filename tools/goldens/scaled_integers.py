#!/usr/bin/env python3
"""Writes tests/models/data/families/{qwen3_int4,llama_int8}: tiny checkpoints whose matrices are integers with scales,
as compressed-tensors writes them.

    python3 tools/goldens/scaled_integers.py [FOLDER]

Needs the PyPI packages torch, transformers 5.24, compressed-tensors 0.20 and safetensors.

FOLDER/<case>/config.json, model.safetensors   matrices as compressed-tensors' own compressors pack them, with scales
                                               in float32, in which it makes plain numbers of them; the rest bfloat16
FOLDER/<case>/ref.safetensors                  as make_model_goldens.py writes it: logits of the model that transformers
    reads from the folder, with matrices made plain by compressed-tensors (`dequantize=True`)
"""

import json

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from tiny_checkpoint import is_plain, random_state, write_cases, write_checkpoint, write_reference

SIZES = dict(hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
             head_dim=8, vocab_size=61, max_position_embeddings=64)
# Case: class of the model, its format, what its matrices are. Cuts for 2 to 4 ranks fall inside quant groups.
CASES = {
    "qwen3_int4": ("Qwen3", "pack-quantized", dict(num_bits=4, strategy="group", group_size=24, symmetric=False)),
    "llama_int8": ("Llama", "int-quantized", dict(num_bits=8, strategy="channel", symmetric=True)),
}


def scales_of(weight_OI, args):
    """A scale and a zero point for each group of a row, from its least and its largest number."""
    group = args.group_size or weight_OI.shape[1]
    groups_OGI = weight_OI.float().unflatten(1, (-1, group))
    least_OG, most_OG = groups_OGI.amin(2).clamp(max=0), groups_OGI.amax(2).clamp(min=0)
    half = 2 ** (args.num_bits - 1)
    if args.symmetric:
        return torch.maximum(-least_OG, most_OG) / (half - 0.5), None
    scale_OG = (most_OG - least_OG) / (2 * half - 1)
    zero_OG = (-half - least_OG / scale_OG).round().clamp(-half, half - 1)
    return scale_OG, zero_OG.to(torch.int8)


def stored(state, form, scheme):
    compressor = BaseCompressor.get_value_from_registry(form)
    tensors = {}
    for name, tensor in state.items():
        if is_plain(name, tensor):
            tensors[name] = tensor
            continue
        scale, zero = scales_of(tensor, scheme.weights)
        parts = {"weight": tensor, "weight_scale": scale} | ({} if zero is None else {"weight_zero_point": zero})
        for part, value in compressor.compress(parts, scheme).items():
            tensors[f"{name.removesuffix('weight')}{part}"] = value.contiguous()
    return tensors


def write_case(folder, name, seed):
    kind, form, given = CASES[name]
    weights = QuantizationArgs(type="int", **given)
    activations = QuantizationArgs(num_bits=8, type="int", strategy="token", dynamic=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=weights,
                                input_activations=activations if form == "int-quantized" else None)
    config = getattr(transformers, kind + "Config")(**SIZES)
    config._attn_implementation = "eager"
    config.dtype = torch.bfloat16
    model = getattr(transformers, kind + "ForCausalLM")(config)
    write_checkpoint(folder, kind, config, stored(random_state(model, seed), form, scheme), {
        "quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
        "config_groups": {"group_0": json.loads(scheme.model_dump_json())}, "ignore": ["lm_head"]})
    quantization = transformers.CompressedTensorsConfig(dequantize=True)
    model = type(model).from_pretrained(folder, dtype=torch.float32, quantization_config=quantization,
                                        attn_implementation="eager").eval()
    write_reference(folder, model)


if __name__ == "__main__":
    write_cases(CASES, write_case)
