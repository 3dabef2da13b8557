#!/usr/bin/env python3
"""Writes tests/models/data/training: tiny Llamas with the gradients that transformers computes.

Needs the PyPI packages torch, transformers 4.57, safetensors, numpy.
Usage: make_training_goldens.py [FOLDER]

FOLDER/<case>/config.json, model.safetensors   as transformers saves them, float32
FOLDER/<case>/ref.safetensors                  float32 tensors, integers too:
    ids, targets [B, T] (-100: counts for nothing); documents, positions [B, T]
    plain.loss, packed.loss                    sums over the tokens that count; packed is with
                                               attention within documents and their positions
    plain.<name>, packed.<name>                gradients of the sums, by parameter
"""

import pathlib
import sys

import numpy as np
import safetensors.numpy
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
B, T = 2, 14
CASES = {
    # 9 heads over 3 kv heads don't divide by 2; a tied head's gradient comes from both of its ends.
    "tied": dict(hidden_size=18, intermediate_size=20, num_attention_heads=9, num_key_value_heads=3,
                 head_dim=4, tie_word_embeddings=True),
    # 2 kv heads over 3 ranks are held twice.
    "untied": dict(hidden_size=16, intermediate_size=22, num_attention_heads=6,
                   num_key_value_heads=2, head_dim=4, attention_bias=True, mlp_bias=True),
}


def make_model(seed, sizes):
    config = transformers.LlamaConfig(vocab_size=41, num_hidden_layers=2, max_position_embeddings=32,
                                      attn_implementation="eager", **sizes)
    model = transformers.LlamaForCausalLM(config).float()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if "norm" in name else 0.3 * noise)
    return model


def make_batch(seed):
    numbers = np.random.default_rng(seed)
    ids = numbers.integers(0, 41, (B, T))
    targets = numbers.integers(0, 41, (B, T))
    targets[0, 3:6] = targets[1, 0] = -100
    documents = np.array([[0] * 5 + [1] * 9, [2] * 1 + [3] * 6 + [4] * 7])
    positions = np.array([[t - row.tolist().index(row[t]) for t in range(T)] for row in documents])
    return dict(ids=ids, targets=targets, documents=documents, positions=positions)


def document_mask(documents):
    documents = torch.from_numpy(documents)
    same = documents[:, :, None] == documents[:, None, :]
    sees = same & torch.ones(T, T, dtype=torch.bool).tril()
    return torch.where(sees, 0.0, torch.finfo(torch.float32).min)[:, None]


def gradients(model, batch, prefix, **more):
    model.zero_grad()
    logits = model(torch.from_numpy(batch["ids"]), **more).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.from_numpy(batch["targets"]).flatten(), reduction="sum")
    loss.backward()
    found = {f"{prefix}.{name}": p.grad.numpy().copy() for name, p in model.named_parameters()}
    return found | {f"{prefix}.loss": loss.detach().numpy().reshape(1)}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "tests/models/data/training")
    for seed, (case, sizes) in enumerate(CASES.items()):
        model, batch = make_model(seed, sizes), make_batch(seed)
        reference = {name: values.astype(np.float32) for name, values in batch.items()}
        reference |= gradients(model, batch, "plain")
        reference |= gradients(model, batch, "packed", attention_mask=document_mask(
            batch["documents"]), position_ids=torch.from_numpy(batch["positions"]))
        model.save_pretrained(folder / case)
        (folder / case / "generation_config.json").unlink(missing_ok=True)
        safetensors.numpy.save_file(reference, folder / case / "ref.safetensors")


if __name__ == "__main__":
    main()
