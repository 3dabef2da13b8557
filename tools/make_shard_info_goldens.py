#!/usr/bin/env python3
"""Writes tests/cli/data/shard_info: what TVM's and MLC-LLM's shard_info.json files give every rank.

Needs the PyPI packages numpy and safetensors. Usage: make_shard_info_goldens.py [FOLDER]

tensors.safetensors is what is cut, cases.json has the files of each case, and expected.safetensors
holds "CASE/TENSOR/RANK": the shards as numpy makes them, by the definitions in TVM's loader test
(shard_dim_0, shard_dim_1, shard_qkv_0, shard_qkv_1) and of MLC-LLM's ShardSingleDim.
"""

import json
import pathlib
import sys

import numpy as np
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
RANKS = (1, 2, 3, 4, 8)
Q_HEADS, KV_HEADS, HEAD_DIM = 24, 48, 1
# Partial arguments: what shard_info gives comes after them, or where $1 and $2 stand.
FUNCTIONS = {
    "tests.disco.shard_dim_0": ["weft.stack_shards", 0],
    "tests.disco.shard_dim_1": ["weft.stack_shards", 1],
    "tests.disco.shard_qkv_0": ["weft.stack_heads"],
    "tests.disco.shard_qkv_1": ["flatten", 1, 2],
    "my.shard": ["weft.stack_shards", "$2", "$1"],
    "my.transpose": ["transpose", 0, 1],
    "my.qkv": ["weft.stack_shards", 0, "$1", 24, 48, 48],
}


def make_tensors():
    random = np.random.default_rng(1)
    numbers = lambda dtype, *shape: random.uniform(-1, 1, shape).astype(dtype)
    return {
        "x_0": numbers(np.float16, 4, 24),
        "x_1": numbers(np.float32, 24, 2),
        "w_qkv": numbers(np.float16, (Q_HEADS + 2 * KV_HEADS) * HEAD_DIM, 3),
        "disco_qkv": numbers(np.float16, (8 + 2 * 10) * 10, 20),
        "uneven": numbers(np.float16, 11, 13),
        "norm": numbers(np.float32, 5),
        "gate_up_proj.q_weight": random.integers(0, 2**32, (48, 3), dtype=np.uint32),
        "gate_up_proj.q_scale": numbers(np.float16, 48, 2),
        "o_proj.q_weight": random.integers(0, 2**32, (3, 24), dtype=np.uint32),
        "moe.e1_e3.weight": numbers(np.float16, 2, 48, 3),
        "moe.e2.weight": numbers(np.float16, 2, 3, 24),
    }


