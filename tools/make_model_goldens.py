#!/usr/bin/env python3
"""Writes tests/models/data/families: tiny random checkpoints of every family of models.

Needs the PyPI packages torch, transformers 4.57, safetensors, numpy, gguf and, for one case, mlx.
Usage: make_model_goldens.py [FOLDER] [CASE…]

FOLDER/<case>/config.json, model.safetensors   as transformers saves them, bfloat16
FOLDER/<case>/model.gguf                       the same weights in llama.cpp's layout, where it has
                                               the family; norms and biases float32
FOLDER/<case>/ref.safetensors                  what transformers computes in float32 from these
    weights: `logits` [tokens, vocabulary]; metadata `tokens`. Where the length of a pass matters
    (dynamic rope), `piece_logits` are those of several passes with a cache; metadata `pieces`.
"""

import json
import pathlib
import sys

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_TOKENS = 20
SMALL = dict(hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, vocab_size=61, max_position_embeddings=64)
USUAL = dict(hidden_size=48, intermediate_size=44, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, vocab_size=101, max_position_embeddings=64)
EXPERTS = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               vocab_size=61, max_position_embeddings=64)
WIDE_EXPERTS = EXPERTS | dict(hidden_size=64, intermediate_size=64, num_local_experts=3,
                              num_experts_per_tok=2, num_attention_heads=8, head_dim=8)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
# 6 heads over 3 kv heads: uneven over 2 and over 4 ranks.
UNEVEN = SMALL | dict(num_attention_heads=6, num_key_value_heads=3, head_dim=None)
# Case: class of the configuration, its values, GGUF's architecture (None: llama.cpp has no such).
CASES = {
    "llama": ("Llama", USUAL, "llama"),
    "llama_bias": ("Llama", USUAL | dict(num_key_value_heads=3, head_dim=10, attention_bias=True,
                                         mlp_bias=True, tie_word_embeddings=True), "llama"),
    "llama_linear": ("Llama", SMALL | dict(rope_scaling={"type": "linear", "factor": 4.0}), "llama"),
    "llama_dynamic": ("Llama", SMALL | dict(max_position_embeddings=12, rope_scaling={
        "rope_type": "dynamic", "factor": 2.0}), None),
    "llama_llama3": ("Llama", SMALL | dict(rope_scaling=LLAMA3, rope_theta=500.0), "llama"),
    "llama_yarn": ("Llama", SMALL | dict(rope_scaling=YARN), "llama"),
    "mistral": ("Mistral", USUAL | dict(head_dim=10, sliding_window=5), "llama"),
    "qwen2": ("Qwen2", USUAL | dict(tie_word_embeddings=True), "qwen2"),
    "qwen2_window": ("Qwen2", SMALL | dict(use_sliding_window=True, sliding_window=6,
                                           max_window_layers=1, head_dim=None), None),
    "qwen3": ("Qwen3", USUAL | dict(head_dim=12), "qwen3"),
    "mixtral": ("Mixtral", EXPERTS | dict(intermediate_size=28, num_local_experts=4,
                                          num_experts_per_tok=2), "llama"),
    "qwen2_moe": ("Qwen2Moe", EXPERTS | dict(
        moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=6,
        num_experts_per_tok=3, norm_topk_prob=False), "qwen2moe"),
    "qwen3_moe": ("Qwen3Moe", EXPERTS | dict(
        moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
        head_dim=10), "qwen3moe"),
    "qwen3_moe_mixed": ("Qwen3Moe", EXPERTS | dict(
        num_hidden_layers=3, mlp_only_layers=[1], intermediate_size=20, moe_intermediate_size=12,
        num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, head_dim=8), None),
    # Only as GGUF: matrices in Q8_0, whose blocks of 32 do not divide evenly over ranks.
    "mixtral_q8_0": ("Mixtral", WIDE_EXPERTS, "llama"),
    # Only as a folder, as mlx-lm writes it: matrices affine, experts stacked.
    "mixtral_mlx": ("Mixtral", WIDE_EXPERTS, None),
    # The same weights before they were quantized.
    "mixtral_plain": ("Mixtral", WIDE_EXPERTS, None),
    # Every fourth layer is without rope, which GGUF's readers take for granted.
    "smollm3": ("SmolLM3", UNEVEN | dict(num_hidden_layers=4, pad_token_id=0), "smollm3"),
    "smollm3_window": ("SmolLM3", SMALL | dict(
        no_rope_layers=[0, 1], use_sliding_window=True, sliding_window=6, attention_bias=True,
        tie_word_embeddings=False, pad_token_id=0), None),
    "granite": ("Granite", UNEVEN | dict(
        embedding_multiplier=3.0, attention_multiplier=0.75, residual_multiplier=0.375,
        logits_scaling=1.5, tie_word_embeddings=True), "granite"),
    "phi3": ("Phi3", UNEVEN | dict(head_dim=8, partial_rotary_factor=0.5, pad_token_id=0), "phi3"),
    "olmo2": ("Olmo2", UNEVEN, "olmo2"),
}
# Hugging Face's name of a layer's tensor -> GGUF's.
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
}
# Where an architecture has another name.
OWN_LAYER_NAMES = {"olmo2": {"post_attention_layernorm": "post_attention_norm",
                             "post_feedforward_layernorm": "post_ffw_norm"}}
