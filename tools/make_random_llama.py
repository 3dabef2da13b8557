#!/usr/bin/env python3
"""Writes a random model as a GGUF file, to time programs on: a Llama of width 1024, 16 layers, 16 heads
of 64 and 8 key/value heads, feed-forward width 2816, vocabulary 32,000; or with --mixture a Qwen3-MoE
of 12 such layers with 32 experts of width 512 instead, of which a token takes 4; or with --mixture wide
one of 8 layers of Qwen3-30B-A3B's sizes: width 2048, 32 heads of 128 and 4 key/value heads, 128 experts
of width 768, of which a token takes 8.

    make_random_llama.py TOKENIZER.gguf OUT.gguf [--mixture [narrow|wide]] [--type BF16|Q4_0|Q8_0]

Needs gguf and numpy from PyPI. The tokens are the first 32,000 of TOKENIZER's; without --type matrices
are bfloat16. Of the wide mixture, matrices of one shape have the same numbers.
"""

import argparse
import dataclasses

import gguf
import numpy as np

VOCAB = 32000


@dataclasses.dataclass(frozen=True)
class Sizes:
    width: int = 1024
    layers: int = 16
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 64
    ffn: int = 2816
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    draws_once: bool = False


SIZES = {
    None: Sizes(),
    "narrow": Sizes(layers=12, experts=32, experts_per_token=4, expert_ffn=512),
    "wide": Sizes(width=2048, layers=8, heads=32, kv_heads=4, head_dim=128, ffn=6144, experts=128,
                  experts_per_token=8, expert_ffn=768, draws_once=True),
}


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


def write_config(writer, sizes):
    writer.add_name("random")
    writer.add_context_length(32768)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.ffn)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(sizes.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    if sizes.experts == 0:
        return
    writer.add_key_length(sizes.head_dim)
    writer.add_value_length(sizes.head_dim)
    writer.add_expert_count(sizes.experts)
    writer.add_expert_used_count(sizes.experts_per_token)
    writer.add_expert_feed_forward_length(sizes.expert_ffn)


class Weights:
    def __init__(self, writer, dtype, sizes):
        self.writer = writer
        self.dtype = gguf.GGMLQuantizationType[dtype]
        self.sizes = sizes
        self.numbers = np.random.default_rng(7)
        self.drawn = {}

    def draw(self, *shape):
        return (self.numbers.standard_normal(shape, np.float32) * 0.02).astype(np.float32)

    def matrix(self, name, *shape):
        rows = self.drawn.get(shape)
        if rows is None:
            rows = gguf.quants.quantize(self.draw(*shape), self.dtype)
        if self.sizes.draws_once:
            self.drawn[shape] = rows
        self.writer.add_tensor(f"{name}.weight", rows, raw_dtype=self.dtype)

    def plain(self, name, numbers):
        self.writer.add_tensor(f"{name}.weight", numbers.astype(np.float32))

    def attention(self, block):
        width, of_heads = self.sizes.width, self.sizes.heads * self.sizes.head_dim
        of_kv_heads = self.sizes.kv_heads * self.sizes.head_dim
        for name, rows, columns in (("attn_q", of_heads, width), ("attn_k", of_kv_heads, width),
                                    ("attn_v", of_kv_heads, width), ("attn_output", width, of_heads)):
            self.matrix(f"{block}.{name}", rows, columns)
        self.plain(f"{block}.attn_norm", np.ones(width))
        self.plain(f"{block}.ffn_norm", np.ones(width))

    def feed_forward(self, block):
        width, ffn = self.sizes.width, self.sizes.ffn
        self.matrix(f"{block}.ffn_gate", ffn, width)
        self.matrix(f"{block}.ffn_up", ffn, width)
        self.matrix(f"{block}.ffn_down", width, ffn)

    def experts(self, block):
        width, experts, ffn = self.sizes.width, self.sizes.experts, self.sizes.expert_ffn
        self.plain(f"{block}.attn_q_norm", np.ones(self.sizes.head_dim))
        self.plain(f"{block}.attn_k_norm", np.ones(self.sizes.head_dim))
        self.plain(f"{block}.ffn_gate_inp", self.draw(experts, width))
        self.matrix(f"{block}.ffn_gate_exps", experts, ffn, width)
        self.matrix(f"{block}.ffn_up_exps", experts, ffn, width)
        self.matrix(f"{block}.ffn_down_exps", experts, width, ffn)


def write_weights(weights):
    sizes = weights.sizes
    weights.matrix("token_embd", VOCAB, sizes.width)
    weights.matrix("output", VOCAB, sizes.width)
    weights.plain("output_norm", np.ones(sizes.width))
    for layer in range(sizes.layers):
        block = f"blk.{layer}"
        weights.attention(block)
        (weights.feed_forward if sizes.experts == 0 else weights.experts)(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tokenizer")
    parser.add_argument("out")
    parser.add_argument("--mixture", nargs="?", choices=("narrow", "wide"), const="narrow")
    parser.add_argument("--type", choices=("BF16", "Q4_0", "Q8_0"), default="BF16")
    options = parser.parse_args()
    sizes = SIZES[options.mixture]
    writer = gguf.GGUFWriter(options.out, "llama" if sizes.experts == 0 else "qwen3moe")
    write_config(writer, sizes)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{options.type}"])
    write_tokenizer(writer, gguf.GGUFReader(options.tokenizer))
    write_weights(Weights(writer, options.type, sizes))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
