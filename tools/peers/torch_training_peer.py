#!/usr/bin/env python3
"""A small Llama trained in plain PyTorch on the CPU, over Gloo: what compare_training.py sets weft against.

Started once per rank with torchrun's environment. Modes: single, ddp, fsdp (FSDP2), tp (DTensor),
tpm (column and row layers by hand, as Megatron has them). Dtypes: fp32, autocast (float32
parameters, bfloat16 products), bf16 (parameters too), and for fsdp mp and mpb (bfloat16 compute,
gradients reduced in float32 or bfloat16). Prints "RESULT {json}". Needs the PyPI packages torch, numpy.
"""

import argparse
import json
import os
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard

ROPE_BASE, EPS = 10000.0, 1e-5


def splitmix64(x):
    with np.errstate(over="ignore"):
        z = x + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def make_tokens(step, rows, length, vocab):
    """Each token follows from the one before, with two bits of noise."""
    key = np.uint64(step << 40) + (np.asarray(rows, dtype=np.uint64) << np.uint64(20))
    noise = splitmix64(key[:, None] + np.arange(length + 1, dtype=np.uint64)[None])
    ids = np.empty(noise.shape, dtype=np.int64)
    ids[:, 0] = noise[:, 0] % np.uint64(vocab)
    for t in range(1, length + 1):
        ids[:, t] = (5 * ids[:, t - 1] + 7 + (noise[:, t] % np.uint64(4)).astype(np.int64)) % vocab
    return torch.from_numpy(ids)


def rope_tables(head_dim, length):
    frequencies = 1.0 / ROPE_BASE ** (torch.arange(0, head_dim, 2).float() / head_dim)
    turns = torch.outer(torch.arange(length).float(), frequencies)
    turns = torch.cat([turns, turns], -1)
    return turns.cos(), turns.sin()


def rotate(x, cos, sin):
    cos, sin = (t[None, :, None].to(x.dtype) for t in (cos, sin))
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), EPS)


