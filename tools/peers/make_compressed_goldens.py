#!/usr/bin/env python3
"""Writes tests/quant/data/compressed_*.bin: what compressed-tensors makes of small random matrices.

Needs torch and compressed-tensors from PyPI. Usage: make_compressed_goldens.py FOLDER

Every file, compressed_b<bits>_g<group>_<sym|asym>.bin, is raw little-endian numbers, one part after the other:
w float32 [16, 128], weight_packed int32 [16, words], weight_scale float32 [16, groups], if asymmetric weight_zero_point
int32 [bits / 2, groups], decompressed float32 [16, 128].
"""

import pathlib
import sys

import torch
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

ROWS, COLUMNS = 16, 128


def weights():
    """Rows of zeros, of one sign, and of a few magnitudes."""
    w = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(7))
    w[0] = 0
    w[1] = w[1].abs() + 0.5
    w[2] = -w[2].abs() - 0.5
    w[3] *= 1e-3
    w[4, ::16] *= 8
    return w


def write(folder, bits, group, is_symmetric):
    args = QuantizationArgs(num_bits=bits, type="int", strategy="group", group_size=group, symmetric=is_symmetric)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    w = weights()
    groups = w.reshape(ROWS, COLUMNS // group, group)
    scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    state = {"weight": w, "weight_scale": scale, "weight_zero_point": zero.to(torch.int8)}
    packed = PackedQuantizationCompressor.compress(state, scheme)
    parts = [w, packed["weight_packed"], packed["weight_scale"]]
    if not is_symmetric:
        parts.append(packed["weight_zero_point"])
    parts.append(PackedQuantizationCompressor.decompress(packed, scheme)["weight"])
    name = f"compressed_b{bits}_g{group}_{'sym' if is_symmetric else 'asym'}.bin"
    (folder / name).write_bytes(b"".join(part.contiguous().numpy().tobytes() for part in parts))


def main():
    folder = pathlib.Path(sys.argv[1])
    for bits, group in ((4, 32), (8, 64)):
        for is_symmetric in (True, False):
            write(folder, bits, group, is_symmetric)


if __name__ == "__main__":
    main()
