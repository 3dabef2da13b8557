#!/usr/bin/env python3
"""Converts the tiny checkpoints of every family to GGUF and back with weft, and reads the results with
other programs: the GGUF with the package gguf, the folder with Hugging Face transformers.

    python3 tools/peers/check_converted_families.py WEFT [CASE…]

WEFT is the program. Needs PyPI: gguf, torch, transformers, safetensors, tokenizers. Prints a line per
case with the largest difference of the logits; fails above 1e-4, for keys that differ from the
configuration's and for tensors that differ from those that gguf has written.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = ROOT / "tests/models/data/families"
# GGUF's key without the architecture -> config.json's.
KEYS = {
    "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
    "feed_forward_length": "intermediate_size", "vocab_size": "vocab_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps", "rope.freq_base": "rope_theta",
    "attention.sliding_window": "sliding_window", "attention.key_length": "head_dim",
    "expert_used_count": "num_experts_per_tok", "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
}


def check(ok, *what):
    if not ok:
        raise SystemExit(" ".join(str(part) for part in what))


def value_of(reader, key):
    field = reader.get_field(key)
    return None if field is None else field.contents()


def check_keys(name, reader, config):
    architecture = value_of(reader, "general.architecture")
    own = lambda key: value_of(reader, f"{architecture}.{key}")
    for key, wanted in KEYS.items():
        expected = getattr(config, wanted, None)
        if expected is None or (key == "attention.sliding_window" and own(key) is None
                                and not getattr(config, "use_sliding_window", True)):
            continue
        check(own(key) is not None and abs(own(key) - expected) <= 1e-6 * abs(expected), name, key,
              own(key), "expected", expected)
    scaling = getattr(config, "rope_scaling", None) or {"rope_type": "none"}
    kind = scaling["rope_type"]
    has_key = kind in ("linear", "yarn")
    check(own("rope.scaling.type") == (kind if has_key else None), name, own("rope.scaling.type"))
    if has_key:
        check(own("rope.scaling.factor") == scaling["factor"], name, "rope.scaling.factor")
    if kind == "yarn":
        check(own("rope.scaling.original_context_length")
              == scaling["original_max_position_embeddings"], name, "original_context_length")


def values(tensor):
    numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return np.asarray(numbers, np.float32).reshape(list(reversed(tensor.shape.tolist())))


def check_tensors(name, reader, expected):
    ours = {tensor.name: tensor for tensor in reader.tensors}
    check(len(ours) == len(expected.tensors), name, "other tensors")
    for tensor in expected.tensors:
        check(tensor.name in ours, name, tensor.name, "is missing")
        a, b = values(ours[tensor.name]), values(tensor)
        check(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0), name, tensor.name)


def reference(case):
    with safetensors.safe_open(case / "ref.safetensors", "pt") as file:
        tokens = [int(token) for token in file.metadata()["tokens"].split(",")]
        return tokens, file.get_tensor("logits")


def difference_of(logits, expected):
    check(logits.shape == expected.shape, "shape", list(logits.shape))
    return (logits - expected).abs().max().item()


@torch.no_grad()
def transformers_difference(folder, case):
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    check(not any(loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
          "loading:", loading)
    tokens, expected = reference(case)
    return difference_of(model.eval()(torch.tensor([tokens])).logits[0].float(), expected)


def weft_difference(weft, model, case, folder, tp):
    tokens, expected = reference(case)
    out = folder / "logits.safetensors"
    subprocess.run([weft, "logits", model, "--tokens", ",".join(map(str, tokens)), "--out", out,
                    "--tp", str(tp)], check=True)
    return difference_of(safetensors.torch.load_file(out)["logits"], expected)


def check_case(weft, name, folder):
    case, source = FAMILIES / name, folder / "hf"
    shutil.copytree(case, source)
    (source / "model.gguf").unlink()
    tokenizer = ROOT / "examples/train/bytes"
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / file, source / file)
    path, back = folder / "model.gguf", folder / "back"
    subprocess.run([weft, "convert", source, path], check=True)
    subprocess.run([weft, "convert", path, back], check=True)
    reader = gguf.GGUFReader(path)
    check_keys(name, reader, transformers.AutoConfig.from_pretrained(case))
    check_tensors(name, reader, gguf.GGUFReader(case / "model.gguf"))
    differences = [transformers_difference(back, case)]
    for tp in (1, 2, 3):
        differences += [weft_difference(weft, model, case, folder, tp) for model in (path, back)]
    check(max(differences) <= 1e-4, name, differences)
    print(f"{name}: {len(reader.tensors)} tensors, logits within {max(differences):.1e}; rope",
          json.loads((back / "config.json").read_text()).get("rope_scaling"), flush=True)


def main():
    weft = pathlib.Path(sys.argv[1]).resolve()
    cases = sys.argv[2:] or sorted(path.parent.name for path in FAMILIES.glob("*/model.gguf")
                                   if (path.parent / "config.json").exists())
    for name in cases:
        with tempfile.TemporaryDirectory() as folder:
            check_case(weft, name, pathlib.Path(folder))


if __name__ == "__main__":
    main()
