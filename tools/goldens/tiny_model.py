#!/usr/bin/env python3
"""Writes what Hugging Face transformers computes on the tiny model tests/models/data/mlx/plain_f32, whose
tokens are bytes.

    python3 tools/goldens/tiny_model.py

Needs the PyPI packages torch, transformers 4.57 and tokenizers. Writes

    tests/generate/data/bos.json         a text, what a tokenizer with and one without bos make of it, and the
                                         greedy tokens behind it
    tests/serve/data/embeddings.json     the last token's hidden state after the last norm and the mean of all, of
                                         length 1, for texts of one token, of a piece of a prompt, and of several
"""

import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers.models.gpt2.tokenization_gpt2 import bytes_to_unicode

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests/models/data/mlx/plain_f32"
BOS = 1
PROMPT = "The fox"
NUM_NEW_TOKENS = 24
TEXTS = ["a", "The fox", "x" * 128, "All human beings are born free. " * 9]


def make_tokenizer(adds_bos):
    letters = bytes_to_unicode()
    tokenizer = Tokenizer(models.BPE(vocab={letters[byte]: byte for byte in range(256)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{letters[BOS]} $A", special_tokens=[(letters[BOS], BOS)])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=letters[BOS])


def load(kind):
    return kind.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()


def bos_goldens():
    model = load(transformers.AutoModelForCausalLM)
    model.generation_config.eos_token_id = None
    for adds_bos in (True, False):
        ids = make_tokenizer(adds_bos)(PROMPT, return_tensors="pt")["input_ids"]
        found = model.generate(ids, max_new_tokens=NUM_NEW_TOKENS, do_sample=False)[0].tolist()
        yield {"bos": BOS, "adds_bos": adds_bos, "prompt": PROMPT, "tokens": ids[0].tolist(),
               "greedy": found[ids.shape[1]:]}


def embedding_goldens():
    model = load(transformers.AutoModel)
    for text in TEXTS:
        hidden_TD = model(torch.tensor([list(text.encode())])).last_hidden_state[0].double()
        rows = {"last": hidden_TD[-1], "mean": hidden_TD.mean(0)}
        yield {"text": text} | {name: [round(x, 7) for x in (row / row.norm()).tolist()]
                                for name, row in rows.items()}


def write(path, goldens):
    path = ROOT / path
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(goldens)) + "\n")


@torch.no_grad()
def main():
    write("tests/generate/data/bos.json", bos_goldens())
    write("tests/serve/data/embeddings.json", embedding_goldens())


if __name__ == "__main__":
    main()
