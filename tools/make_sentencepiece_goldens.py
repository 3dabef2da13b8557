#!/usr/bin/env python3
"""Writes what the `sentencepiece` package does with a small BPE model, for
tests/text/bpe/sentencepiece_test.cpp: tests/text/data/sentencepiece.json with tokens, scores and kinds
as a GGUF file has them, texts and ids.

Needs PyPI: sentencepiece.    Options: --cases N --seed S --out FOLDER
"""

import argparse
import io
import json
import pathlib
import random

import sentencepiece

import make_text_goldens as texts


def train():
    corpus = texts.PARAGRAPHS * 3 + (texts.ROOT / "tools/make_text_goldens.py").read_text().split("\n")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus),
        model_writer=model,
        model_type="bpe",
        vocab_size=1000,
        character_coverage=0.98,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def kind(model, i):
    """The numbers of GGUF's tokenizer.ggml.token_type."""
    if model.is_unknown(i):
        return 2
    if model.is_control(i):
        return 3
    return 6 if model.is_byte(i) else 1


def is_same_text(text):
    # The package takes U+2581 for a space and stops at a NUL, as no tokenizer.json does.
    return "\u2581" not in text and "\0" not in text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--out", type=pathlib.Path, default=texts.ROOT / "tests/text/data")
    options = parser.parse_args()
    model = train()
    rng = random.Random(options.seed)
    inputs = [*texts.fixed_texts(), *(texts.random_text(rng) for _ in range(options.cases))]
    decoded = [t for b in inputs if is_same_text(t := b.decode("utf-8", errors="replace"))]
    ids = range(model.get_piece_size())
    golden = {
        "tokens": [model.id_to_piece(i) for i in ids],
        "scores": [model.get_score(i) for i in ids],
        "kinds": [kind(model, i) for i in ids],
        "inputs": [t.encode().hex() for t in decoded],
        "ids": [model.encode(t) for t in decoded],
        "decoded": [model.decode(model.encode(t)) for t in decoded],
    }
    text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (options.out / "sentencepiece.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
