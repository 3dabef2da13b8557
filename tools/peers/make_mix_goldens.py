#!/usr/bin/env python3
"""Writes tests/models/data/gguf_mixes.txt: which types llama.cpp's quantizer gives the tensors of a Llama with 10
layers whose rows are whole blocks of 256.

Needs a build of llama.cpp. Usage: make_mix_goldens.py OUT llama-quantize IMATRIX RATIO=MODEL.gguf...

A model in plain numbers is given for each RATIO of query heads to kv heads; IMATRIX is of any of them. A line has
RATIO|mix|0, or 1 with an importance matrix|most matrices|token_embd|output|attn_v|attn_output|ffn_down, the last three
as one type or one for each layer.
"""

import re
import subprocess
import sys

LAYERS = 10
MIXES = ["Q2_K", "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "IQ4_NL",
         "IQ4_XS", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
OTHERS = ["attn_q", "attn_k", "ffn_up", "ffn_gate"]


def types_of(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = re.findall(r"\] (\S+\.weight)\s.*\((\w+)\)", done.stdout + done.stderr)
    return {name: kind.upper() for name, kind in rows}


def line_of(types):
    def layers(part):
        found = [types[f"blk.{layer}.{part}.weight"] for layer in range(LAYERS)]
        return found[0] if len(set(found)) == 1 else " ".join(found)

    others = {layers(part) for part in OTHERS}
    assert len(others) == 1, others
    return [others.pop(), types["token_embd.weight"], types["output.weight"], layers("attn_v"), layers("attn_output"),
            layers("ffn_down")]


def main():
    out, program, imatrix = sys.argv[1:4]
    with open(out, "w") as file:
        for ratio, model in (given.split("=", 1) for given in sys.argv[4:]):
            for mix in MIXES:
                for flags in ([], ["--imatrix", imatrix]):
                    types = types_of([program, "--dry-run", *flags, model, "unused.gguf", mix, "1"])
                    print("|".join([ratio, mix, "1" if flags else "0", *line_of(types)]), file=file)


if __name__ == "__main__":
    main()
