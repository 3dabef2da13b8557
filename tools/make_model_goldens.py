#!/usr/bin/env python3
"""Writes tests/models/data/families: tiny random checkpoints of every family of models.

Needs the PyPI packages torch, transformers 4.57 (5 for those that 4 does not have), safetensors, numpy, gguf and, for one case, mlx.
Usage: make_model_goldens.py [FOLDER] [CASE…]

FOLDER/<case>/config.json, model.safetensors   as transformers saves them, bfloat16
FOLDER/<case>/model.gguf                       the same weights in llama.cpp's layout, where it has
                                               the family; norms and biases float32
FOLDER/<case>/ref.safetensors                  what transformers computes in float32 from these
    weights: `logits` [tokens, vocabulary]; metadata `tokens`. Where the length of a pass matters
    (dynamic rope), `piece_logits` are those of several passes with a cache; metadata `pieces`.
"""

import json
import math
import pathlib
import sys

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

from goldens import delta_gguf, gemma4_gguf, grid_blocks, latent_gguf, oss_gguf
from goldens.model_cases import CASES, NULL

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_TOKENS = 20
# Hugging Face's name of a layer's tensor -> GGUF's.
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.router": "ffn_gate_inp", "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
    "mlp.shared_experts.up_proj": "ffn_up_shexp", "mlp.shared_experts.down_proj": "ffn_down_shexp",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
} | latent_gguf.LATENT_NAMES | delta_gguf.DELTA_NAMES
# Where an architecture has another name.
AFTER = {"post_attention_layernorm": "post_attention_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
GEMMA_NAMES = AFTER | {"pre_feedforward_layernorm": "ffn_norm"}
LATE = {"post_attention_layernorm": "post_attention_norm"}
GLM = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
LFM2 = {"operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
        "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv",
        "conv.out_proj": "shortconv.out_proj", "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"}
OWN_LAYER_NAMES = {"gpt-oss": LATE, "glm4moe": LATE, "qwen3next": LATE, "qwen35": LATE,
                   "qwen35moe": LATE, "glm4": GLM, "olmo2": AFTER,
                   "gemma2": GEMMA_NAMES, "gemma3": GEMMA_NAMES, "lfm2": LFM2,
                   "gemma4": gemma4_gguf.GEMMA4_NAMES}
# Whose GGUF has 1 added to the weights of norms.
ADDED = ("gemma2", "gemma3", "qwen3next", "qwen35", "qwen35moe")
# Architectures whose rope turns pairs of neighbours, so that q and k have other rows.
PAIRED = ("llama", "smollm3", "granite", "mistral3")
EXPERT_NAMES = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down",
                "up_proj": "up"}
GLOBAL_NAMES = {"model.embed_tokens.weight": "token_embd.weight",
                "model.norm.weight": "output_norm.weight",
                "model.embedding_norm.weight": "token_embd_norm.weight", "lm_head.weight": "output.weight"} | gemma4_gguf.GLOBAL_NAMES


