#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the mean of two adapters of the same shape, tensor by tensor, with the second one's description.

usage: average_adapters.py FIRST.safetensors SECOND.safetensors MEAN.safetensors
"""
import json
import struct
import sys

LETTERS = {"F16": "e", "F32": "f"}


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack_from("<Q", data)
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def numbers(tensor, data):
    begin, end = tensor["data_offsets"]
    return [x for (x,) in struct.iter_unpack("<" + LETTERS[tensor["dtype"]], data[begin:end])]


def main(first_path, second_path, mean_path):
    (first, first_data), (second, second_data) = read(first_path), read(second_path)
    if first.keys() != second.keys():
        sys.exit(f"{first_path} and {second_path} do not have the same tensors")
    header, data = {}, b""
    for name, tensor in second.items():
        if name == "__metadata__":
            header[name] = tensor
            continue
        if first[name]["shape"] != tensor["shape"]:
            sys.exit(f"{name}: shapes {first[name]['shape']} and {tensor['shape']} differ")
        pairs = zip(numbers(first[name], first_data), numbers(tensor, second_data))
        means = [(a + b) / 2 for a, b in pairs]
        begin = len(data)
        data += struct.pack(f"<{len(means)}{LETTERS[tensor['dtype']]}", *means)
        header[name] = {"dtype": tensor["dtype"], "shape": tensor["shape"], "data_offsets": [begin, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(mean_path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
