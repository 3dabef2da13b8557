#!/usr/bin/env python3
"""Writes the perplexities that the published implementation computes for the bundled model.

    python3 tools/make_perplexity_goldens.py [--whole | --documented]

Needs the packages of make_goldens.py, which makes the model (float32) and its tokenizer. Windows
and sums are written out here: side by side with the second half scored (llama.cpp's way), and by a
stride (the way of transformers' documentation, with each scored token counted once). Writes
tests/generate/data/perplexity.json for the first BYTES of the text beside it; with --whole it prints
the value for all of the text instead.

With --documented it writes tests/generate/data/documented_perplexity.json: the loop of transformers'
documentation ("Perplexity of fixed-length models") on the tiny model tests/models/data/mlx/plain_f32,
whose tokens are the text's bytes. `documented` is what that loop prints. It takes one token off every
window for the labels' shift, though only the first window loses one; `perplexity` is the same sum
with each window's loss weighted by the labels that it is the mean of.
"""

import json
import math
import sys

import gguf
import torch
import transformers

import make_goldens

DATA = make_goldens.ROOT / "tests/generate/data"
BYTES = 3000
# Window and stride; stride 0 is llama.cpp's way.
DOCUMENTED_BYTES = 700
# Overlapping, side by side, and a last window that is shorter.
DOCUMENTED_CASES = [(64, 32), (64, 64), (100, 30), (128, 16)]
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


@torch.no_grad()
def documented_loop(model, input_ids, max_length, stride):
    """transformers' documentation, but for the second sum."""
    sums, counts, prev_end, num_windows = [0.0, 0.0], [0, 0], 0, 0
    for begin in range(0, input_ids.size(1), stride):
        end = min(begin + max_length, input_ids.size(1))
        window = input_ids[:, begin:end]
        targets = window.clone()
        targets[:, :-(end - prev_end)] = -100
        loss = model(window, labels=targets).loss.double().item()
        scored = ((targets != -100).sum().item() - 1, (targets[:, 1:] != -100).sum().item())
        for i in range(2):
            sums[i] += loss * scored[i]
            counts[i] += scored[i]
        prev_end = end
        num_windows += 1
        if end == input_ids.size(1):
            break
    values = [math.exp(total / count) for total, count in zip(sums, counts)]
    return {"ctx_size": max_length, "stride": stride, "windows": num_windows,
            "scored_tokens": counts[1], "perplexity": values[1], "documented": values[0]}


def write_documented():
    model = transformers.AutoModelForCausalLM.from_pretrained(
        make_goldens.ROOT / "tests/models/data/mlx/plain_f32", dtype=torch.float32).eval()
    text = (DATA / "us_constitution.txt").read_bytes()[:DOCUMENTED_BYTES]
    ids = torch.tensor([list(text)])
    cases = ",\n".join(json.dumps(documented_loop(model, ids, *case)) for case in DOCUMENTED_CASES)
    (DATA / "documented_perplexity.json").write_text(
        f'{{"made_by": "tools/make_perplexity_goldens.py --documented",\n'
        f'"bytes": {DOCUMENTED_BYTES},\n"cases": [\n{cases}\n]}}\n')


def main():
    if "--documented" in sys.argv[1:]:
        write_documented()
        return
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
