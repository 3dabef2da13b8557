#!/usr/bin/env python3
"""Writes tests/quant/data/block_errors.bin and gguf_bytes_Q8_0.bin: what ggml loses when it quantizes
a few rows to each block type, and the blocks of Q8_0.

Needs numpy and gguf from PyPI, a build of ggml and a GGUF file of SmolLM2-135M in plain numbers.
Usage: make_block_goldens.py FOLDER libggml-base.so MODEL.gguf

  block_errors.bin      rows float32 [16, 768] (8 of Student's t with 3 degrees, 8 of a model's
                        ffn_down), importance float32 [768], then for each of TYPES without and with
                        the importance: float64, the sum over the elements of the square of ggml's error
                        times importance (or 1) * sqrt(mean square of the row + the element's square)
  gguf_bytes_Q8_0.bin   the rows' blocks as the package `gguf` makes them
"""

import ctypes
import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType, quants

ROWS, COLUMNS = 8, 768
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
         "IQ4_XS"]


def load_ggml(path):
    library = ctypes.CDLL(path)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
                                            ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
                                            ctypes.c_void_p]
    return library


def rows_of(model):
    tensor = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.7.ffn_down.weight")
    real = quants.dequantize(tensor.data, tensor.tensor_type)[:ROWS, :COLUMNS]
    # bfloat16 of a Q4_1 file: numbers off its lattice are those that a model has otherwise.
    random = np.random.default_rng(7)
    real = real * (1 + 0.03 * random.standard_normal(real.shape))
    drawn = random.standard_t(3, (ROWS, COLUMNS))
    return np.concatenate([drawn, real]).astype(np.float32)


def ggml_error(library, kind, rows, importance):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.zeros((rows.shape[0], rows.shape[1] // block * size), np.uint8)
    given = None if importance is None else importance.ctypes.data
    library.ggml_quantize_chunk(int(kind), rows.ctypes.data, blocks.ctypes.data, 0, *rows.shape, given)
    error = quants.dequantize(blocks, kind).astype(np.float64) - rows
    wide = rows.astype(np.float64)
    weights = np.sqrt((wide**2).mean(1, keepdims=True) + wide**2)
    if importance is not None:
        weights = weights * importance
    return (weights * error**2).sum()


def main():
    folder, library = pathlib.Path(sys.argv[1]), load_ggml(sys.argv[2])
    rows = rows_of(sys.argv[3])
    importance = np.exp(np.random.default_rng(8).standard_normal(COLUMNS)).astype(np.float32)
    errors = [ggml_error(library, GGMLQuantizationType[name], rows, given)
              for name in TYPES for given in (None, importance)]
    (folder / "block_errors.bin").write_bytes(
        rows.tobytes() + importance.tobytes() + np.array(errors, np.float64).tobytes())
    (folder / "gguf_bytes_Q8_0.bin").write_bytes(
        quants.quantize(rows, GGMLQuantizationType.Q8_0).tobytes())


if __name__ == "__main__":
    main()
