#!/usr/bin/env python3
"""Writes a random model as a GGUF file, to time programs on: a Llama of width 1024, 16 layers, 16 heads
of 64 and 8 key/value heads, feed-forward width 2816, vocabulary 32,000; or with --mixture a Qwen3-MoE
of 12 such layers with 32 experts of width 512 instead, of which a token takes 4.

    make_random_llama.py TOKENIZER.gguf OUT.gguf [--mixture] [--type BF16|Q4_0|Q8_0]

Needs gguf and numpy from PyPI. The tokens are the first 32,000 of TOKENIZER's; without --type matrices
are bfloat16.
"""

import argparse

import gguf
import numpy as np

VOCAB, WIDTH, HEADS, KV_HEADS, FFN = 32000, 1024, 16, 8, 2816
HEAD_DIM = WIDTH // HEADS
EXPERTS, EXPERTS_PER_TOKEN, EXPERT_FFN = 32, 4, 512


def write_tokenizer(writer, source):
    def field(name):
        return source.fields[f"tokenizer.ggml.{name}"].contents()

    tokens = field("tokens")[:VOCAB]
    known = set(tokens)
    merges = [merge for merge in field("merges")
              if {*merge.split(" ", 1), merge.replace(" ", "", 1)} <= known]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(field("pre"))
    writer.add_token_list(tokens)
    writer.add_token_types(field("token_type")[:VOCAB])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)


def write_config(writer, is_mixture, num_layers):
    writer.add_name("random")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(num_layers)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    if not is_mixture:
        return
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(EXPERTS_PER_TOKEN)
    writer.add_expert_feed_forward_length(EXPERT_FFN)


class Weights:
    def __init__(self, writer, dtype):
        self.writer = writer
        self.dtype = gguf.GGMLQuantizationType[dtype]
        self.numbers = np.random.default_rng(7)

    def draw(self, *shape):
        return (self.numbers.standard_normal(shape, np.float32) * 0.02).astype(np.float32)

    def matrix(self, name, *shape):
        rows = gguf.quants.quantize(self.draw(*shape), self.dtype)
        self.writer.add_tensor(f"{name}.weight", rows, raw_dtype=self.dtype)

    def plain(self, name, numbers):
        self.writer.add_tensor(f"{name}.weight", numbers.astype(np.float32))

    def attention(self, block):
        for name, rows, columns in (("attn_q", WIDTH, WIDTH), ("attn_k", KV_HEADS * HEAD_DIM, WIDTH),
                                    ("attn_v", KV_HEADS * HEAD_DIM, WIDTH),
                                    ("attn_output", WIDTH, WIDTH)):
            self.matrix(f"{block}.{name}", rows, columns)
        self.plain(f"{block}.attn_norm", np.ones(WIDTH))
        self.plain(f"{block}.ffn_norm", np.ones(WIDTH))

    def feed_forward(self, block):
        self.matrix(f"{block}.ffn_gate", FFN, WIDTH)
        self.matrix(f"{block}.ffn_up", FFN, WIDTH)
        self.matrix(f"{block}.ffn_down", WIDTH, FFN)

    def experts(self, block):
        self.plain(f"{block}.attn_q_norm", np.ones(HEAD_DIM))
        self.plain(f"{block}.attn_k_norm", np.ones(HEAD_DIM))
        self.plain(f"{block}.ffn_gate_inp", self.draw(EXPERTS, WIDTH))
        self.matrix(f"{block}.ffn_gate_exps", EXPERTS, EXPERT_FFN, WIDTH)
        self.matrix(f"{block}.ffn_up_exps", EXPERTS, EXPERT_FFN, WIDTH)
        self.matrix(f"{block}.ffn_down_exps", EXPERTS, WIDTH, EXPERT_FFN)


def write_weights(weights, is_mixture, num_layers):
    weights.matrix("token_embd", VOCAB, WIDTH)
    weights.matrix("output", VOCAB, WIDTH)
    weights.plain("output_norm", np.ones(WIDTH))
    for layer in range(num_layers):
        block = f"blk.{layer}"
        weights.attention(block)
        (weights.experts if is_mixture else weights.feed_forward)(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--mixture", action="store_true")
    parser.add_argument("--type", choices=("BF16", "Q4_0", "Q8_0"), default="BF16")
    options = parser.parse_args()
    num_layers = 12 if options.mixture else 16
    writer = gguf.GGUFWriter(options.out, "qwen3moe" if options.mixture else "llama")
    write_config(writer, options.mixture, num_layers)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{options.type}"])
    write_tokenizer(writer, gguf.GGUFReader(options.tokenizer))
    write_weights(Weights(writer, options.type), options.mixture, num_layers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
