#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes quant_vectors.safetensors: blocks of each quantised type, their values by PyPI's gguf.

    pip install gguf==0.19.0
    tests/formats/make_quant_vectors.py tests/formats/quant_vectors.safetensors

For each type: "<type>.blocks" (bytes), "<type>.values" (floats). Blocks are random bits with scales
that stay finite. "source" and "<type>.quantized": floats, and what the package makes of them, for
the types it can write.
"""

import json
import struct
import sys

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

# type: where its half floats stand in the block (all other bytes are random)
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
    "MXFP4": [],
}
WRITABLE = ["Q4_0", "Q8_0"]
BLOCKS = 3


def make():
    rng = np.random.default_rng(7)
    out = {}
    source = rng.standard_normal((2, 256)).astype(np.float32)
    source[0, 32:64] = 0  # a block without any size
    source[0, 64:96] = np.arange(32) - 40  # one sign only
    source[1, :32] *= 1e-6
    out["source"] = source
    for name, halves in HALVES.items():
        kind = gguf.GGMLQuantizationType[name]
        items, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in halves:
            blocks[:, at : at + 2] = rng.normal(0, 0.1, (BLOCKS, 1)).astype("<f2").view(np.uint8)
        if name == "MXFP4":
            blocks[:, 0] = [0, 1, 130]  # both subnormal scales and a usual one
        out[name + ".blocks"] = blocks
        out[name + ".values"] = dequantize(blocks, kind).astype(np.float32)
        if name in WRITABLE:
            out[name + ".quantized"] = quantize(source, kind)
    return out


def save(path, arrays):
    dtypes = {np.dtype("float32"): "F32", np.dtype("uint8"): "U8"}
    header, offset = {"__metadata__": {"made_by": "make_quant_vectors.py, gguf 0.19.0"}}, 0
    for name, a in arrays.items():
        header[name] = {
            "dtype": dtypes[a.dtype],
            "shape": list(a.shape),
            "data_offsets": [offset, offset + a.nbytes],
        }
        offset += a.nbytes
    raw = json.dumps(header, separators=(",", ":")).encode()
    raw += b" " * (-(len(raw) + 8) % 64)
    with open(path, "wb") as file:
        file.write(
            struct.pack("<Q", len(raw)) + raw + b"".join(a.tobytes() for a in arrays.values())
        )


if __name__ == "__main__":
    save(sys.argv[1], make())
