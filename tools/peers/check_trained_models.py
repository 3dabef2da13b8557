#!/usr/bin/env python3
"""Trains tiny models of every family with weft and compares what `weft convert` and `weft fuse` make of
them with Hugging Face transformers:

    python3 tools/peers/check_trained_models.py BUILD/weft
    python3 tools/peers/check_trained_models.py --write tests/cli/data/transformers_models.json

Needs PyPI: torch, transformers 4.57, safetensors. Prints the largest difference of the logits for each;
fails above 1e-4, for a tensor too many or too few, and for other tokens than weft's. With --write it
writes what transformers itself says of models of the same sizes: config.json, and each tensor's name
and shape; tests/cli compares weft's with it.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import safetensors
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = ROOT / "tests/generate/data/us_constitution.txt"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
TOKENS = [17, 200, 3, 44, 121, 258, 90, 0, 65, 66, 67]
MODEL = {"hidden_size": 24, "num_layers": 2, "num_heads": 6, "num_kv_heads": 2, "max_positions": 64,
         "rope_base": 5000, "norm_eps": 1e-6, "init_std": 0.2,
         "tokenizer": str(ROOT / "examples/train/bytes")}


def run(program, *arguments):
    subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE)


def toml(sections):
    return "".join(f"{section}.{key} = {json.dumps(value)}\n"
                   for section, values in sections.items() for key, value in values.items())


def sections(folder, model):
    return {"model": model, "train": {"steps": 5, "seed": 4}, "optimizer": {"lr": 1e-2},
            "batch": {"sequences": 4, "sequence_length": 32}, "data": {"train": [str(TEXT)]},
            "checkpoint": {"folder": str(folder / "run")}}


def train(program, folder, verb, model, out_verb):
    """Trains a model in `folder` and returns the folder that weft has made of it."""
    folder.mkdir()
    config = folder / "run.toml"
    config.write_text(toml(sections(folder, model)))
    run(program, verb, config)
    run(program, out_verb, folder / "run", folder / "model")
    return folder / "model"


@torch.no_grad()
def compare(program, name, folder):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    if any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise SystemExit(f"{name}: loading: {loading}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = "We the People, naïve"
    shown = json.loads(subprocess.run([program, "tokenize", "--json", "-m", folder, "-p", text], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout)
    if tokenizer(text, add_special_tokens=False)["input_ids"] != shown["tokens"]:
        raise SystemExit(f"{name}: other tokens than weft's: {shown['tokens']}")
    out = folder.parent / "logits.safetensors"
    run(program, "logits", folder, "--tokens", ",".join(map(str, TOKENS)), "--out", out)
    with safetensors.safe_open(out, "pt") as file:
        expected = file.get_tensor("logits")
    difference = (model.eval()(torch.tensor([TOKENS])).logits[0] - expected).abs().max().item()
    print(f"{name}: logits of size {expected.abs().max():.2g}, largest difference {difference:.2g}")
    if not difference <= 1e-4:
        raise SystemExit(f"{name}: logits differ by more than 1e-4")


def described(family, tied):
    """A model of the sizes above as transformers would save it."""
    config = transformers.AutoConfig.for_model(
        family, vocab_size=259, hidden_size=24, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, head_dim=4, max_position_embeddings=64,
        rope_theta=5000.0, rms_norm_eps=1e-6, tie_word_embeddings=tied, sliding_window=None)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safetensors.safe_open(folder + "/model.safetensors", "pt") as file:
            tensors = {name: list(file.get_slice(name).get_shape()) for name in file.keys()}
        written = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return {"config": written, "tensors": tensors}


def write_goldens(path):
    models = {f"{family}_{'tied' if tied else 'untied'}": described(family, tied)
              for family in FAMILIES for tied in (True, False)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(models, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path, nargs="?")
    parser.add_argument("--write", type=pathlib.Path)
    flags = parser.parse_args()
    if flags.write is not None:
        write_goldens(flags.write)
    if flags.program is None:
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        for family in FAMILIES:
            for tied in (True, False):
                name = f"{family}_{'tied' if tied else 'untied'}"
                folder = train(flags.program, root / name, "train",
                               MODEL | {"family": family, "tied": tied}, "convert")
                compare(flags.program, name, folder)
            fused = train(flags.program, root / f"{family}_fused", "lora", {"from": str(folder)}, "fuse")
            compare(flags.program, f"{family}_fused", fused)


if __name__ == "__main__":
    main()
