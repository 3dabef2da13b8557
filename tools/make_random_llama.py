#!/usr/bin/env python3
"""Writes a random Llama as a bfloat16 GGUF file, to time programs on: width 1024, 16 layers, 16
heads of 64 and 8 key/value heads, feed-forward width 2816, vocabulary 32,000.

Usage: make_random_llama.py TOKENIZER.gguf OUT.gguf   (needs gguf and numpy from PyPI)

The tokens are the first 32,000 of TOKENIZER's.
"""

import sys

import gguf
import numpy as np

VOCAB, WIDTH, LAYERS, HEADS, KV_HEADS, FFN = 32000, 1024, 16, 16, 8, 2816
HEAD_DIM = WIDTH // HEADS


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


def write_config(writer):
    writer.add_name("random")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)


def write_weights(writer):
    numbers = np.random.default_rng(7)

    def matrix(name, rows, columns):
        drawn = (numbers.standard_normal((rows, columns)) * 0.02).astype(np.float32)
        upper = (drawn.view(np.uint32) >> 16).astype(np.uint16)
        writer.add_tensor(f"{name}.weight", upper.view(np.uint8).reshape(rows, 2 * columns),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))

    matrix("token_embd", VOCAB, WIDTH)
    matrix("output", VOCAB, WIDTH)
    norm("output_norm")
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for name, rows, columns in (("attn_q", WIDTH, WIDTH), ("attn_k", KV_HEADS * HEAD_DIM, WIDTH),
                                    ("attn_v", KV_HEADS * HEAD_DIM, WIDTH),
                                    ("attn_output", WIDTH, WIDTH), ("ffn_gate", FFN, WIDTH),
                                    ("ffn_up", FFN, WIDTH), ("ffn_down", WIDTH, FFN)):
            matrix(f"{block}.{name}", rows, columns)
        norm(f"{block}.attn_norm")
        norm(f"{block}.ffn_norm")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    writer = gguf.GGUFWriter(sys.argv[2], "llama")
    write_config(writer)
    write_tokenizer(writer, gguf.GGUFReader(sys.argv[1]))
    write_weights(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
