#!/usr/bin/env python3
"""Trains a small Llama from nothing on the King James Bible, byte by byte, and measures how well it
predicts chapters that it has not seen: examples/train/pretrain.py OUT [--steps N] [WEFT'S FLAGS]

The text is that of Debian's packages bible-kjv and bible-kjv-text.
"""

import bz2
import json
import lzma
import math
import shutil
import subprocess
import sys

import common

WHOLE = "Gen1:1-Rev22:21"
# Of the chapters, one in so many is held out.
HELD_OUT = 25


def read_chapters():
    if shutil.which("bible") is None:
        sys.exit("bible: no such program; run apt-get install bible-kjv")
    text = subprocess.run(["bible", "-f", WHOLE], check=True, text=True, stdout=subprocess.PIPE).stdout
    chapters = {}
    for line in text.splitlines():
        place, _, verse = line.partition(" ")
        chapters.setdefault(place.partition(":")[0], []).append(verse)
    return ["\n".join(verses) + "\n" for verses in chapters.values()]


def xz(data):
    return lzma.compress(data, preset=9)


def bits_behind(compress, known, text):
    """Bits per byte that a compressor adds for `text` when it stands behind what is known."""
    return 8 * (len(compress(known + text)) - len(compress(known))) / len(text)


def main():
    flags, more = common.parse_flags(__doc__.splitlines()[0], steps=1600, target=1.6).parse_known_args()
    flags.out.mkdir(parents=True, exist_ok=True)
    chapters = read_chapters()
    held_out = "\n".join(chapters[HELD_OUT - 1::HELD_OUT])
    del chapters[HELD_OUT - 1::HELD_OUT]
    common.write_lines(flags.out / "train.jsonl", [{"text": chapter} for chapter in chapters])
    (flags.out / "held_out.txt").write_text(held_out)
    known, text = "\n".join(chapters).encode(), held_out.encode()
    print(f"{len(known):,} bytes to learn from, {len(text):,} held out")
    for name, compress in (("xz", xz), ("bzip2", bz2.compress)):
        print(f"{name} -9: {bits_behind(compress, known, text):.3f} bits per byte")

    common.train(flags, "train", "pretrain.toml", more, WEFT_MODEL_TOKENIZER=str(common.BYTES))
    common.weft(flags, "convert", flags.out / "run", flags.out / "model")
    measured = json.loads(common.weft(flags, "perplexity", flags.out / "model", "--json", "--file",
                                      flags.out / "held_out.txt", "--ctx-size", 256))
    bits = measured["mean_loss"] / math.log(2)
    common.finish(f"held-out text: {bits:.3f} bits per byte (perplexity {2**bits:.3f}), "
                  f"target {flags.target}", bits <= flags.target)


main()
