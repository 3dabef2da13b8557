#!/usr/bin/env python3
"""Writes what Hugging Face tokenizers makes of all of Unicode in its four normalization forms.

Writes tests/text/data/normalize.json for tests/text/tokenizer/normalize_test.cpp: for each form a hash of the
forms of each block of 4096 code points, and sequences of characters that meet, with their forms.

Needs PyPI: tokenizers.
"""

import json
import pathlib
import random

from tokenizers import normalizers

TARGET = pathlib.Path(__file__).resolve().parent.parent / "tests/text/data/normalize.json"
FORMS = {name: getattr(normalizers, name)().normalize_str for name in ("NFC", "NFD", "NFKC", "NFKD")}
BLOCK = 4096
# Marks of several classes, characters that decompose or compose, Hangul and its narrow letters.
POOL = [
    *map(chr, [0x300, 0x301, 0x304, 0x307, 0x308, 0x323, 0x327, 0x328, 0x331, 0x338, 0x345, 0x59A]),
    *map(chr, [0x5B0, 0x64B, 0x653, 0x93C, 0x3099, 0x309A, 0x1D165, 0x1D16E, 0x102E0]),
    *"aeosqAS\u00e9\u00c5\u1e9b\u1e69\u01d5\u0344\u2126\u212b\ufb01\ufb1d\ufdfa\u00bd\u2075\u3300\u33ff",
    *"\u1100\u1161\u11a8\u11c2\uac00\ud55c\uffa1\uffc2\u3131\u314f\uff76\uff9e\u304b\u0915\u0958\u06c1\u2adc",
]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def block_hash(form, first):
    """FNV-1a of the form of each character of the block, each followed by a NUL."""
    codes = (c for c in range(first, first + BLOCK) if not 0xD800 <= c <= 0xDFFF)
    data = b"".join(form(chr(c)).encode() + b"\0" for c in codes)
    return f"{fnv(data):016x}"


def main():
    rng = random.Random(7)
    texts = ["".join(rng.choices(POOL, k=rng.randrange(2, 9))) for _ in range(120)]
    golden = {
        "blocks": {n: [block_hash(f, c) for c in range(0, 0x110000, BLOCK)] for n, f in FORMS.items()},
        "texts": [t.encode().hex() for t in texts],
        "forms": {n: [f(t).encode().hex() for t in texts] for n, f in FORMS.items()},
    }
    TARGET.write_text(json.dumps(golden, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