def shard_dim_0(x, n):
    return x.reshape(n, x.shape[0] // n, x.shape[1])


def shard_dim_1(x, n):
    return x.reshape(x.shape[0], n, x.shape[1] // n).transpose(1, 0, 2)


def shard_qkv(x, n, q_heads, kv_heads, head_dim):
    q, k, v = np.split(x, [q_heads * head_dim, (q_heads + kv_heads) * head_dim])
    heads = lambda part, count: part.reshape(n, count // n, head_dim, x.shape[1])
    both = np.concatenate([heads(q, q_heads), heads(k, kv_heads), heads(v, kv_heads)], axis=1)
    return both, both.reshape(n, -1, x.shape[1])


def shard_single_dim(x, n, dim, segments=None):
    """`segments` are lengths of the whole."""
    parts, start = [], 0
    for length in segments or [x.shape[dim]]:
        part = x.take(range(start, start + length), axis=dim)
        shape = (*x.shape[:dim], n, length // n, *x.shape[dim + 1:])
        parts.append(np.moveaxis(part.reshape(shape), dim, 0))
        start += length
    return np.concatenate(parts, axis=dim + 1)


def tvm_step(name, result, *extras):
    return [name, [list(result.shape), str(result.dtype)], *extras]


def mlc_step(name, x, result):
    return {"func_name": name, "in_shape": list(x.shape), "out_shape": list(result.shape),
            "out_dtype": str(result.dtype)}


def tvm_2023(t, n):
    shards = {"x_0": shard_dim_1(t["x_0"], n), "x_1": shard_dim_0(t["x_1"], n)}
    info = {"x_0": [tvm_step("tests.disco.shard_dim_1", shards["x_0"], n)],
            "x_1": [tvm_step("tests.disco.shard_dim_0", shards["x_1"], n)]}
    return info, shards


def tvm_qkv_of(name, q_heads, kv_heads, head_dim):
    def case(t, n):
        heads, rows = shard_qkv(t[name], n, q_heads, kv_heads, head_dim)
        return {name: [tvm_step("tests.disco.shard_qkv_0", heads, n, q_heads, kv_heads),
                       tvm_step("tests.disco.shard_qkv_1", rows)]}, {name: rows}
    return case


def mlc_shards(t, n):
    return {
        "w_qkv": ("_shard_qkv", shard_single_dim(t["w_qkv"], n, 0, [24, 48, 48])),
        "gate_up_proj.q_weight": ("_shard_mlp_up_q_weight",
                                  shard_single_dim(t["gate_up_proj.q_weight"], n, 0, [24, 24])),
        "gate_up_proj.q_scale": ("_shard_mlp_up_q_scale",
                                 shard_single_dim(t["gate_up_proj.q_scale"], n, 0, [24, 24])),
        "o_proj.q_weight": ("_shard_o_q_weight", shard_single_dim(t["o_proj.q_weight"], n, 1)),
    }


def mlc_preprocs(t, n):
    shards = mlc_shards(t, n)
    info = {name: [mlc_step(function, t[name], result)] for name, (function, result) in shards.items()}
    return info, {name: result for name, (_, result) in shards.items()}


def mlc_metadata(t, n):
    info, shards = mlc_preprocs(t, n)
    params = [{"name": name, "shape": list(t[name].shape), "dtype": str(t[name].dtype),
               "preprocs": steps} for name, steps in info.items()]
    return {"quantization": "q4f16_1", "tensor_parallel_shards": n, "params": params}, shards


def mlc_experts(t, n):
    up, down = "moe.e1_e3.weight", "moe.e2.weight"
    shards = {up: shard_single_dim(t[up], n, 1, [24, 24]), down: shard_single_dim(t[down], n, 2)}
    return {up: [mlc_step("_shard_moe_mlp_up", t[up], shards[up])],
            down: [mlc_step("_shard_moe_mlp_down", t[down], shards[down])]}, shards


def dims_of(n, t):
    return {"uneven": np.array_split(t["uneven"], n, axis=1),
            "x_1": np.array_split(t["x_1"], n, axis=0)}


def old_dims(t, n):
    return {"uneven": 1, "x_1": 0, "norm": -1}, dims_of(n, t)


def oldest_list(t, n):
    return [{"name": "uneven", "shard_dim": 1}, {"name": "norm", "shard_dim": -1},
            {"name": "x_1", "shard_dim": 0}], dims_of(n, t)


def wefts_own(t, n):
    q, rest = np.split(t["w_qkv"], [24])
    k, v = np.split(rest, 2)
    qkv = [np.concatenate(parts) for parts in
           zip(*(np.array_split(part, n) for part in (q, k, v)))]
    info = {"format": "weft.shard_info", "version": 1, "others": "replicate", "params": {
        "w_qkv": [["shard_segments", 0, [24, 48, 48]]], "uneven": [["shard", 0]]}}
    return info, {"w_qkv": qkv, "uneven": np.array_split(t["uneven"], n)}


def arguments_in_places(t, n):
    shards = {"x_0": shard_dim_1(t["x_0"], n), "x_1": shard_dim_0(t["x_1"], n),
              "w_qkv": shard_single_dim(t["w_qkv"], n, 0, [24, 48, 48])}
    return {"x_0": [tvm_step("my.shard", shards["x_0"], n, 1)],
            "x_1": [tvm_step("my.shard", shards["x_1"], n, 0)],
            "w_qkv": [["my.qkv", [list(shards["w_qkv"].shape), "float16"], n]]}, shards


def reordered(t, n):
    turned = t["x_0"].T
    shards = shard_dim_0(turned, n)
    return {"x_0": [tvm_step("my.transpose", turned),
                    tvm_step("tests.disco.shard_dim_0", shards, n)]}, {"x_0": shards}


CASES = [
    ("tvm_2023", tvm_2023, RANKS),
    ("tvm_qkv", tvm_qkv_of("w_qkv", Q_HEADS, KV_HEADS, HEAD_DIM), RANKS),
    ("tvm_8_heads_10_kv_heads", tvm_qkv_of("disco_qkv", 8, 10, 10), (1, 2)),
    ("mlc_preprocs", mlc_preprocs, RANKS),
    ("mlc_metadata", mlc_metadata, RANKS),
    ("mlc_experts", mlc_experts, RANKS),
    ("old_dims", old_dims, RANKS),
    ("oldest_list", oldest_list, RANKS),
    ("wefts_own", wefts_own, RANKS),
    ("arguments_in_places", arguments_in_places, RANKS),
    ("reordered", reordered, RANKS),
]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "tests/cli/data/shard_info")
    tensors = make_tensors()
    cases, expected = [], {}
    for name, make, ranks in CASES:
        for n in ranks:
            info, shards = make(tensors, n)
            case = f"{name}_{n}"
            cases.append({"name": case, "tp": n, "shard_info": info, "cut": sorted(shards)})
            for tensor, parts in shards.items():
                for rank, part in enumerate(parts):
                    expected[f"{case}/{tensor}/{rank}"] = np.ascontiguousarray(part)
    save_file(tensors, folder / "tensors.safetensors")
    save_file(expected, folder / "expected.safetensors")
    lines = ",\n".join(json.dumps(case) for case in cases)
    head = {"heads": {"num_attention_heads": Q_HEADS, "num_key_value_heads": KV_HEADS},
            "functions": FUNCTIONS}
    (folder / "cases.json").write_text(json.dumps(head)[:-1] + f',\n"cases": [\n{lines}\n]}}\n')


main()