# Architectures whose rope turns pairs of neighbours, so that q and k have other rows.
PAIRED = ("llama", "smollm3", "granite")
EXPERT_NAMES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down",
                "up_proj": "up"}
GLOBAL_NAMES = {"model.embed_tokens.weight": "token_embd.weight",
                "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def make_model(kind, values, seed):
    config = getattr(transformers, kind + "Config")(**{k: v for k, v in values.items()
                                                       if v is not None})
    config._attn_implementation = "eager"
    model = getattr(transformers, kind + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                numbers = 0.3 * numbers + (1 if "norm" in name else 0)
            elif "embed_tokens" not in name:
                # Router scores far apart, so that no rounding decides which expert is taken.
                is_router = name.endswith((".gate.weight", "shared_expert_gate.weight"))
                numbers *= (3 if is_router else 1.5) / parameter.shape[1] ** 0.5
            parameter.copy_(numbers.to(torch.bfloat16))
    return config, model


def write_reference(folder, config, model, has_pieces):
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(0, config.vocab_size, (1, NUM_TOKENS), generator=generator)
    metadata = {"tokens": ",".join(str(i) for i in ids[0].tolist())}
    with torch.no_grad():
        tensors = {"logits": model(ids).logits[0].float().contiguous()}
        if has_pieces:
            cache, parts, pieces = transformers.DynamicCache(config=config), [], [8, 8, 4]
            for piece in torch.split(ids, pieces, dim=1):
                parts.append(model(piece, past_key_values=cache, use_cache=True).logits[0])
            tensors["piece_logits"] = torch.cat(parts).float().contiguous()
            metadata["pieces"] = ",".join(str(n) for n in pieces)
    safetensors.torch.save_file(tensors, folder / "ref.safetensors", metadata)


def permuted(tensor, heads):
    """llama.cpp's order of the rows of q and k of PAIRED architectures: pairs side by side."""
    return tensor.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def gguf_tensors(architecture, config, state):
    experts = {}
    for name, tensor in state.items():
        if name in GLOBAL_NAMES:
            yield GLOBAL_NAMES[name], tensor
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        base, suffix = rest.rsplit(".", 1)
        if ".experts." in rest:
            number, part = base.rsplit(".", 2)[1:]
            stack = f"blk.{layer}.ffn_{EXPERT_NAMES[part]}_exps.weight"
            experts.setdefault(stack, {})[int(number)] = tensor
            continue
        if architecture in PAIRED and base.endswith(("q_proj", "k_proj")):
            is_q = base.endswith("q_proj")
            tensor = permuted(tensor, config.num_attention_heads if is_q else
                              config.num_key_value_heads)
        names = LAYER_NAMES | OWN_LAYER_NAMES.get(architecture, {})
        yield f"blk.{layer}.{names[base]}.{suffix}", tensor.squeeze()
    for stack, parts in experts.items():
        yield stack, torch.stack([parts[i] for i in range(len(parts))])


def llama3_divisors(config, dim):
    scaling = config.rope_scaling
    plain = 1.0 / config.rope_theta ** (torch.arange(0, dim, 2).double() / dim)
    scaled, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    assert scaling["rope_type"] == "llama3"
    return (plain / scaled.double()).float()


def is_quantized(name, tensor):
    return tensor.dim() == 2 and "gate.weight" not in name


def quantize_matrices(model):
    """Puts in the place of matrices what their Q8_0 form stands for."""
    kind = gguf.GGMLQuantizationType.Q8_0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_quantized(name, parameter):
                blocks = gguf.quants.quantize(parameter.numpy(), kind)
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(blocks, kind)))


