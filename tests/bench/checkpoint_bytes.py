"""Print the bytes of a checkpoint's safetensors files, and those of its tensors alone, without headers: BYTES,TENSORS.

    checkpoint_bytes.py FOLDER [MODEL]      MODEL: floats of the checkpoint count as wide as those of this one, where a tool computes,
                                            and writes, in float32

Headers hold names, and each tool has keys of its own there: files that hold the same tensors differ by some hundred bytes.
Python's standard library alone."""

import glob
import json
import struct
import sys


def files(folder):
    """Length and tensors of each header."""
    for path in sorted(glob.glob(f"{folder}/*.safetensors")):
        with open(path, "rb") as stream:
            length = struct.unpack("<Q", stream.read(8))[0]
            tensors = json.loads(stream.read(length))
        tensors.pop("__metadata__", None)
        yield length + 8, list(tensors.values())


def main(folder, model=None):
    narrow = model and not any(t["dtype"] == "F32" for _, tensors in files(model) for t in tensors)
    headers = data = 0
    for length, tensors in files(folder):
        headers += length
        data += sum((t["data_offsets"][1] - t["data_offsets"][0]) // (2 if narrow and t["dtype"] == "F32" else 1) for t in tensors)
    print(f"{headers + data},{data}")


main(*sys.argv[1:])
