#!/usr/bin/env python3
"""Writes tests/models/data/families/{qwen3_fp8,deepseek_v3_fp8}: tiny checkpoints whose matrices are E4M3 numbers of
8 bits with a scale for each block.

    python3 tools/goldens/scaled_floats.py [FOLDER]

Needs the PyPI packages torch, transformers 5.24, accelerate and safetensors.

FOLDER/<case>/config.json, model.safetensors   matrices float8_e4m3fn with `weight_scale_inv` in float32, the rest
                                               bfloat16
FOLDER/<case>/ref.safetensors                  as make_model_goldens.py writes it. transformers makes plain numbers of
    qwen3_fp8 itself (`dequantize`), which needs blocks that divide the matrices. Those of deepseek_v3_fp8 don't, so
    they are scaled here as DeepSeek's weight_dequant does (DeepSeek-V3, inference/kernel.py) and put into its model.
"""

import torch
import transformers
from model_cases import LATENT, LATENT_YARN, NULL
from tiny_checkpoint import write_cases, write_checkpoint, write_reference

LARGEST = 448.0
# Case: class of the configuration, its values, rows and columns of a block.
CASES = {
    # Cuts for 2 to 4 ranks fall inside blocks, of rows and of columns.
    "qwen3_fp8": ("Qwen3", dict(
        hidden_size=48, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        head_dim=8, vocab_size=61, max_position_embeddings=64), (24, 24)),
    # The last blocks are smaller in most matrices.
    "deepseek_v3_fp8": ("DeepseekV3", LATENT | dict(
        q_lora_rank=20, n_group=4, topk_group=2, rope_scaling=LATENT_YARN), (12, 9)),
}
PLAIN = ("embed_tokens", "lm_head", "norm", ".gate.", "e_score_correction_bias")


def is_plain(name, tensor):
    return tensor.dim() == 1 or any(part in name for part in PLAIN)


def spread(scale_RC, block, shape):
    """A scale for each number."""
    rows = scale_RC.repeat_interleave(block[0], 0)[: shape[0]]
    return rows.repeat_interleave(block[1], 1)[:, : shape[1]]


def quantize(weight_OI, block):
    out, width = weight_OI.shape
    counts = [-(-size // run) for size, run in zip(weight_OI.shape, block)]
    padded = torch.zeros(counts[0] * block[0], counts[1] * block[1])
    padded[:out, :width] = weight_OI.float()
    largest_RC = padded.reshape(counts[0], block[0], counts[1], block[1]).abs().amax((1, 3))
    scale_RC = largest_RC / LARGEST
    numbers = (weight_OI.float() / spread(scale_RC, block, weight_OI.shape)).to(torch.float8_e4m3fn)
    return numbers, scale_RC


def make_state(model, seed):
    """Random numbers under the names that checkpoints have, single experts."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, parameter in model.state_dict().items():
        numbers = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            numbers = 0.3 * numbers + (1 if "norm" in name else 0)
        elif "embed_tokens" not in name:
            numbers *= (3 if ".gate." in name else 1.5) / parameter.shape[-1] ** 0.5
        numbers = numbers.to(torch.bfloat16)
        if name.endswith("experts.gate_up_proj"):
            base = name.removesuffix("gate_up_proj")
            for expert, both in enumerate(numbers):
                for part, half in zip(("gate", "up"), both.chunk(2)):
                    state[f"{base}{expert}.{part}_proj.weight"] = half.contiguous()
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(numbers):
                state[f"{name.removesuffix('down_proj')}{expert}.down_proj.weight"] = down.contiguous()
        else:
            state[name] = numbers
    return state


def stored(state, block):
    """The tensors of the file, and what its matrices stand for."""
    tensors, values = {}, {}
    for name, tensor in state.items():
        if is_plain(name, tensor):
            tensors[name], values[name] = tensor, tensor.float()
            continue
        numbers, scale_RC = quantize(tensor, block)
        tensors[name] = numbers
        tensors[name + "_scale_inv"] = scale_RC
        values[name] = numbers.float() * spread(scale_RC, block, tensor.shape)
    return tensors, values


def joined(values, names):
    """Experts as the model's class holds them, all of a layer in one tensor."""
    whole = {}
    for name in names:
        if name in values:
            whole[name] = values[name]
            continue
        base, part = name.rsplit(".", 1)
        parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
        count = sum(key.startswith(base + ".") and key.endswith(parts[0] + ".weight") for key in values)
        whole[name] = torch.stack([torch.cat([values[f"{base}.{expert}.{each}.weight"] for each in parts])
                                   for expert in range(count)])
    return whole


def write_case(folder, name, seed):
    kind, given, block = CASES[name]
    given = {key: None if value == NULL else value for key, value in given.items() if value is not None}
    config = getattr(transformers, kind + "Config")(**given)
    config._attn_implementation = "eager"
    config.dtype = torch.bfloat16
    model = getattr(transformers, kind + "ForCausalLM")(config).float().eval()
    tensors, values = stored(make_state(model, seed), block)
    write_checkpoint(folder, kind, config, tensors, {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": list(block),
        "modules_to_not_convert": ["lm_head"]})
    values = joined(values, model.state_dict())
    model.load_state_dict(values)
    if name == "qwen3_fp8":
        quantization = transformers.FineGrainedFP8Config(weight_block_size=block, dequantize=True)
        model = type(model).from_pretrained(folder, dtype=torch.float32, quantization_config=quantization,
                                            attn_implementation="eager").eval()
        for key, tensor in model.state_dict().items():
            assert tensor.dtype == torch.float32 and torch.equal(tensor, values[key]), key
    write_reference(folder, model)


if __name__ == "__main__":
    write_cases(CASES, write_case)