class Attention(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.head_dim = o.hidden // o.heads
        self.wq = nn.Linear(o.hidden, o.hidden, bias=False)
        self.wk = nn.Linear(o.hidden, o.kv * self.head_dim, bias=False)
        self.wv = nn.Linear(o.hidden, o.kv * self.head_dim, bias=False)
        self.wo = nn.Linear(o.hidden, o.hidden, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (w(x).unflatten(-1, (-1, self.head_dim)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (rotate(q, cos, sin), rotate(k, cos, sin), v))
        copies = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(copies, 1), v.repeat_interleave(copies, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.w1 = nn.Linear(o.hidden, o.ffn, bias=False)
        self.w3 = nn.Linear(o.hidden, o.ffn, bias=False)
        self.w2 = nn.Linear(o.ffn, o.hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(o.hidden), Attention(o)
        self.ffn_norm, self.feed_forward = RMSNorm(o.hidden), FeedForward(o)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.embedding = nn.Embedding(o.vocab, o.hidden)
        self.layers = nn.ModuleList(Block(o) for _ in range(o.layers))
        self.norm = RMSNorm(o.hidden)
        self.output = nn.Linear(o.hidden, o.vocab, bias=False)
        self.tables = rope_tables(o.hidden // o.heads, o.seq)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, *self.tables)
        return self.output(self.norm(x))


def apply_dtensor(model, mesh):
    """One reduction per block input, and logits that stay cut for the loss."""
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput,
                                                   RowwiseParallel, parallelize_module)
    whole = Replicate()
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=whole, output_layouts=whole),
        "output": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    for layer in model.layers:
        plan = {f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
        plan |= {f"feed_forward.{w}": ColwiseParallel() for w in ("w1", "w3")}
        plan |= {f"{w}": RowwiseParallel() for w in ("attention.wo", "feed_forward.w2")}
        plan["attention"] = PrepareModuleInput(input_layouts=(whole, None, None),
                                               desired_input_layouts=(whole, None, None))
        plan["feed_forward"] = PrepareModuleInput(input_layouts=(whole,),
                                                  desired_input_layouts=(whole,))
        parallelize_module(layer, mesh, plan)


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, grad):
        return grad


class CutCrossEntropy(torch.autograd.Function):
    """Mean loss of logits that are cut by vocabulary, in place in the exponentials."""

    @staticmethod
    def forward(context, logits, targets, first):
        x = logits.float()
        most = x.max(-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        x = x - most[:, None] if x is logits else x.sub_(most[:, None])
        column = targets - first
        elsewhere = (column < 0) | (column >= x.shape[-1])
        column = column.masked_fill(elsewhere, 0)
        target = x.gather(1, column[:, None])[:, 0].masked_fill(elsewhere, 0.0)
        x = x.exp_()
        both = torch.stack([target, x.sum(-1)])
        dist.all_reduce(both)
        context.save_for_backward(x, both[1], column, elsewhere)
        context.dtype = logits.dtype
        return (both[1].log() - both[0]).mean()

    @staticmethod
    def backward(context, grad):
        x, total, column, elsewhere = context.saved_tensors
        scale = grad / x.shape[0]
        x = x.mul_((scale / total)[:, None])
        x.scatter_add_(1, column[:, None], (-(~elsewhere).to(x.dtype) * scale)[:, None])
        return x.to(context.dtype), None, None


def apply_by_hand(model, rank, ranks):
    def cut(module, dim):
        part = module.weight.data.chunk(ranks, dim)[rank]
        module.weight = nn.Parameter(part.clone(memory_format=torch.contiguous_format))

    cut(model.embedding, 0)
    cut(model.output, 0)
    for layer in model.layers:
        a, f = layer.attention, layer.feed_forward
        for linear in (a.wq, a.wk, a.wv, f.w1, f.w3):
            cut(linear, 0)
        for linear in (a.wo, f.w2):
            cut(linear, 1)
    rows = model.embedding.weight.shape[0]
    first = rank * rows

    def forward(ids):
        column = ids - first
        elsewhere = (column < 0) | (column >= rows)
        x = F.embedding(column.masked_fill(elsewhere, 0), model.embedding.weight)
        x = Reduce.apply(x.masked_fill(elsewhere[..., None], 0.0))
        for layer in model.layers:
            x = x + Reduce.apply(layer.attention(Copy.apply(layer.attention_norm(x)), *model.tables))
            x = x + Reduce.apply(layer.feed_forward(Copy.apply(layer.ffn_norm(x))))
        return model.output(Copy.apply(model.norm(x)))

    model.forward = forward
    return first


def apply_fsdp(model, mesh, dtype):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy()
    if dtype in ("mp", "mpb"):
        policy = MixedPrecisionPolicy(torch.bfloat16,
                                      torch.float32 if dtype == "mp" else torch.bfloat16)
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh, mp_policy=policy)


class Trainer:
    def __init__(self, o, rank, ranks):
        self.o, self.rank, self.ranks = o, rank, ranks
        self.data = ranks if o.mode in ("ddp", "fsdp") else 1
        self.model = self.net = Llama(o)
        torch.manual_seed(o.seed)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0.0, 0.02)
        if o.dtype == "bf16":
            self.model.to(torch.bfloat16)
        self.first = 0
        self.distribute()
        by_mesh = {}
        for p in self.model.parameters():
            mesh = p.device_mesh if isinstance(p, DTensor) else None
            by_mesh.setdefault(mesh, []).append(p)
        self.groups = list(by_mesh.values())
        self.optimizer = torch.optim.AdamW([{"params": g} for g in self.groups], fused=True, lr=3e-4,
                                           betas=(0.9, 0.95), weight_decay=0.1)

    def distribute(self):
        from torch.distributed.device_mesh import init_device_mesh
        if self.o.mode == "tp":
            apply_dtensor(self.model, init_device_mesh("cpu", (self.ranks,)))
        elif self.o.mode == "fsdp":
            apply_fsdp(self.model, init_device_mesh("cpu", (self.ranks,)), self.o.dtype)
        elif self.o.mode == "tpm":
            self.first = apply_by_hand(self.model, self.rank, self.ranks)
        elif self.o.mode == "ddp":
            self.net = nn.parallel.DistributedDataParallel(
                self.model, gradient_as_bucket_view=True, broadcast_buffers=False)

    def loss(self, ids):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.o.dtype == "autocast"):
            logits = self.net(ids[:, :-1]).flatten(0, 1)
        targets = ids[:, 1:].reshape(-1)
        if self.o.mode == "tpm":
            return CutCrossEntropy.apply(logits, targets, self.first)
        return F.cross_entropy(logits.float(), targets)

    def clip(self):
        if self.o.mode == "tpm":
            grads = [p.grad for p in self.model.parameters()]
            square = sum(g.float().square().sum() for g in grads if g.dim() > 1)
            dist.all_reduce(square)
            norm = (square + sum(g.float().square().sum() for g in grads if g.dim() == 1)).sqrt()
        else:
            norms = [torch.nn.utils.get_total_norm([p.grad for p in g]) for g in self.groups]
            norms = [n.full_tensor() if isinstance(n, DTensor) else n for n in norms]
            norm = torch.stack([n.float() for n in norms]).norm()
        for group in self.groups:
            torch.nn.utils.clip_grads_with_norm_(group, 1.0, norm)

    def step(self, number):
        from torch.distributed.tensor.parallel import loss_parallel
        o = self.o
        first = (self.rank if self.data > 1 else 0) * o.batch
        ids = make_tokens(number, np.arange(first, first + o.batch), o.seq, o.vocab)
        self.optimizer.zero_grad(set_to_none=True)
        with loss_parallel() if o.mode == "tp" else nullcontext():
            loss = self.loss(ids)
            loss.backward()
        self.clip()
        self.optimizer.step()
        loss = loss.detach()
        loss = loss.full_tensor() if isinstance(loss, DTensor) else loss
        if self.data > 1:
            dist.all_reduce(loss)
        return float(loss) / self.data


def measure(o, rank, ranks):
    trainer = Trainer(o, rank, ranks)
    seconds, losses = [], []
    for number in range(o.warmup + o.steps):
        if ranks > 1:
            dist.barrier()
        begin = time.perf_counter()
        losses.append(trainer.step(number))
        seconds.append(time.perf_counter() - begin)
    median = float(np.median(seconds[o.warmup:]))
    if rank == 0:
        speed = o.batch * o.seq * trainer.data / median
        print("RESULT " + json.dumps({"mode": o.mode, "dtype": o.dtype, "tok_s": speed,
                                      "step_ms": median * 1e3, "losses": losses}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=["single", "ddp", "fsdp", "tp", "tpm"], default="single")
    parser.add_argument("--dtype", choices=["fp32", "autocast", "bf16", "mp", "mpb"], default="fp32")
    parser.add_argument("--f32prec", default="medium")
    sizes = {"hidden": 512, "layers": 8, "heads": 8, "kv": 4, "ffn": 1408, "vocab": 8192,
             "seq": 512, "batch": 4, "steps": 8, "warmup": 3, "threads": 1, "seed": 1234}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(o.threads)
    torch.set_float32_matmul_precision(o.f32prec)
    if ranks > 1:
        dist.init_process_group("gloo")
    measure(o, rank, ranks)
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
