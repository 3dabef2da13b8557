"""Gemma 4's GGUF, as llama.cpp's conversion/gemma.py writes it: keys of layers that differ, and tensors."""

import torch

# Hugging Face's name of a layer's tensor -> GGUF's.
GEMMA4_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "router.proj": "ffn_gate_inp", "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm",
}
GLOBAL_NAMES = {
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
# Those without an ending.
BARE = {"layer_scalar": "layer_output_scale.weight", "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "experts.gate_up_proj": "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight"}


class Sizes:
    """A configuration by the values that it was made of: transformers refuses those of layers that differ."""

    def __init__(self, config, values):
        self._config, self._values = config, values

    def __getattr__(self, name):
        if name in self._values:
            value = self._values[name]
            return None if value == "null" else value
        return getattr(self._config, name)


def is_gemma4(config):
    return config.model_type == "gemma4_text"


def add_keys(writer, config):
    has_window = [kind == "sliding_attention" for kind in config.layer_types]
    reusing = config.num_kv_shared_layers
    writer.add_sliding_window(config.sliding_window)
    writer.add_sliding_window_pattern(has_window)
    writer.add_shared_kv_layers(reusing)
    writer.add_embedding_length_per_layer_input(config.hidden_size_per_layer_input or 0)
    full, own = config.global_head_dim, config.head_dim
    writer.add_key_length(full)
    writer.add_value_length(full)
    writer.add_key_length_swa(own)
    writer.add_value_length_swa(own)
    writer.add_rope_dimension_count(full)
    writer.add_rope_dimension_count_swa(own)
    ropes = config.rope_parameters
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    width, first = config.intermediate_size, config.num_hidden_layers - reusing
    if config.use_double_wide_mlp:
        writer.add_feed_forward_length([width * (1 if i < first else 2)
                                        for i in range(config.num_hidden_layers)])
    else:
        writer.add_feed_forward_length(width)
    heads, full_heads = config.num_key_value_heads, getattr(config, "num_global_key_value_heads", None)
    if full_heads is None:
        writer.add_head_count_kv(heads)
    else:
        writer.add_head_count_kv([heads if windowed else full_heads for windowed in has_window])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.final_logit_softcapping:
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.enable_moe_block:
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.top_k_experts)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)


def own_tensors(layer, rest, tensor):
    if rest in BARE:
        yield f"blk.{layer}.{BARE[rest]}", tensor


def divisors(config):
    """Of rope's pairs in layers without a window: those that are not turned have a huge one."""
    pairs = config.global_head_dim // 2
    turned = int(pairs * config.rope_parameters["full_attention"]["partial_rotary_factor"])
    return torch.tensor([1.0] * turned + [1e30] * (pairs - turned))
