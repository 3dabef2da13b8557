"""The tiny checkpoints that make_model_goldens.py writes: of each the class of the configuration."""

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
GEMMA = UNEVEN | dict(head_dim=8, query_pre_attn_scalar=8)
OSS = EXPERTS | dict(intermediate_size=40, num_local_experts=4, num_experts_per_tok=2,
                     num_attention_heads=6, num_key_value_heads=3, head_dim=8, sliding_window=6,
                     rope_scaling=YARN | {"truncate": False}, rope_theta=10.0, pad_token_id=0)
GEMMA4 = UNEVEN | dict(
    head_dim=8, global_head_dim=16, num_hidden_layers=5, sliding_window=6,
    layer_types=["sliding_attention", "full_attention"] + ["sliding_attention"] * 2 + ["full_attention"],
    final_logit_softcapping=6.0, hidden_size_per_layer_input=0, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                           "rope_theta": 300.0}})
PHI3_LONG = UNEVEN | dict(
    hidden_size=48, partial_rotary_factor=0.5, pad_token_id=0, rope_theta=100.0, rope_scaling={
        "type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.5]})
# A value that is null in config.json; None leaves a key out.
NULL = "null"
LATENT_YARN = YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
LATENT = dict(hidden_size=32, num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=5,
              vocab_size=61, max_position_embeddings=64, intermediate_size=20, kv_lora_rank=16,
              qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=10, rope_theta=100.0,
              moe_intermediate_size=12, n_routed_experts=8, num_experts_per_tok=3,
              n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.5,
              pad_token_id=0)
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
    # Norms' weights less 1, caps of scores and logits, a window in every other layer.
    "gemma2": ("Gemma2", GEMMA | dict(sliding_window=6, attn_logit_softcapping=4.0,
                                      final_logit_softcapping=6.0), "gemma2"),
    # In GGUF the scale of scores follows from the head dim.
    "gemma2_scalar": ("Gemma2", GEMMA | dict(sliding_window=64, query_pre_attn_scalar=20), None),
    # Five layers with a window and a rope of their own, one with a scaled rope.
    "gemma3": ("Gemma3", GEMMA | dict(num_hidden_layers=7, sliding_window=6, rope_theta=300.0,
                                      rope_local_base_freq=20.0,
                                      rope_scaling={"rope_type": "linear", "factor": 4.0}),
               "gemma3"),
    # Sinks, biases everywhere, gates and ups in turn and clamped, half of the layers with a window.
    "gpt_oss": ("GptOss", OSS, "gpt-oss"),
    # The same with experts in mxfp4.
    "gpt_oss_mxfp4": ("GptOss", OSS | dict(hidden_size=64, intermediate_size=96), "gpt-oss"),
    # Queries grow behind the first 4 positions.
    "ministral3": ("Ministral3", UNEVEN | dict(head_dim=8, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4,
        "rope_theta": 100.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5}), "mistral3"),
    # Rope of neighbours in half of each head, norms before and after.
    "glm4": ("Glm4", UNEVEN | dict(head_dim=8, pad_token_id=0), "glm4"),
    # One plain layer, then sigmoids, 2 groups, a bias of the choice and two shared experts in one.
    "glm4_moe": ("Glm4Moe", EXPERTS | dict(
        num_hidden_layers=3, intermediate_size=20, moe_intermediate_size=12, n_routed_experts=8,
        num_experts_per_tok=3, n_group=2, topk_group=1, n_shared_experts=2, head_dim=8,
        routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True), "glm4moe"),
    # Convolutions around one layer of attention; the ffn width is made of the file's.
    "lfm2": ("Lfm2", UNEVEN | dict(
        hidden_size=26, num_hidden_layers=4, head_dim=8, conv_L_cache=4, block_multiple_of=8,
        layer_types=["conv", "full_attention", "conv", "conv"], rope_theta=300.0, pad_token_id=0),
        "lfm2"),
    # Keys and values of a latent: 5 heads of 6 + 8 features with values of 10, yarn in the scale.
    "deepseek_v3": ("DeepseekV3", LATENT | dict(
        q_lora_rank=20, n_group=4, topk_group=2, rope_scaling=LATENT_YARN), "deepseek2"),
    # Queries without one, and rope of halves.
    "deepseek_v3_halves": ("DeepseekV3", LATENT | dict(
        q_lora_rank=NULL, n_group=1, topk_group=1, rope_interleave=False,
        rope_scaling=LATENT_YARN | {"mscale": 0.5}), None),
    # Softmax scores, groups by their best expert; GGUF as before what makes keys and values was two.
    # By transformers 5: 4 leaves yarn out of the scale.
    "deepseek_v2": ("DeepseekV2", LATENT | dict(
        hidden_size=40, rope_theta=None, q_lora_rank=20, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", rope_parameters=LATENT_YARN | {
            "mscale": 0.5, "mscale_all_dim": 0.5, "rope_theta": 100.0}), "deepseek2"),
    # As the small one: queries without a latent, no groups.
    "deepseek_v2_lite": ("DeepseekV2", LATENT | dict(
        hidden_size=40, q_lora_rank=NULL, n_group=1, topk_group=1, topk_method="greedy"),
        "deepseek2"),
    # Values that are wider than keys, a list of the plain layers.
    "glm4_moe_lite": ("Glm4MoeLite", LATENT | dict(
        rope_theta=None, first_k_dense_replace=None, q_lora_rank=20, v_head_dim=16,
        rms_norm_eps=1e-5, n_shared_experts=1, mlp_layer_types=["dense", "sparse", "sparse"],
        rope_parameters={"rope_type": "default", "rope_theta": 100.0}), "deepseek2"),
    # Delta nets of 5 key heads with 2 value heads each around gated attention, norms' weights less 1.
    "qwen3_next": ("Qwen3Next", UNEVEN | dict(
        num_hidden_layers=3, full_attention_interval=2, head_dim=12, partial_rotary_factor=0.5,
        rope_theta=100.0, linear_num_key_heads=5, linear_num_value_heads=10, linear_key_head_dim=6,
        linear_value_head_dim=4, linear_conv_kernel_dim=3, moe_intermediate_size=12,
        shared_expert_intermediate_size=20, num_experts=6, num_experts_per_tok=3), "qwen3next"),
    # The same without experts, with projections that stand apart.
    "qwen3_5": ("Qwen3_5", UNEVEN | dict(
        num_hidden_layers=3, layer_types=["linear_attention", "linear_attention", "full_attention"],
        head_dim=12, linear_num_key_heads=5, linear_num_value_heads=10, linear_key_head_dim=6,
        linear_value_head_dim=4, linear_conv_kernel_dim=3, attention_bias=True, rope_parameters={
            "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 1]}), "qwen35"),
    # Only as GGUF: matrices in the IQ and TQ types in turn, whose blocks of 256 are one or
    # three to a row.
    "llama_grids": ("Llama", SMALL | dict(hidden_size=256, intermediate_size=768, head_dim=64),
                    "llama"),
    # Layers of two kinds: those without a window have fewer and larger heads whose values are their
    # keys, and a rope of some pairs. By transformers 5.
    "gemma4": ("Gemma4", GEMMA4 | dict(attention_k_eq_v=True, num_global_key_value_heads=2), "gemma4"),
    # Experts beside the feed-forward layers.
    "gemma4_moe": ("Gemma4", GEMMA4 | dict(
        attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=6,
        top_k_experts=2, moe_intermediate_size=12), "gemma4"),
    # As the small ones: inputs of each layer, and the last layers, which are wider, read the keys and
    # values of others.
    "gemma4_small": ("Gemma4", GEMMA4 | dict(
        num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
        hidden_size_per_layer_input=10, vocab_size_per_layer_input=61, num_kv_shared_layers=3,
        use_double_wide_mlp=True, final_logit_softcapping=NULL), "gemma4"),
    # With experts, and three value heads to a key head.
    "qwen3_5_moe": ("Qwen3_5Moe", UNEVEN | dict(
        num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], head_dim=12,
        linear_num_key_heads=4, linear_num_value_heads=12, linear_key_head_dim=6,
        linear_value_head_dim=4, linear_conv_kernel_dim=3, moe_intermediate_size=12,
        shared_expert_intermediate_size=20, num_experts=6, num_experts_per_tok=3, rope_parameters={
            "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 1]}), "qwen35moe"),
    # Only as GGUF, in Q8_0: two value heads to a block of 32.
    "qwen3_5_q8_0": ("Qwen3_5", UNEVEN | dict(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=8,
        layer_types=["linear_attention", "full_attention"], head_dim=8, num_key_value_heads=2,
        linear_num_key_heads=5, linear_num_value_heads=10, linear_key_head_dim=8,
        linear_value_head_dim=16, linear_conv_kernel_dim=3, rope_parameters={
            "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5,
            "mrope_section": [1, 1, 0]}), "qwen35"),
    # Frequencies divided by a list for contexts of at most 16 positions, and by another beyond.
    "phi3_long": ("Phi3", PHI3_LONG | dict(original_max_position_embeddings=16), "phi3"),
    "phi3_short": ("Phi3", PHI3_LONG | dict(original_max_position_embeddings=32), "phi3"),
}
