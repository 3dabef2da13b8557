#!/usr/bin/env python3
"""Writes tests/models/data/peft: adapters as Hugging Face's peft saves them, beside tiny models.

Needs the PyPI packages torch, transformers 4.57, peft 0.21, accelerate and safetensors.
Usage: make_peft_goldens.py [FOLDER]

FOLDER/<case>/adapter_config.json, adapter_model.safetensors   what save_pretrained writes
FOLDER/<case>/ref.safetensors    `logits` [tokens, vocabulary] of the model of tests/models/data/
    families that the case names, with the adapters beside its weights, in float32; metadata
    `tokens`, and `base`, the model's folder there
"""

import json
import pathlib
import sys

import peft
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "models" / "data"
NUM_TOKENS = 20
# Case: the model's folder, and the adapters' configuration.
CASES = {
    "plain": ("llama", dict(r=4, lora_alpha=16, target_modules=[
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])),
    "patterns": ("qwen2", dict(
        r=3, lora_alpha=8, target_modules="all-linear", use_rslora=True,
        rank_pattern={"q_proj": 2, "model.layers.1.mlp.down_proj": 5},
        alpha_pattern={"down_proj": 3})),
}


def adapted(name, options):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        DATA / "families" / name, dtype=torch.float32, attn_implementation="eager")
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **options)).eval()
    generator = torch.Generator().manual_seed(7)
    for parameter_name, parameter in model.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.3
    return model


def write_case(folder, name, options):
    model = adapted(name, options)
    # The path of this machine is not the model's name.
    model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    tokens = torch.randint(3, model.config.vocab_size, (1, NUM_TOKENS),
                           generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    safetensors.torch.save_file(
        {"logits": logits.contiguous()}, folder / "ref.safetensors",
        metadata={"tokens": ",".join(str(int(t)) for t in tokens[0]), "base": name})


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "peft"
    for case, (name, options) in CASES.items():
        (folder / case).mkdir(parents=True, exist_ok=True)
        write_case(folder / case, name, options)
        print(case, json.dumps(options))


if __name__ == "__main__":
    main()
