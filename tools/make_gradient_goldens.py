#!/usr/bin/env python3
"""Writes tests/models/data/gradients.json: gradients of every family that transformers computes.

Needs the PyPI packages torch, transformers 5.24, safetensors, numpy.
Usage: make_gradient_goldens.py [FILE]

Of each golden checkpoint in tests/models/data/families, in float32:
    ids, targets  [B, T] (-100: counts for nothing)
    loss          the sum over the tokens that count
    gradients     by parameter, single experts each: [sum of gradient * wave, norm of the gradient],
                  where wave[i] = sin(0.7 i + 0.3) for element i of the parameter in its own order
"""

import json
import pathlib
import sys

import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/models/data"
B, T = 2, 11
# The families once each; of a family with several configurations, those that differ in layers.
CASES = ["llama", "llama_bias", "mistral", "qwen2", "qwen3", "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_moe_mixed",
         "smollm3", "granite", "phi3", "olmo2", "gemma2", "gemma3", "gpt_oss", "ministral3", "glm4",
         "deepseek_v2", "lfm2", "qwen3_next", "qwen3_5",
         "qwen3_5_moe", "gemma4", "gemma4_small"]


def make_batch(config):
    b, t = torch.arange(B).unsqueeze(1), torch.arange(T).unsqueeze(0)
    ids = (7 * b + 5 * t * t + 3 * t + b * t) % config.vocab_size
    # transformers gives the row of padding no gradient.
    ids[ids == config.pad_token_id] = 2 if config.pad_token_id != 2 else 3
    targets = (11 * b + 2 * t * t + 9 * t + 1) % config.vocab_size
    targets[0, 3:5] = targets[1, 0] = -100
    return ids, targets


def digest(gradient):
    gradient = gradient.double().flatten()
    wave = torch.sin(0.7 * torch.arange(gradient.numel(), dtype=torch.float64) + 0.3)
    return [(gradient * wave).sum().item(), gradient.norm().item()]


def halves(base, gradient, is_oss=False, kind="weight"):
    """gate and up of one parameter: one after the other, or (gpt-oss) in turns."""
    gate, up = (gradient[0::2], gradient[1::2]) if is_oss else gradient.chunk(2)
    return [(f"{base}.gate_proj.{kind}", gate), (f"{base}.up_proj.{kind}", up)]


def expert_parts(base, last, gradient, is_oss):
    """Single experts, where a parameter has all of them; gpt-oss has them [in, out]."""
    kind = "bias" if last.endswith("_bias") else "weight"
    for expert, own in enumerate(gradient):
        own = own.T if is_oss and kind == "weight" else own
        if last.startswith("gate_up_proj"):
            yield from halves(f"{base}.{expert}", own, is_oss, kind)
        else:
            yield f"{base}.{expert}.down_proj.{kind}", own


def delta_parts(config, base, last, gradient):
    """Qwen3-Next's projections, which lie side by side for each key head."""
    heads, per_head = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads
    own = gradient.unflatten(0, (heads, -1))
    if last == "in_proj_ba":
        b, a = own.split(per_head, dim=1)
        return [(f"{base}.in_proj_b.weight", b.flatten(0, 1)), (f"{base}.in_proj_a.weight", a.flatten(0, 1))]
    key, value = config.linear_key_head_dim, per_head * config.linear_value_head_dim
    q, k, v, z = (part.flatten(0, 1) for part in own.split([key, key, value, value], dim=1))
    return [(f"{base}.in_proj_qkv.weight", torch.cat([q, k, v])), (f"{base}.in_proj_z.weight", z)]


def parts_of(config, name, gradient):
    """(name, gradient) of the parameters that checkpoints, and weft, have for one of transformers'."""
    base, _, last = name.removesuffix(".weight").rpartition(".")
    if last in ("A_log", "dt_bias", "sinks"):
        return [(f"{name}.weight", gradient)]
    if base.endswith(".experts"):
        return expert_parts(base, last, gradient, config.model_type == "gpt_oss")
    if last == "gate_up_proj":
        return halves(base, gradient)
    if last == "qkv_proj":
        heads = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        rows = [len(gradient) // sum(heads) * own for own in heads]
        return [(f"{base}.{each}_proj.weight", part) for each, part in zip("qkv", gradient.split(rows))]
    if last in ("in_proj_ba", "in_proj_qkvz"):
        return delta_parts(config, base, last, gradient)
    return [(name, gradient)]


def own_name(config, name):
    """Mixtral's checkpoints have names of their own."""
    if config.model_type != "mixtral":
        return name
    name = name.replace(".mlp.", ".block_sparse_moe.")
    for theirs, own in {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}.items():
        name = name.replace(f".{theirs}.", f".{own}.")
    return name


def make_case(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        DATA / "families" / name, dtype=torch.float32, attn_implementation="eager").eval()
    ids, targets = make_batch(model.config)
    logits = model(ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    loss.backward()
    gradients = {}
    for parameter_name, parameter in model.named_parameters():
        if parameter.grad is None:
            print(f"{name}: {parameter_name} gets no gradient", file=sys.stderr)
            continue
        for part_name, gradient in parts_of(model.config, parameter_name, parameter.grad):
            gradients[own_name(model.config, part_name)] = digest(gradient)
    return {"ids": ids.tolist(), "targets": targets.tolist(), "loss": loss.item(), "gradients": gradients}


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "gradients.json"
    cases = {name: make_case(name) for name in CASES}
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items()]
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    main()
