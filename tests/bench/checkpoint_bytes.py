"""Prints the bytes of a checkpoint's safetensors files, and those of its tensors without headers: BYTES,TENSORS.

    checkpoint_bytes.py FOLDER [MODEL]      MODEL: floats count with this model's width, for tools that
                                            write float32; global scales of NVFP4 are always float32

Headers hold names and tool-specific keys: files with the same tensors differ by some hundred bytes.
Needs only Python's standard library."""

import glob
import json
import struct
import sys


def files(folder):
    """Length and (name, entry) of each tensor of each header."""
    for path in sorted(glob.glob(f"{folder}/*.safetensors")):
        with open(path, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            tensors = json.loads(stream.read(length))
        tensors.pop("__metadata__", None)
        yield length + 8, list(tensors.items())


def main(folder, model=None):
    narrow = model and not any(t["dtype"] == "F32" for _, tensors in files(model) for _, t in tensors)
    headers = data = 0
    for length, tensors in files(folder):
        headers += length
        for name, t in tensors:
            size = t["data_offsets"][1] - t["data_offsets"][0]
            data += size // 2 if narrow and t["dtype"] == "F32" and not name.endswith("_global_scale") else size
    print(f"{headers + data},{data}")


main(*sys.argv[1:])
