#!/usr/bin/env python3
"""Writes how Hugging Face transformers continues a text on the tiny model tests/models/data/mlx/plain_f32
with a tokenizer that puts bos before texts, and with one that does not.

    python3 tools/make_bos_goldens.py

Needs the PyPI packages torch, transformers 4.57 and tokenizers. The tokens are the 256 bytes; bos is one of
them. Writes tests/generate/data/bos.json: the text, what `tokenizer(text)` makes of it, and the greedy tokens.
"""

import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from make_text_goldens import byte_letters

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOS = 1
PROMPT = "The fox"
NUM_NEW_TOKENS = 24


def make_tokenizer(adds_bos):
    letters = byte_letters()
    tokenizer = Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{letters[BOS]} $A", special_tokens=[(letters[BOS], BOS)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=letters[BOS])


@torch.no_grad()
def main():
    model = transformers.AutoModelForCausalLM.from_pretrained(
        ROOT / "tests/models/data/mlx/plain_f32", dtype=torch.float32, attn_implementation="eager").eval()
    model.generation_config.eos_token_id = None
    goldens = []
    for adds_bos in (True, False):
        inputs = make_tokenizer(adds_bos)(PROMPT, return_tensors="pt")
        found = model.generate(inputs["input_ids"], max_new_tokens=NUM_NEW_TOKENS, do_sample=False)
        tokens = inputs["input_ids"][0].tolist()
        goldens.append({"bos": BOS, "adds_bos": adds_bos, "prompt": PROMPT, "tokens": tokens,
                        "greedy": found[0][len(tokens):].tolist()})
    text = json.dumps(goldens, indent=1)
    (ROOT / "tests/generate/data/bos.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
