"""What the scripts for checkpoints of quantized matrices have in common."""

import json
import pathlib
import sys

import safetensors.torch
import torch

FAMILIES = pathlib.Path(__file__).resolve().parent.parent.parent / "tests/models/data/families"
NUM_TOKENS = 20


def is_plain(name, tensor):
    """Whether a checkpoint keeps it as it is."""
    return tensor.dim() == 1 or "embed_tokens" in name or "lm_head" in name


def random_state(model, seed):
    """Tensors of bfloat16 for all parameters, of sizes with which a model's numbers stay in range."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, parameter in model.state_dict().items():
        numbers = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            numbers = 0.3 * numbers + 1
        elif "embed_tokens" not in name:
            numbers *= 1.5 / parameter.shape[-1] ** 0.5
        state[name] = numbers.to(torch.bfloat16)
    return state


def write_checkpoint(folder, kind, config, tensors, quantization):
    """The tensors, and the configuration with what it says of quantization."""
    folder.mkdir(parents=True, exist_ok=True)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    text = json.loads(config.to_json_string(use_diff=True))
    text["architectures"] = [kind + "ForCausalLM"]
    text["quantization_config"] = quantization
    (folder / "config.json").write_text(json.dumps(text, indent=1) + "\n")


def write_reference(folder, model):
    """The model's logits of random tokens."""
    ids = torch.randint(0, model.config.vocab_size, (1, NUM_TOKENS), generator=torch.Generator().manual_seed(5))
    logits = model(ids).logits[0].float().contiguous()
    safetensors.torch.save_file({"logits": logits}, folder / "ref.safetensors",
                                {"tokens": ",".join(str(i) for i in ids[0].tolist())})


@torch.no_grad()
def write_cases(cases, write_case):
    """Each case into the folder that the command line gives, or to where the tests read it."""
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else FAMILIES
    for seed, name in enumerate(cases):
        write_case(out / name, name, seed)
