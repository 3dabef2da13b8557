#!/usr/bin/env python3
"""Writes tests/train/data: learning rates of transformers' schedules, and what the optimizers of
PyTorch and transformers make of given gradients.

Needs the PyPI packages torch, transformers 4.57, safetensors.
Usage: make_optimizer_goldens.py [FOLDER]

schedules.json           a list of schedules, each with the rate of every step and some after the end
optimizers.safetensors   `before.NAME` and, per update, `gradient.STEP.NAME` (the same for all), then
    for each case `CASE.NAME`: the parameter after STEPS updates. Metadata: `steps`, `lr`, and each
    case's settings as JSON.
"""

import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers
from transformers import optimization

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 20
LR = 0.01
SIZES = {"matrix": [7, 5], "wide": [3, 17], "vector": [11], "cube": [2, 3, 5]}


def rates_of(make, peak, count):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=peak)
    schedule = make(optimizer)
    rates = []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def schedules():
    warmup, total, decay, peak = 5, 40, 12, 3e-3
    made = []

    def add(kind, make, shape="linear", final=0.0, warmup=warmup, count=total + 4):
        made.append({"kind": kind, "warmup": warmup, "total": total, "decay": decay, "peak": peak,
                     "shape": shape, "final": final, "rates": rates_of(make, peak, count)})

    add("constant", lambda o: optimization.get_constant_schedule_with_warmup(o, warmup))
    add("linear", lambda o: optimization.get_linear_schedule_with_warmup(o, warmup, total))
    # After its end the cosine of transformers rises again.
    add("cosine", lambda o: optimization.get_cosine_schedule_with_warmup(o, warmup, total),
        count=total + 1)
    add("cosine", lambda o: optimization.get_cosine_with_min_lr_schedule_with_warmup(
        o, warmup, total, min_lr_rate=0.1), final=0.1, count=total + 1)
    names = {"linear": "linear", "cosine": "cosine", "sqrt": "1-sqrt"}
    for shape, name in names.items():
        add("wsd", lambda o: optimization.get_wsd_schedule(
            o, warmup, decay, num_training_steps=total, decay_type=name), shape=shape)
        # Its warm-up begins at the least rate, ours at 0.
        add("wsd", lambda o: optimization.get_wsd_schedule(
            o, 0, decay, num_training_steps=total, decay_type=name, min_lr_ratio=0.2),
            shape=shape, final=0.2, warmup=0)
    return made


class Muon:
    """Matrices by PyTorch's Muon, computing in float32 where it takes bfloat16; all else by its AdamW."""

    def __init__(self, groups, lr, betas, eps, **settings):
        matrices = [group for group in groups if group["params"][0].dim() == 2]
        others = [group for group in groups if group["params"][0].dim() != 2]
        self.parts = [torch.optim.Muon(matrices, lr=lr, **settings),
                      torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps)]

    def step(self):
        half = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = torch.Tensor.clone
        for part in self.parts:
            part.step()
        torch.Tensor.bfloat16 = half


def cases():
    """Settings, the optimizer, and whether the settings' weight decay is for matrices alone."""
    sgd = torch.optim.SGD
    adamw = torch.optim.AdamW
    adafactor = transformers.Adafactor
    fixed = dict(relative_step=False, warmup_init=False)
    beside_muon = dict(betas=[0.9, 0.95], eps=1e-8)
    return {
        "adamw": (dict(betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1), adamw, {}),
        "sgd": (dict(momentum=0.9, nesterov=False, weight_decay=0.0), sgd, {}),
        "sgd_nesterov": (dict(momentum=0.8, nesterov=True, weight_decay=0.0), sgd, {}),
        "adafactor": (dict(scale_parameter=True, weight_decay=0.1), adafactor, fixed),
        "adafactor_unscaled": (dict(scale_parameter=False, weight_decay=0.0), adafactor, fixed),
        "adafactor_momentum": (dict(scale_parameter=True, beta1=0.9, weight_decay=0.0), adafactor,
                               fixed),
        "muon": (dict(momentum=0.95, nesterov=True, weight_decay=0.1,
                      adjust_lr_fn="match_rms_adamw"), Muon, beside_muon),
        "muon_original": (dict(momentum=0.9, nesterov=False, weight_decay=0.0,
                               adjust_lr_fn="original"), Muon, beside_muon),
    }


def run(settings, make, more, before, gradients):
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in before.items()}
    decay = settings["weight_decay"]
    others = {key: value for key, value in settings.items() if key != "weight_decay"}
    groups = [{"params": [p], "weight_decay": decay if p.dim() >= 2 else 0.0}
              for p in parameters.values()]
    optimizer = make(groups, lr=LR, **others, **more)
    for step in range(STEPS):
        for name, parameter in parameters.items():
            parameter.grad = gradients[step][name].clone()
        optimizer.step()
    return {name: parameter.detach() for name, parameter in parameters.items()}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests/train/data"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedules.json").write_text(json.dumps(schedules(), indent=1) + "\n")
    generator = torch.Generator().manual_seed(6)
    random = lambda size: torch.randn(size, generator=generator)
    before = {name: random(size) for name, size in SIZES.items()}
    gradients = [{name: random(size) * (1 + step % 3) for name, size in SIZES.items()}
                 for step in range(STEPS)]
    tensors = {f"before.{name}": value for name, value in before.items()}
    tensors |= {f"gradient.{step}.{name}": value for step in range(STEPS)
                for name, value in gradients[step].items()}
    metadata = {"steps": str(STEPS), "lr": str(LR)}
    for case, (settings, make, more) in cases().items():
        after = run(settings, make, more, before, gradients)
        tensors |= {f"{case}.{name}": value for name, value in after.items()}
        metadata[case] = json.dumps(settings)
    safetensors.torch.save_file(tensors, folder / "optimizers.safetensors", metadata)


if __name__ == "__main__":
    main()
