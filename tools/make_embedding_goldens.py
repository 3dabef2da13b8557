#!/usr/bin/env python3
"""Writes the embeddings that Hugging Face transformers gives on the tiny model tests/models/data/mlx/plain_f32.

    python3 tools/make_embedding_goldens.py

Needs the PyPI packages torch and transformers 4.57. The tokens are the bytes of each text. Writes
tests/serve/data/embeddings.json: the last token's hidden state after the last norm and the mean of all, of
length 1, for texts of one token, of a piece of a prompt, and of several.
"""

import json
import pathlib

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = ["a", "The fox", "x" * 128, "All human beings are born free. " * 9]


@torch.no_grad()
def main():
    model = transformers.AutoModel.from_pretrained(
        ROOT / "tests/models/data/mlx/plain_f32", dtype=torch.float32, attn_implementation="eager").eval()
    goldens = []
    for text in TEXTS:
        hidden_TD = model(torch.tensor([list(text.encode())])).last_hidden_state[0].double()
        rows = {"last": hidden_TD[-1], "mean": hidden_TD.mean(0)}
        goldens.append({"text": text} | {name: [round(x, 7) for x in (row / row.norm()).tolist()]
                                         for name, row in rows.items()})
    folder = ROOT / "tests/serve/data"
    folder.mkdir(exist_ok=True)
    (folder / "embeddings.json").write_text(json.dumps(goldens) + "\n")


if __name__ == "__main__":
    main()
