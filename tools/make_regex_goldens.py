#!/usr/bin/env python3
"""Writes what Oniguruma, as Hugging Face `tokenizers` has it, matches, for
tests/text/regex/goldens_test.cpp: tests/text/data/regex.json, {pattern: [[text, [begin, end]…]…]}
with offsets in characters.

Needs PyPI: tokenizers.    Options: --cases N (random patterns) --seed S --out FOLDER
"""

import argparse
import json
import pathlib
import random

from tokenizers import Regex, pre_tokenizers

import make_text_goldens as texts
import make_tokenizer_json_goldens as shapes

ATOMS = ["a", "b", "A", ".", r"\s", r"\S", r"\d", r"\p{L}", r"\p{Lu}", r"\P{L}", r"\p{N}", "[ab]", "[^a]", " "]
ATOMS += [r"[\r\n]", r"\n", "[a-c1-3]", r"[\p{L}&&[^b]]", r"[^\s\p{L}]", r"\p{P}", r"\p{S}", r"[\p{M}\p{Sk}]", "é", "ab"]
SETS = [a for a in ATOMS if a != "ab"]
LOOKS = [r"(?!\S)", "(?=a)", "(?<=b)", r"(?<!\s)", "^", "$", r"\A", r"\z", "(?!a)"]
QUANTIFIERS = ["", "", "", "?", "*", "+", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "+?", "??"]
POSSESSIVE = ["++", "?+", "*+"]
TEXT = "aabbcAB12 3\n\r\té.,$^\u0301日"


def random_pattern(rng, depth=0):
    def item():
        kind = rng.randrange(12)
        if kind == 0 and depth < 2:
            return f"(?:{random_pattern(rng, depth + 1)})" + rng.choice(["", "", "?", "+", "{1,2}"])
        if kind == 1:
            return rng.choice(LOOKS)
        if kind == 2:
            return rng.choice(SETS) + rng.choice(POSSESSIVE)
        if kind == 3:
            return f"(?i:{rng.choice(['s', 'k', 'aB', 'll', '[abs]'])})"
        return rng.choice(SETS) + rng.choice(QUANTIFIERS)

    def branch():
        return "".join(item() for _ in range(rng.randrange(1, 4)))

    return "|".join(branch() for _ in range(rng.randrange(1, 4)))


def published():
    for pre_tokenizer, *_ in [*shapes.BYTE_SHAPES.values()]:
        state = json.loads(pre_tokenizer.__getstate__())
        for step in state.get("pretokenizers", [state]):
            if "Regex" in step.get("pattern", {}):
                yield step["pattern"]["Regex"]


def is_valid(pattern):
    try:
        Regex(pattern)
    except Exception:  # the package has no narrower type
        return False
    return True


def matches(pattern, text):
    """Offsets of the matches."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed", True)
    return [offsets for _, offsets in splitter.pre_tokenize_str(text)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=250)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--out", type=pathlib.Path, default=texts.ROOT / "tests/text/data")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    patterns = dict.fromkeys(published())
    while len(patterns) < options.cases:
        pattern = random_pattern(rng)
        if is_valid(pattern):
            patterns[pattern] = None
    golden = {}
    for pattern in patterns:
        golden[pattern] = []
        for _ in range(6):
            alphabet = rng.choice([TEXT, TEXT, "ab \n", "aAsSkK\u017f\u212a", *texts.ALPHABETS[:8]])
            text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 16)))
            try:
                golden[pattern].append([text, *matches(pattern, text)])
            except BaseException as error:  # a panic: Oniguruma gives up where weft does not
                assert "retry-limit" in str(error), error
    body = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
    (options.out / "regex.json").write_text(body + "\n")


if __name__ == "__main__":
    main()
