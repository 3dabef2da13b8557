#!/usr/bin/env python3
"""Compares what `weft plan --hardware h100` predicts with throughputs that others have published.

Usage: compare_plan.py [WEFT]     (default: build/weft); prints a Markdown table

Sources: torchtitan's benchmarks/llama3_h100_202412 and asyncTP_llama3_h100_2025-06, and
llm-foundry's scripts/train/benchmarking/README.md (H100 80 GB, bfloat16, full sharding).
MPT's feed-forward layers have two matrices of four widths; three of 8/3 widths have as many
parameters. Selective checkpointing is predicted as none.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# Name: width, layers, heads, kv heads, feed-forward width, vocabulary, tied.
MODELS = {
    "Llama 8B": (4096, 32, 32, 8, 14336, 128256, False),
    "Llama 70B": (8192, 80, 64, 8, 28672, 128256, False),
    "MPT 1B": (2048, 24, 16, 16, 5462, 50368, True),
    "MPT 3B": (2560, 32, 20, 20, 6827, 50368, True),
    "MPT 7B": (4096, 32, 32, 32, 10923, 50368, True),
    "MPT 13B": (5120, 40, 40, 40, 13654, 50368, True),
    "MPT 30B": (7168, 48, 56, 56, 19115, 50368, True),
    "MPT 70B": (8192, 80, 64, 64, 21846, 50368, True),
}
# Model, note, dp, tp, sequences of a step, microbatch, sequence length, whole blocks are computed
# again, published tokens/s of a GPU.
POINTS = [
    ("Llama 8B", "eager", 8, 1, 16, 2, 8192, False, 5762),
    ("Llama 8B", "compiled", 8, 1, 16, 2, 8192, False, 6667),
    ("Llama 8B", "eager", 128, 1, 256, 2, 8192, False, 5605),
    ("Llama 8B", "compiled", 128, 1, 256, 2, 8192, False, 6514),
    ("Llama 8B", "compiled", 8, 8, 96, 12, 8192, False, 4378),
    ("Llama 70B", "compiled", 32, 8, 512, 16, 8192, True, 597),
    ("MPT 1B", "", 8, 1, 112, 14, 2048, False, 45455),
    ("MPT 1B", "", 64, 1, 1280, 20, 2048, False, 44402),
    ("MPT 3B", "", 64, 1, 1152, 6, 2048, False, 22525),
    ("MPT 7B", "", 8, 1, 48, 6, 2048, False, 10643),
    ("MPT 13B", "", 8, 1, 16, 2, 2048, False, 4792),
    ("MPT 13B", "", 64, 1, 128, 2, 2048, False, 4800),
    ("MPT 30B", "", 32, 1, 1344, 14, 2048, True, 2308),
    ("MPT 70B", "", 32, 1, 1024, 2, 2048, True, 882),
    ("MPT 70B", "", 64, 1, 2048, 8, 2048, True, 1039),
]


def config_text(point):
    model, _, dp, tp, sequences, microbatch, length, recomputes, _ = point
    width, layers, heads, kv_heads, ffn, vocab, tied = MODELS[model]
    return f"""[model]
hidden_size = {width}
num_layers = {layers}
num_heads = {heads}
num_kv_heads = {kv_heads}
intermediate_size = {ffn}
vocab_size = {vocab}
tied = {str(tied).lower()}
[mesh]
dp = {dp}
tp = {tp}
[batch]
sequences = {sequences}
microbatch = {microbatch}
sequence_length = {length}
[train]
steps = 1
dtype = "bfloat16"
checkpoint_activations = {str(recomputes).lower()}
[data]
train = ["none.txt"]
[checkpoint]
folder = "none"
"""


def predict(weft, point):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run.toml"
        path.write_text(config_text(point))
        command = [weft, "plan", str(path), "--hardware", "h100", "--json"]
        plan = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return plan["tokens_per_s"] / (point[2] * point[3]), plan["bound"]


def main():
    weft = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/weft")
    print("| model | GPUs (data × model) | published | predicted | ratio | limited by |")
    print("|---|---|---|---|---|---|")
    ratios = []
    for point in POINTS:
        predicted, bound = predict(weft, point)
        ratios.append(predicted / point[-1])
        name = f"{point[0]}, {point[1]}" if point[1] else point[0]
        print(f"| {name} | {point[2]} × {point[3]} | {point[-1]:,} | {predicted:,.0f} | "
              f"{ratios[-1]:.2f} | {bound} |")
    print(f"\nRatios: median {statistics.median(ratios):.2f}, "
          f"{min(ratios):.2f} to {max(ratios):.2f}.")


if __name__ == "__main__":
    main()
