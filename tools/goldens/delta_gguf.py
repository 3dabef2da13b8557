"""Qwen3-Next's GGUF, as llama.cpp's conversion/qwen.py writes it: keys and tensors of gated delta nets."""

import torch

# Hugging Face's name of a layer's tensor -> GGUF's.
DELTA_NAMES = {
    "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
}


def has_delta(config):
    return hasattr(config, "linear_num_key_heads")


def add_keys(writer, config):
    if not has_delta(config):
        return
    writer.add_ssm_conv_kernel(config.linear_conv_kernel_dim)
    writer.add_ssm_state_size(config.linear_key_head_dim)
    writer.add_ssm_group_count(config.linear_num_key_heads)
    writer.add_ssm_time_step_rank(config.linear_num_value_heads)
    writer.add_ssm_inner_size(config.linear_value_head_dim * config.linear_num_value_heads)
    writer.add_full_attention_interval(config.full_attention_interval)


def adds_one(name):
    """Whether GGUF's weights of a norm have 1 added: all but those behind the delta rule."""
    return "norm" in name and not name.endswith("linear_attn.norm.weight")


def projections(config, layer, tensor):
    """Rows of [q, k, v, z] by key head, as [q, k, v] and z."""
    features = config.linear_num_value_heads * config.linear_value_head_dim
    per_head = features // config.linear_num_key_heads
    groups = tensor.unflatten(0, (config.linear_num_key_heads, -1))
    q, k, v, z = groups.split([config.linear_key_head_dim] * 2 + [per_head] * 2, 1)
    yield f"blk.{layer}.attn_qkv.weight", torch.cat([x.flatten(0, 1) for x in (q, k, v)])
    yield f"blk.{layer}.attn_gate.weight", z.flatten(0, 1)


def own_tensors(config, layer, rest, tensor):
    """Those that are not stored as they are; none of others."""
    if rest == "linear_attn.A_log":
        yield f"blk.{layer}.ssm_a", -tensor.float().exp()
    if rest == "linear_attn.dt_bias":
        yield f"blk.{layer}.ssm_dt.bias", tensor
    if rest == "linear_attn.in_proj_qkvz.weight":
        yield from projections(config, layer, tensor)
