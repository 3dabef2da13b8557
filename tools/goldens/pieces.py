#!/usr/bin/env python3
"""Writes the pieces that Hugging Face `tokenizers` cuts texts into by several regular expressions, one after the
other, for tests/text/tokenizer/pre_tokenizer_test.cpp: tests/text/data/pieces.json, {name: [[piece…]…]}.

    PYTHONPATH=tools python3 tools/goldens/pieces.py [--texts N] [--seed S]

The texts are some of make_text_goldens.py's. Needs the PyPI package tokenizers.
"""

import argparse
import json
import random

from tokenizers import Regex, pre_tokenizers

import make_text_goldens as texts

CJK = "[一-龥぀-ゟ゠-ヿ]+"
CASED = r"\p{Lu}\p{Ll}\p{Lt}"
UPPER, LOWER = (rf"{case[:-1]}&&[^\p{{Han}}]]" for case in (texts.UPPER, texts.LOWER))
KIMI_K2 = r"[\p{Han}]+|" + texts.cased(r"\p{N}{1,3}", texts.CONTRACTION + "?").replace(texts.UPPER, UPPER).replace(
    texts.LOWER, LOWER
).replace(r"[\r\n/]*", r"[\r\n]*")
SEQUENCES = {
    "deepseek-v3": [
        r"\p{N}{1,3}",
        CJK,
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    "deepseek-llm": [
        r"[\r\n]",
        # The file lists the letters that have a case.
        rf"\s?[{CASED}]+",
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
        r"\s+$",
        "[一-龥ࠀ-一가-퟿]+",
        r"\p{N}+",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "seed-coder": [texts.llama3(r"\p{N}{1}").replace(r"[^\s\p{L}\p{N}]+[\r\n]*", r"[^\s\p{L}\p{N}\r\n]+")],
    "kimi-k2": [KIMI_K2],
}
# Cased letters that came to Unicode later than the list, and titlecase letters that it leaves out.
UNLISTED = set("ǅᾈᾉ")


def cut(patterns, text):
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return [piece for piece, _ in pre_tokenizers.Sequence(steps).pre_tokenize_str(text)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--seed", type=int, default=3)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    inputs = [text.decode(errors="ignore") for text in texts.fixed_texts()]
    while len(inputs) < options.texts:
        inputs.append(texts.random_text(rng).decode(errors="ignore"))
    inputs = [text for text in dict.fromkeys(inputs) if text and not UNLISTED & set(text)]
    golden = {name: [cut(patterns, text) for text in inputs] for name, patterns in SEQUENCES.items()}
    path = texts.ROOT / "tests/text/data/pieces.json"
    path.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
