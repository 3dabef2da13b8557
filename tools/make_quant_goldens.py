#!/usr/bin/env python3
"""Writes tests/quant/data: what MLX and the package `gguf` make of small random matrices.

Needs numpy, gguf and mlx (on Linux: mlx[cpu]) from PyPI. Usage: make_quant_goldens.py FOLDER

Every file is raw little-endian numbers, one part after the other:
  mlx_b<bits>_g<group>_<dtype>.bin  w float32 [6, 128], packed, scales, biases (<dtype>, [6, groups]),
                                    dequantized float32 [6, 128]
  gguf_<type>.bin                   blocks of a [3, 512] matrix, dequantized float32 [3, 512]
"""

import pathlib
import sys

import gguf
import mlx.core as mx
import numpy as np

ROWS, COLUMNS = 6, 128
GGUF_ROWS, GGUF_COLUMNS = 3, 512
# Type, and where in a block its float16 numbers are.
GGUF_TYPES = [
    ("Q4_0", [0]),
    ("Q4_1", [0, 2]),
    ("Q5_0", [0]),
    ("Q5_1", [0, 2]),
    ("Q8_0", [0]),
    ("Q2_K", [80, 82]),
    ("Q3_K", [108]),
    ("Q4_K", [0, 2]),
    ("Q5_K", [0, 2]),
    ("Q6_K", [208]),
]


def mlx_weights(random):
    """Rows that reach every branch of the rule: zero, one sign, constant, a few magnitudes."""
    w = random.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    w[0] = 0
    w[1] = np.abs(w[1]) + 0.5
    w[2] = -np.abs(w[2]) - 0.5
    w[3] = 0.625
    w[4] *= 1e-3
    return w


def write_mlx(folder, random, bits, group, dtype):
    w = mx.array(mlx_weights(random)).astype(dtype)
    packed, scales, biases = mx.quantize(w, group_size=group, bits=bits)
    wide = [part.astype(mx.float32) for part in (scales, biases)]
    dequantized = mx.dequantize(packed, *wide, group_size=group, bits=bits)
    name = {mx.float32: "f32", mx.float16: "f16", mx.bfloat16: "bf16"}[dtype]
    stored = (lambda part: part) if dtype != mx.bfloat16 else (lambda part: part.view(mx.uint16))
    parts = [w.astype(mx.float32), packed, stored(scales), stored(biases), dequantized]
    path = folder / f"mlx_b{bits}_g{group}_{name}.bin"
    path.write_bytes(b"".join(np.array(part).tobytes() for part in parts))


def write_gguf(folder, random, name, halves):
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = GGUF_ROWS * GGUF_COLUMNS // block
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in halves:
        numbers = random.uniform(-2, 2, count).astype(np.float16)
        blocks[:, offset : offset + 2] = numbers.view(np.uint8).reshape(count, 2)
    expected = gguf.quants.dequantize(blocks, kind).astype(np.float32)
    (folder / f"gguf_{name}.bin").write_bytes(blocks.tobytes() + expected.tobytes())


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(2)
    mx.set_default_device(mx.cpu)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            write_mlx(folder, random, bits, group, mx.float32)
    for dtype in (mx.float16, mx.bfloat16):
        write_mlx(folder, random, 4, 64, dtype)
    for name, halves in GGUF_TYPES:
        write_gguf(folder, random, name, halves)


if __name__ == "__main__":
    main()