def make_model(kind, values, seed):
    text = "Text" if kind in ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe") else ""
    given = {k: None if v == NULL else v for k, v in values.items() if v is not None}
    config = getattr(transformers, kind + text + "Config")(**given)
    config._attn_implementation = "eager"
    model = getattr(transformers, kind + "ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            numbers = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                is_less = kind in ("Gemma2", "Gemma3") or delta_gguf.has_delta(config)
                is_scale = name.endswith(("router.scale", "per_expert_scale"))
                is_norm = is_scale or "norm" in name and not (is_less and delta_gguf.adds_one(name))
                numbers = 0.3 * numbers + (1 if is_norm else 0)
            elif "embed_tokens" not in name:
                # Router scores far apart, so that no rounding decides which expert is taken.
                is_router = name.endswith((".gate.weight", "shared_expert_gate.weight",
                                           "router.weight", "router.proj.weight"))
                numbers *= (3 if is_router else 1.5) / parameter.shape[1] ** 0.5
                # Some gates and ups are beyond the limits.
                numbers *= 20 if name.endswith("gate_up_proj_bias") else 1
            parameter.copy_(numbers.to(torch.bfloat16))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                numbers = 0.3 * torch.randn(buffer.shape, generator=generator)
                buffer.copy_(numbers.to(torch.bfloat16))
            if name.endswith("layer_scalar"):
                numbers = 1 + 0.3 * torch.randn(buffer.shape, generator=generator)
                buffer.copy_(numbers.to(torch.bfloat16))
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
        if architecture in ADDED and delta_gguf.adds_one(name):
            tensor = tensor.float() + 1
        if name in GLOBAL_NAMES:
            yield GLOBAL_NAMES[name], tensor
            continue
        layer, rest = name.removeprefix("model.layers.").split(".", 1)
        if rest == "mlp.gate.e_score_correction_bias":
            yield f"blk.{layer}.exp_probs_b.bias", tensor
            continue
        if rest == "self_attn.sinks":
            yield f"blk.{layer}.attn_sinks.weight", tensor
            continue
        if rest.startswith("mlp.experts.") and architecture == "gpt-oss":
            yield from oss_gguf.oss_experts(layer, rest.removeprefix("mlp.experts."), tensor)
            continue
        tensor = delta_gguf.tiled(architecture, config, rest, tensor)
        own = list(delta_gguf.own_tensors(config, layer, rest, tensor))
        own += gemma4_gguf.own_tensors(layer, rest, tensor) if architecture == "gemma4" else []
        if own:
            yield from own
            continue
        if rest == "self_attn.kv_b_proj.weight":
            yield from latent_gguf.key_value_tensors(config, layer, tensor)
            continue
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


def quantize_matrices(architecture, config, model):
    """Puts in the place of matrices what their Q8_0 form stands for."""
    kind = gguf.GGMLQuantizationType.Q8_0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not is_quantized(name, parameter):
                continue
            rest = name.removeprefix("model.layers.").partition(".")[2]
            stored = delta_gguf.tiled(architecture, config, rest, parameter)
            blocks = gguf.quants.quantize(stored.contiguous().numpy(), kind)
            whole = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
            parameter.copy_(delta_gguf.tiled(architecture, config, rest, whole, back=True))


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


def add_lfm2_keys(writer, config):
    width = int(2 * config.intermediate_size / 3)
    multiple = config.block_multiple_of
    writer.add_feed_forward_length(multiple * ((width + multiple - 1) // multiple))
    writer.add_head_count_kv([config.num_key_value_heads if kind == "full_attention" else 0
                              for kind in config.layer_types])
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_shortconv_l_cache(config.conv_L_cache)


def add_family_keys(writer, config, rope):
    if config.model_type in ("mistral", "gpt_oss") or config.model_type.startswith("gemma"):
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "phi3":
        writer.add_sliding_window(config.sliding_window or 0)
    if config.model_type == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if config.model_type == "gemma3_text":
        writer.add_rope_freq_base_swa(config.rope_local_base_freq)
    if config.model_type == "ministral3":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if config.model_type == "glm4_moe":
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_leading_dense_block_count(config.first_k_dense_replace)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_scale(config.routed_scaling_factor)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_group_count(config.n_group)
    if config.model_type == "gpt_oss":
        writer.add_expert_feed_forward_length(config.intermediate_size)
    if config.model_type == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def add_keys(writer, config, dim):
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    if gemma4_gguf.is_gemma4(config):
        writer.add_head_count(config.num_attention_heads)
        writer.add_vocab_size(config.vocab_size)
        gemma4_gguf.add_keys(writer, config)
        return
    if config.model_type == "lfm2":
        add_lfm2_keys(writer, config)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(latent_gguf.num_kv_heads(config))
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_head_count(config.num_attention_heads)
    rope = getattr(config, "rope_parameters", None) or {}
    writer.add_rope_freq_base(rope.get("rope_theta") or config.rope_theta)
    if not latent_gguf.add_keys(writer, config):
        part = rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", 1.0)
        writer.add_rope_dimension_count(int(dim * part))
        writer.add_key_length(dim)
        writer.add_value_length(dim)
    delta_gguf.add_keys(writer, config)
    writer.add_vocab_size(config.vocab_size)
    add_family_keys(writer, config, rope)
    num_experts = getattr(config, "num_local_experts", getattr(config, "num_experts", None))
    num_experts = getattr(config, "n_routed_experts", num_experts)
    if num_experts:
        writer.add_expert_count(num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if hasattr(config, "moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if hasattr(config, "shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    scaling = rope or getattr(config, "rope_scaling", None) or {}
    if scaling.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(scaling["rope_type"]))
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling.get("rope_type") == "longrope":
        original = config.original_max_position_embeddings
        writer.add_rope_scaling_orig_ctx_len(original)
        ratio = config.max_position_embeddings / original
        writer.add_rope_scaling_attn_factors((1 + math.log(ratio) / math.log(original)) ** 0.5)
    if scaling.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def write_gguf(path, architecture, config, state, matrix_kind, known=None):
    writer = gguf.GGUFWriter(path, architecture)
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    add_keys(writer, config, dim)
    tensors = list(gguf_tensors(architecture, config, state))
    if getattr(config, "rope_scaling", None) and config.rope_scaling.get("rope_type") == "llama3":
        tensors.append(("rope_freqs.weight", llama3_divisors(config, dim)))
    lists = getattr(config, "rope_scaling", None) or getattr(config, "rope_parameters", None) or {}
    for kind in ("long", "short") if "long_factor" in lists else ():
        tensors.append((f"rope_factors_{kind}.weight", torch.tensor(lists[f"{kind}_factor"])))
    if architecture == "gemma4":
        tensors.append(("rope_freqs.weight", gemma4_gguf.divisors(config)))
    for name, tensor in tensors:
        numbers = tensor.float().numpy()
        if numbers.ndim == 1:
            writer.add_tensor(name, numbers)
            continue
        is_exact = name.endswith(("bias", "shortconv.conv.weight", "ssm_conv1d.weight"))
        kind = gguf.GGMLQuantizationType.F32 if is_exact else matrix_kind
        if "ffn_gate_inp" in name or ("mxfp4" in str(path) and "exps" not in name):
            kind = gguf.GGMLQuantizationType.BF16
        if known:
            kind, blocks = grid_blocks.known_blocks(known, numbers)
        else:
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
    is_q8 = name.endswith("q8_0")
    is_mlx = name.endswith("mlx")
    known = grid_blocks.fill_model(model, np.random.default_rng(seed)) if "grids" in name else None
    if is_q8:
        quantize_matrices(architecture, config, model)
    if is_mlx:
        write_mlx(folder, config, model)
    made = oss_gguf.quantize_oss_experts(model) if name.endswith("mxfp4") else {}
    write_reference(folder, config, model, "dynamic" in name)
    state = {key: tensor for key, tensor in model.state_dict().items()
             if not (config.tie_word_embeddings and key == "lm_head.weight")}
    if latent_gguf.is_latent(config):
        state = dict(latent_gguf.single_experts(state))
    if architecture == "gemma4":
        config = gemma4_gguf.Sizes(config, values)
    if architecture:
        kinds = gguf.GGMLQuantizationType
        # Published folders of some have experts in one tensor, GGUF each by its part.
        alone = dict(latent_gguf.single_experts(state)) if architecture == "qwen35moe" else state
        write_gguf(folder / "model.gguf", architecture, config, alone,
                   kinds.Q8_0 if is_q8 else kinds.MXFP4 if made else kinds.BF16, known)
    if is_q8 or is_mlx or known:
        return
    text = json.loads(config.to_json_string(use_diff=True))
    if made:
        text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    made |= {key: tensor.to(torch.bfloat16) for key, tensor in state.items()
             if not (made and oss_gguf.is_oss_matrix(key))}
    safetensors.torch.save_file(made, folder / "model.safetensors", {"format": "pt"})


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/models/data/families"
    seeds = {name: seed for seed, name in enumerate(CASES)}
    seeds["mixtral_plain"] = seeds["mixtral_mlx"]
    for name, seed in seeds.items():
        if len(sys.argv) <= 2 or name in sys.argv[2:]:
            write_case(out / name, name, seed)


if __name__ == "__main__":
    main()
