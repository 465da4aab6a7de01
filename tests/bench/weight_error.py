#!/usr/bin/env python3
"""Computes the squared error of quantized linears: sum over all weights named *proj.weight, and relative to the first DIR's.

    weight_error.py FLOAT DIR [DIR ...]

FLOAT and DIR are folders of safetensors without quantization; `calm dequantize` makes them.  Needs torch and safetensors.
"""
import glob
import os
import sys

from safetensors import safe_open


def tensors(folder):
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                if name.endswith("proj.weight"):
                    yield name, file.get_tensor(name).double()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    weights = dict(tensors(sys.argv[1]))
    first = None
    for folder in sys.argv[2:]:
        error = sum(float(((value - weights[name]) ** 2).sum()) for name, value in tensors(folder))
        first = first or error
        print(f"{folder},{error:.6g},{error / first:.4f}")


main()
