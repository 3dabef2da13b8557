#!/usr/bin/env python3
"""Writes a small folder of Kimi K2's kind, whose tokenizer is a tiktoken.model, and the ids that `tiktoken` gives many
texts, for tests/text/tokenizer_json/tiktoken_model_test.cpp: tests/text/data/tiktoken/{tiktoken.model,
tokenizer_config.json,results.json}.

    PYTHONPATH=tools:tools/goldens python3 tools/goldens/tiktoken_folder.py [--cases N] [--seed S] [--out FOLDER]

Needs the PyPI packages tokenizers and tiktoken.
"""

import argparse
import base64
import json
import pathlib
import random

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import make_text_goldens as texts
import pieces

NUM_SPECIAL = 256
# Where they stand behind the ranks, and whether they are special to transformers.
NAMED = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True)}
NAMED |= {9: ("<|tool_call_begin|>", False), 255: ("[PAD]", True)}


def ranks():
    """The bytes of each token, best first: all single bytes, then what training merges."""
    letters = texts.byte_letters()
    byte_of = {letter: byte for byte, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(pieces.KIMI_K2), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(vocab_size=1000, initial_alphabet=letters, show_progress=False)
    tokenizer.train_from_iterator([*texts.PARAGRAPHS * 3, *[" " * 16, "\n\n\n", "a" * 8] * 5], trainer)
    vocab = tokenizer.get_vocab()
    return [bytes(byte_of[c] for c in token) for token in sorted(vocab, key=vocab.get)]


def config(count):
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    added = {str(count + i): {"content": name, **flags, "special": special} for i, (name, special) in NAMED.items()}
    return {
        "added_tokens_decoder": added,
        "additional_special_tokens": ["<|im_end|>", "<|im_user|>"],
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "tokenizer_class": "TikTokenTokenizer",
        "chat_template": "{%- for m in messages -%}<|im_user|>{{ m.content }}<|im_end|>{%- endfor -%}",
    }


def inputs(rng, count, first):
    yield from texts.fixed_texts()
    special = [name for name, _ in NAMED.values()] + [f"<|reserved_token_{first + 4}|>", "<|reserved_token_1|>"]
    words = [*special, "camelCase", "ABCdef", "汉字", "漢字kana仮名", " 中", "'S", "'ſ", "12345", "\n/", " ", "〇々", "é"]
    for _ in range(count):
        if rng.randrange(2):
            yield "".join(rng.choice(words) for _ in range(rng.randrange(1, 9))).encode()
        else:
            yield texts.random_text(rng)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=texts.ROOT / "tests/text/data/tiktoken")
    options = parser.parse_args()
    tokens = ranks()
    first = len(tokens)
    named = {i: NAMED.get(i - first, (f"<|reserved_token_{i}|>",))[0] for i in range(first, first + NUM_SPECIAL)}
    encoding = tiktoken.Encoding(
        name="kimi",
        pat_str=pieces.KIMI_K2,
        mergeable_ranks={token: rank for rank, token in enumerate(tokens)},
        special_tokens={name: i for i, name in named.items()},
    )
    data = list(inputs(random.Random(options.seed), options.cases, first))
    as_text = [b.decode("utf-8", errors="replace") for b in data]
    results = {
        "inputs": [b.hex() for b in data],
        "plain": [encoding.encode_ordinary(text) for text in as_text],
        "special": [encoding.encode(text, allowed_special="all") for text in as_text],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    (options.out / "tiktoken.model").write_text("".join(lines))
    (options.out / "tokenizer_config.json").write_text(json.dumps(config(first), indent=1) + "\n")
    (options.out / "results.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