def write_mlx(folder, config, model):
    """Quantizes the matrices as mlx-lm does, also in `model`, and writes its folder."""
    import mlx.core as mx
    bits, group_size, tensors, experts = 4, 32, {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not is_quantized(name, parameter):
                tensors[name] = parameter.detach().clone()
                continue
            parts = mx.quantize(mx.array(parameter.numpy()), group_size=group_size, bits=bits)
            whole = mx.dequantize(*parts, group_size=group_size, bits=bits)
            parameter.copy_(torch.from_numpy(np.array(whole)))
            base = name.removesuffix(".weight")
            for suffix, part in zip(("weight", "scales", "biases"), parts):
                numbers = torch.from_numpy(np.array(part))
                if ".experts." in base:
                    layer, rest = base.split(".experts.")
                    number, old = rest.split(".")
                    stack = f"{layer}.switch_mlp.{EXPERT_NAMES[old]}_proj.{suffix}"
                    experts.setdefault(stack, {})[int(number)] = numbers
                else:
                    tensors[f"{base}.{suffix}"] = numbers
    for stack, parts in experts.items():
        tensors[stack] = torch.stack([parts[i] for i in range(len(parts))])
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "mlx"})
    text = json.loads(config.to_json_string(use_diff=True))
    text["quantization"] = {"group_size": group_size, "bits": bits}
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")


def add_keys(writer, config, dim):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_rope_dimension_count(int(dim * getattr(config, "partial_rotary_factor", 1.0)))
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_vocab_size(config.vocab_size)
    if config.model_type == "mistral":
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
    if config.model_type == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    num_experts = getattr(config, "num_local_experts", getattr(config, "num_experts", None))
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    scaling = config.rope_scaling if getattr(config, "rope_scaling", None) else {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def write_gguf(path, architecture, config, state, matrix_kind):
    writer = gguf.GGUFWriter(path, architecture)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    add_keys(writer, config, dim)
    tensors = list(gguf_tensors(architecture, config, state))
    if getattr(config, "rope_scaling", None) and config.rope_scaling["rope_type"] == "llama3":
        tensors.append(("rope_freqs.weight", llama3_divisors(config, dim)))
    for name, tensor in tensors:
        numbers = tensor.float().numpy()
        if numbers.ndim == 1:
            writer.add_tensor(name, numbers)
            continue
        kind = gguf.GGMLQuantizationType.BF16 if "ffn_gate_inp" in name else matrix_kind
        blocks = gguf.quants.quantize(np.ascontiguousarray(numbers), kind)
        assert np.array_equal(gguf.quants.dequantize(blocks, kind), numbers), name
        writer.add_tensor(name, blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_case(folder, name, seed):
    kind, values, architecture = CASES[name]
    config, model = make_model(kind, values, seed)
    folder.mkdir(parents=True, exist_ok=True)
    is_gguf_only = name.endswith("q8_0")
    is_mlx = name.endswith("mlx")
    if is_gguf_only:
        quantize_matrices(model)
    if is_mlx:
        write_mlx(folder, config, model)
    write_reference(folder, config, model, "dynamic" in name)
    state = {key: tensor for key, tensor in model.state_dict().items()
             if not (config.tie_word_embeddings and key == "lm_head.weight")}
    if architecture:
        kinds = gguf.GGMLQuantizationType
        write_gguf(folder / "model.gguf", architecture, config, state,
                   kinds.Q8_0 if is_gguf_only else kinds.BF16)
    if is_gguf_only or is_mlx:
        return
    text = json.loads(config.to_json_string(use_diff=True))
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    safetensors.torch.save_file({key: tensor.to(torch.bfloat16) for key, tensor in state.items()},
                                folder / "model.safetensors", {"format": "pt"})


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/models/data/families"
    seeds = {name: seed for seed, name in enumerate(CASES)}
    seeds["mixtral_plain"] = seeds["mixtral_mlx"]
    for name, seed in seeds.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            write_case(out / name, name, seed)


if __name__ == "__main__":
    main()
