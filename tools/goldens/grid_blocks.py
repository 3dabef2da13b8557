"""Random blocks of GGUF's IQ and TQ types, most of which the package `gguf` reads but doesn't make."""

import gguf
import numpy as np

# Type, and where in a block its float16 scale is; IQ1_M's is in four pieces in eight bytes.
SCALE_PLACES = {
    "IQ2_XXS": 0,
    "IQ2_XS": 0,
    "IQ2_S": 0,
    "IQ3_XXS": 0,
    "IQ3_S": 0,
    "IQ1_S": 0,
    "IQ1_M": 48,
    "IQ4_NL": 0,
    "IQ4_XS": 0,
    "TQ1_0": 52,
    "TQ2_0": 64,
}


def set_scales(name, blocks, scales):
    """Puts scales [blocks] into blocks [blocks, bytes]."""
    place, halves = SCALE_PLACES[name], scales.astype(np.float16)
    if name != "IQ1_M":
        blocks[:, place : place + 2] = halves.view(np.uint8).reshape(-1, 2)
        return
    pieces = halves.view(np.uint16)[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15
    words = blocks[:, place : place + 8].view(np.uint16)
    words[:] = words & 0xFFF | pieces << 12


def random_matrix(name, shape, deviation, random):
    """Blocks [rows, bytes] of numbers that deviate about so much, and the numbers in float32."""
    kind = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = shape
    blocks = random.integers(0, 256, (rows * columns // block, size), dtype=np.uint8)
    set_scales(name, blocks, np.ones(len(blocks)))
    size = np.sqrt(np.mean(gguf.quants.dequantize(blocks, kind) ** 2, axis=1))
    set_scales(name, blocks, random.choice([-1, 1], len(blocks)) * deviation / size)
    blocks = blocks.reshape(rows, -1)
    return blocks, gguf.quants.dequantize(blocks, kind)


def fill_model(model, random):
    """Gives every matrix of a model numbers of one of the types in turn; returns the types' blocks
    by the bytes of a row's numbers, which GGUF may have in another order."""
    known, names = {}, list(SCALE_PLACES)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    for i, parameter in enumerate(matrices):
        name = names[i % len(names)]
        blocks, numbers = random_matrix(name, parameter.shape, parameter.std().item(), random)
        parameter.data.copy_(parameter.new_tensor(numbers))
        known |= {row.tobytes(): (name, own) for row, own in zip(numbers, blocks)}
    return known


def known_blocks(known, numbers):
    """The type and the blocks [rows, bytes] of a matrix of such rows."""
    rows = [known[row.tobytes()] for row in numbers]
    return gguf.GGMLQuantizationType[rows[0][0]], np.stack([own for _, own in rows])
