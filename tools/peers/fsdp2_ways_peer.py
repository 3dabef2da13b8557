#!/usr/bin/env python3
"""The module of bench_psdp_ways under PyTorch's FSDP2 with hybrid sharding, over Gloo.

Started once per rank with torchrun's environment; takes bench_psdp_ways' options. With --deferred
gradients cross replicas in a step's last microbatch only (set_requires_all_reduce). Prints
"RESULT {json}" on rank 0: per step each parameter's gradient on every rank that differs from the
others', the bytes that a rank sends over the replica axis by rings, and the bytes of its state.
Needs the PyPI package torch.
"""

import argparse
import json

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Vector(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, factor):
        return (self.weight * factor).sum()


class Vectors(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = Vector(width), Vector(width)
        self.around = nn.Parameter(torch.ones(width))

    def forward(self, factor, way):
        loss = (self.around * factor).sum()
        for unit in way.replace("-", ""):
            loss = loss + getattr(self, unit)(factor)
        return loss


def count_replica_bytes(group):
    """Counts what all-reduces over `group` send by rings, from this call on."""
    counted = {"bytes": 0.0}
    plain = dist.all_reduce

    def counting(tensor, *arguments, **options):
        if options.get("group") is group:
            size = group.size()
            counted["bytes"] += 2 * (size - 1) / size * tensor.numel() * tensor.element_size()
        return plain(tensor, *arguments, **options)

    dist.all_reduce = counting
    return counted


def gradients_of(model, ranks):
    """The first element of each parameter's gradient; a list where ranks differ."""
    own = {}
    for name, parameter in model.named_parameters():
        local = None if parameter.grad is None else parameter.grad.to_local().float()
        own[name] = None if local is None or local.numel() == 0 else local.flatten()[0].item()
    everywhere = [None] * ranks
    dist.all_gather_object(everywhere, own)
    values = {name: sorted({str(each[name]) for each in everywhere}) for name in own}
    return {name: each[0] if len(each) == 1 else each for name, each in values.items()}


def state_bytes(model, optimizer):
    total = 0
    for parameter in model.parameters():
        total += parameter.to_local().nbytes
        total += 0 if parameter.grad is None else parameter.grad.to_local().nbytes
        total += sum(value.to_local().nbytes for value in optimizer.state[parameter].values()
                     if value.dim() > 0)
    return total


def shard(model, options):
    mesh = init_device_mesh("cpu", (options.replicas, dist.get_world_size() // options.replicas),
                            mesh_dim_names=("replica", "data"))
    half = torch.bfloat16
    policy = (MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half)
              if options.dtype == "bf16" else MixedPrecisionPolicy())
    for module in (model.a, model.b, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)
    return mesh


def run_step(model, optimizer, ways, factor, data_rank, deferred):
    optimizer.zero_grad()
    microbatches = ways.split(",")
    for i, way in enumerate(microbatches):
        if deferred:
            model.set_requires_all_reduce(i + 1 == len(microbatches))
        by_rank = way.split("/")
        model(factor, by_rank[data_rank % len(by_rank)]).backward()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", default="ab")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--deferred", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Vectors(options.width)
    mesh = shard(model, options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    counted = count_replica_bytes(mesh["replica"].get_group())
    result = {"gradients": []}
    try:
        for ways in options.ways.split("|"):
            run_step(model, optimizer, ways, 1.0 if options.same else rank + 1.0,
                     mesh["data"].get_local_rank(), options.deferred)
            result["gradients"].append(gradients_of(model, ranks))
            optimizer.step()
        result |= {"replica_bytes": counted["bytes"], "state_bytes": state_bytes(model, optimizer)}
    except RuntimeError as error:
        result["error"] = str(error).splitlines()[0]
    if rank == 0:
        print("RESULT " + json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
