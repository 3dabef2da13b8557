#!/usr/bin/env python3
"""Loads what `weft convert MODEL.gguf FOLDER --dtype f32` has made of the bundled model with Hugging Face
transformers, and compares logits, tokens and the chat template with the goldens.

    python3 tools/peers/check_converted_model.py FOLDER

Needs PyPI: torch, transformers, safetensors. Prints the largest difference of the logits; fails above 1e-4.
"""

import json
import pathlib
import sys

import safetensors
import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests/models/data"


def check_tokens(tokenizer):
    cases = json.loads((DATA / "smollm2_goldens.json").read_text())["cases"]
    for case in cases:
        if "messages" in case:
            prompt = tokenizer.apply_chat_template(
                case["messages"], tokenize=False, add_generation_prompt=True)
            if prompt != case["prompt"]:
                raise SystemExit(f"chat template: {prompt!r}, expected {case['prompt']!r}")
        ids = tokenizer(case["prompt"], add_special_tokens=False)["input_ids"]
        if ids != case["tokens"]:
            raise SystemExit(f"tokens of {case['name']}: {ids}, expected {case['tokens']}")
    print(len(cases), "prompts: same tokens")


@torch.no_grad()
def check_logits(model):
    with safetensors.safe_open(DATA / "smollm2_logits.safetensors", "pt") as file:
        expected = file.get_tensor("logits")
        tokens = [int(token) for token in file.metadata()["tokens"].split(",")]
    difference = (model(torch.tensor([tokens])).logits[0] - expected).abs().max().item()
    print(f"logits: largest difference {difference:.2g}")
    if not difference <= 1e-4:
        raise SystemExit("logits differ by more than 1e-4")


def main():
    folder = sys.argv[1]
    check_tokens(transformers.AutoTokenizer.from_pretrained(folder))
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise SystemExit(f"loading: {loading}")
    check_logits(model.eval())


if __name__ == "__main__":
    main()
