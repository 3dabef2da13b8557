#!/usr/bin/env python3
"""Writes the perplexities that the published implementation computes for the bundled model.

    python3 tools/make_perplexity_goldens.py [--whole]

Needs the packages of make_goldens.py, which makes the model (float32) and its tokenizer. Windows
and sums are written out here: side by side with the second half scored (llama.cpp's way), and by a
stride (the way of transformers' documentation, with each scored token counted once). Writes
tests/generate/data/perplexity.json for the first BYTES of the text beside it; with --whole it prints
the value for all of the text instead.
"""

import json
import math
import sys

import gguf
import torch

import make_goldens

DATA = make_goldens.ROOT / "tests/generate/data"
BYTES = 3000
# Window and stride; stride 0 is llama.cpp's way.
CASES = [(128, 0), (256, 0), (128, 64), (128, 128), (200, 150)]


def windows(num_tokens, context, stride):
    """(begin, end, first scored token), all within the text."""
    if stride == 0:
        for begin in range(0, num_tokens - context + 1, context):
            yield begin, begin + context, begin + context // 2 + 1
        return
    scored_end = 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + context, num_tokens)
        yield begin, end, max(begin + 1, scored_end)
        scored_end = end
        if end == num_tokens:
            return


@torch.no_grad()
def losses(model, tokens, begin, end, first):
    logits = model(torch.tensor([tokens[begin:end]]), use_cache=False).logits[0].double()
    log_p = logits.log_softmax(-1)
    return [-log_p[i - 1 - begin, tokens[i]].item() for i in range(first, end)]


def score(model, tokens, context, stride):
    parts = [losses(model, tokens, *window) for window in windows(len(tokens), context, stride)]
    scored = [loss for part in parts for loss in part]
    mean = math.fsum(scored) / len(scored)
    spread = math.fsum((loss - mean) ** 2 for loss in scored) / len(scored)
    error = math.sqrt(spread / (len(scored) - 1)) * math.exp(mean)
    return {"ctx_size": context, "stride": stride, "windows": len(parts),
            "scored_tokens": len(scored), "mean_loss": mean, "perplexity": math.exp(mean),
            "standard_error": error}


def main():
    reader = gguf.GGUFReader(make_goldens.MODEL)
    keys = make_goldens.read_keys(reader)
    model, tokenizer = make_goldens.make_model(reader, keys), make_goldens.make_tokenizer(keys)
    text = (DATA / "us_constitution.txt").read_text()
    if "--whole" in sys.argv[1:]:
        tokens = tokenizer.encode(text).ids
        print(len(tokens), score(model, tokens, 512, 0))
        return
    tokens = tokenizer.encode(text[:BYTES]).ids
    cases = ",\n".join(json.dumps(score(model, tokens, *case)) for case in CASES)
    (DATA / "perplexity.json").write_text(
        f'{{"made_by": "tools/make_perplexity_goldens.py",\n"bytes": {BYTES},\n'
        f'"tokens": {len(tokens)},\n"cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
