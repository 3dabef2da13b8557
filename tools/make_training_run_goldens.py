#!/usr/bin/env python3
"""Twenty steps of a tiny Llama in plain PyTorch: python3 tools/make_training_run_goldens.py OUT

Writes OUT/model (a Hugging Face folder, the start) and OUT/run.safetensors: per step the loss and
the gradient's norm before clipping, and the parameters after the last step. Tokens follow from
their place, so that the test makes the same: see `batch`. Needs torch 2.11, transformers 4.57 and
safetensors. tests/train/data/llama_run has the output.
"""

import argparse
import pathlib

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

STEPS, SEQUENCES, TOKENS, VOCAB = 20, 48, 8, 40


def batch(step):
    """ids and targets [SEQUENCES, TOKENS]; sequence b leaves its first b % (TOKENS + 1) out."""
    b = torch.arange(SEQUENCES)[:, None]
    t = torch.arange(TOKENS + 1)[None, :]
    text = (7 * step + 13 * b + 3 * t * t + (b * t) % 5) % VOCAB
    targets = text[:, 1:].clone()
    targets[t[:, :-1] < b % (TOKENS + 1)] = -100
    return text[:, :-1], targets


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    torch.manual_seed(11)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=24, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=32,
        initializer_range=0.2, tie_word_embeddings=True, attn_implementation="eager")).float()
    model.save_pretrained(out / "model")
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": 0.1},
         {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}],
        lr=5e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        ids, targets = batch(step)
        logits = model(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(),
                                                 ignore_index=-100, reduction="mean")
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    tensors = {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    tensors |= {name: p.detach().clone() for name, p in parameters.items()}
    save_file(tensors, out / "run.safetensors")
    print("losses", [round(float(x), 4) for x in losses])
    print("norms", [round(float(x), 4) for x in norms])


main()
