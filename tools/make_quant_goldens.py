#!/usr/bin/env python3
"""Writes tests/quant/data: what MLX, the package `gguf` and the published formulas of AWQ and GPTQ
make of small random matrices.

Needs numpy, gguf and mlx (on Linux: mlx[cpu]) from PyPI. Usage: make_quant_goldens.py FOLDER

Every file is raw little-endian numbers, one part after the other:
  mlx_b<bits>_g<group>_<dtype>.bin  w float32 [6, 128], packed, scales, biases (<dtype>, [6, groups]),
                                    dequantized float32 [6, 128]
  mlx_<mode>.bin                    w float32 [6, 128], packed, scales uint8, dequantized float32
                                    [6, 128]
  awq.bin, gptq_<kind>.bin          qweight, qzeros int32, scales float16 [2, 32], dequantized
                                    float32 [32, 64], of a matrix of 64 rows in, 32 out
  gguf_<type>.bin                   blocks of a [3, 512] matrix, dequantized float32 [3, 512]
"""

import pathlib
import sys

import gguf
import mlx.core as mx
import numpy as np

from goldens import grid_blocks

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


def write_microscaled(folder, random, mode):
    """As mlx_weights, and a row of ties, one of large exponents and one of scales just above a power."""
    w = mlx_weights(random)
    w[1] = random.integers(-48, 49, COLUMNS) / 8
    w[1, ::16] = 6
    # Far beyond nvfp4's range MLX on the CPU makes zeros of the largest, which nobody needs.
    most = 10 if mode == "nvfp4" else 40
    w[2] = np.ldexp(w[2].astype(np.float64), random.integers(-most, most, COLUMNS))
    w[3, ::16] = np.nextafter(np.float32(448 if mode == "mxfp8" else 6), np.float32(1000))
    packed, scales = mx.quantize(mx.array(w), mode=mode)
    dequantized = mx.dequantize(packed, scales, mode=mode, dtype=mx.float32)
    parts = [w, packed, scales, dequantized]
    path = folder / f"mlx_{mode}.bin"
    path.write_bytes(b"".join(np.array(part).tobytes() for part in parts))


def packed_columns(codes, order=range(8)):
    """Eight columns to a word of nibbles, as autoawq's WQLinear_GEMM (which has an order) packs."""
    eights = codes.astype(np.uint32).reshape(len(codes), -1, 8)
    words = np.zeros(eights.shape[:2], np.uint32)
    for nibble, column in enumerate(order):
        words |= eights[:, :, column] << np.uint32(4 * nibble)
    return words


def packed_rows(codes, bits):
    """A stream of bits down each column, as auto-gptq packs qweight; along rows: transposed."""
    ones = (codes[:, None, :] >> np.arange(bits)[:, None] & 1).reshape(-1, codes.shape[1])
    words = ones.reshape(-1, 32, codes.shape[1]).astype(np.uint64) << np.arange(
        32, dtype=np.uint64
    ).reshape(1, 32, 1)
    return words.sum(axis=1).astype(np.uint32)


def write_words(path, qweight, qzeros, scales, codes, zeros):
    """The published formula, (code - zero) * scale, in float32, as a matrix [out, in]."""
    rows = np.repeat(np.arange(len(scales)), len(codes) // len(scales))
    values = (codes - zeros[rows]).astype(np.float32) * scales.astype(np.float32)[rows]
    parts = [qweight, qzeros, scales, np.ascontiguousarray(values.T)]
    path.write_bytes(b"".join(part.tobytes() for part in parts))


def write_awq_gptq(folder):
    random = np.random.default_rng(3)
    rows, columns, groups = 64, 32, 2
    scales = random.uniform(-0.1, 0.1, (groups, columns)).astype(np.float16)
    codes = random.integers(0, 16, (rows, columns))
    zeros = random.integers(0, 16, (groups, columns))
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    write_words(folder / "awq.bin", packed_columns(codes, order), packed_columns(zeros, order),
                scales, codes, zeros)
    for kind, bits, less in (("b2", 2, 1), ("b3", 3, 1), ("b4", 4, 1), ("b8", 8, 1), ("v2", 4, 0)):
        codes = random.integers(0, 1 << bits, (rows, columns))
        zeros = random.integers(less, 1 << bits, (groups, columns))
        qzeros = np.ascontiguousarray(packed_rows((zeros - less).T, bits).T)
        write_words(folder / f"gptq_{kind}.bin", packed_rows(codes, bits), qzeros, scales, codes,
                    zeros)
    zeros[:] = 8
    qzeros = np.ascontiguousarray(packed_rows((zeros - 1).T, 4).T)
    write_words(folder / "gptq_sym.bin", packed_rows(codes, 4), qzeros, scales, codes, zeros)


def write_gguf(folder, random, name, halves):
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = GGUF_ROWS * GGUF_COLUMNS // block
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for offset in halves:
        numbers = random.uniform(-2, 2, count).astype(np.float16)
        blocks[:, offset : offset + 2] = numbers.view(np.uint8).reshape(count, 2)
    write_blocks(folder, name, blocks)


def write_gguf_grids(folder):
    random = np.random.default_rng(5)
    for name in grid_blocks.SCALE_PLACES:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
        count = GGUF_ROWS * GGUF_COLUMNS // block
        blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
        grid_blocks.set_scales(name, blocks, random.uniform(-2, 2, count))
        write_blocks(folder, name, blocks)


def write_blocks(folder, name, blocks):
    expected = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name])
    (folder / f"gguf_{name}.bin").write_bytes(
        blocks.tobytes() + expected.astype(np.float32).tobytes())


def write_gguf_mxfp4(folder):
    """Scales are powers of two, in a byte, such that no number is too large."""
    random = np.random.default_rng(4)
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.MXFP4]
    count = GGUF_ROWS * GGUF_COLUMNS // block
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    blocks[:, 0] = random.integers(80, 150, count, dtype=np.uint8)
    write_blocks(folder, "MXFP4", blocks)


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
    for mode in ("mxfp4", "mxfp8", "nvfp4"):
        write_microscaled(folder, random, mode)
    write_awq_gptq(folder)
    write_gguf_mxfp4(folder)
    write_gguf_grids(folder)


if __name__ == "__main__":
    main()
