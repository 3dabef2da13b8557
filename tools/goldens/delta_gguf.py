"""Qwen3-Next's and Qwen3.5's GGUF, as llama.cpp's conversion/qwen.py writes it: keys and tensors of gated delta nets."""

import torch

# Hugging Face's name of a layer's tensor -> GGUF's.
DELTA_NAMES = {
    "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta", "linear_attn.in_proj_a": "ssm_alpha",
}
# Whose GGUF has the first value heads of all key heads, then the second ones, and so on.
TILED = ("qwen35", "qwen35moe")


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
    writer.add_full_attention_interval(config.layer_types.index("full_attention") + 1)
    sections = (getattr(config, "rope_parameters", None) or {}).get("mrope_section")
    if sections:
        writer.add_rope_dimension_sections(sections + [0])


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


def reordered(tensor, dim, heads, head_dim):
    """Heads along a dim, which are `heads` groups, as the first ones of all groups, the second ones, and so on."""
    parts = tensor.unflatten(dim, (heads, -1, head_dim))
    return parts.transpose(dim, dim + 1).flatten(dim, dim + 2)


def tiled(architecture, config, rest, tensor, back=False):
    """A layer's tensor with its value heads in GGUF's order, or out of it."""
    if architecture not in TILED or not rest.startswith("linear_attn."):
        return tensor
    heads, size = config.linear_num_key_heads, config.linear_value_head_dim
    before = 2 * heads * config.linear_key_head_dim
    heads = config.linear_num_value_heads // heads if back else heads
    name = rest.removeprefix("linear_attn.")
    if name.startswith(("in_proj_qkv.", "conv1d.")):
        return torch.cat([tensor[:before], reordered(tensor[before:], 0, heads, size)])
    if name.startswith("in_proj_z."):
        return reordered(tensor, 0, heads, size)
    if name.startswith("out_proj."):
        return reordered(tensor, 1, heads, size)
    return tensor if name.startswith("norm.") else reordered(tensor, 0, heads, 1)


def own_tensors(config, layer, rest, tensor):
    """Those that are not stored as they are; none of others."""
    if rest == "linear_attn.A_log":
        yield f"blk.{layer}.ssm_a", -tensor.float().exp()
    if rest == "linear_attn.dt_bias":
        yield f"blk.{layer}.ssm_dt.bias", tensor
    if rest == "linear_attn.in_proj_qkvz.weight":
        yield from projections(config, layer, tensor)
