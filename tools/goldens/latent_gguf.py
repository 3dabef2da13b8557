"""DeepSeek's GGUF, as llama.cpp's conversion/deepseek.py writes it: keys and tensors of latent
attention. Until its version b5100 what makes keys and values was one matrix, later two."""

import gguf

LATENT_TYPES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")
# Cases whose files are of the older form.
OLD_TYPES = ("deepseek_v2",)
# Hugging Face's name of a layer's tensor -> GGUF's.
LATENT_NAMES = {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
}


def is_latent(config):
    return config.model_type in LATENT_TYPES


def num_kv_heads(config):
    """Newer files count the latent as one."""
    is_new = is_latent(config) and config.model_type not in OLD_TYPES
    return 1 if is_new else config.num_key_value_heads


def add_attention_keys(writer, config):
    rank, turned = config.kv_lora_rank, config.qk_rope_head_dim
    key_dim = config.qk_nope_head_dim + turned
    is_old = config.model_type in OLD_TYPES
    writer.add_key_length(key_dim if is_old else rank + turned)
    writer.add_value_length(config.v_head_dim if is_old else rank)
    if not is_old:
        writer.add_key_length_mla(key_dim)
        writer.add_value_length_mla(config.v_head_dim)
    writer.add_kv_lora_rank(rank)
    if config.q_lora_rank:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_rope_dimension_count(turned)


def add_expert_keys(writer, config):
    is_sigmoid = config.model_type != "deepseek_v2"
    kinds = gguf.ExpertGatingFuncType
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_gating_func(kinds.SIGMOID if is_sigmoid else kinds.SOFTMAX)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(config.norm_topk_prob)
    if config.n_group > 1:
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    plain = getattr(config, "first_k_dense_replace", None)
    if plain is None:
        plain = config.mlp_layer_types.count("dense")
    writer.add_leading_dense_block_count(plain)


def add_keys(writer, config):
    """False for other models."""
    if not is_latent(config):
        return False
    add_attention_keys(writer, config)
    add_expert_keys(writer, config)
    scaling = getattr(config, "rope_scaling", None) or getattr(config, "rope_parameters", {})
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])
    return True


def key_value_tensors(config, layer, tensor):
    """What makes keys, transposed, and what makes values, of each head."""
    if config.model_type in OLD_TYPES:
        yield f"blk.{layer}.attn_kv_b.weight", tensor
        return
    heads = tensor.unflatten(0, (config.num_attention_heads, -1))
    plain = config.qk_nope_head_dim
    yield f"blk.{layer}.attn_k_b.weight", heads[:, :plain].transpose(1, 2).contiguous()
    yield f"blk.{layer}.attn_v_b.weight", heads[:, plain:].contiguous()


def single_experts(state):
    """transformers 5 stacks a layer's experts, and their gates and ups, but saves each alone."""
    for name, tensor in state.items():
        base, _, part = name.rpartition(".")
        if not base.endswith(".experts"):
            yield name, tensor
            continue
        for number, own in enumerate(tensor):
            parts = {"down_proj": own}
            if part == "gate_up_proj":
                parts = dict(zip(("gate_proj", "up_proj"), own.chunk(2)))
            for kind, numbers in parts.items():
                yield f"{base}.{number}.{kind}.weight", numbers.contiguous()
