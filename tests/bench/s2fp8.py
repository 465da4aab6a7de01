"""Rounds the linears of a float model to 8-bit floats and writes float32, to measure what shifting and squeezing gains.

    s2fp8.py MODEL OUT FORMAT          for `calm eval --model OUT --reference MODEL`

FORMAT  e4m3, e5m2          one scale per tensor, the largest weight to the largest value
        e4m3-row            one scale per row, as FP8 checkpoints of compressed-tensors have
        s2-e5m2, s2-e4m3    shifted and squeezed (Cambier et al., S2FP8, arXiv 2001.05674, section 3): y = sign(x) 2^b |x|^a is rounded,
                            with log2|y| of mean 0 and of maximum 15 (of E5M2; 8 of E4M3), two numbers per tensor
Needs only numpy; for evaluation only: calm writes no such format."""

import os
import re
import shutil
import sys

import numpy
from safetensors.numpy import save_file

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "readers"))
from format_weights import read_folder, small_float  # noqa: E402

# Linears of the blocks, of decoders and of BERT; neither tables nor a pooler.
LINEAR = re.compile(r"(_proj|^(bert\.)?encoder\..*\.(query|key|value|dense))\.weight$")
FORMATS = {"e4m3": (4, 3, 448.0, 8), "e5m2": (5, 2, 57344.0, 15)}


def levels(kind):
    exponents, mantissas, largest, _ = FORMATS[kind]
    values = small_float(numpy.arange(128), exponents, mantissas)
    return numpy.unique(values[values <= largest])


def nearest(x, table):
    """Each |x| to the nearest level, ties to the one above."""
    at = numpy.searchsorted((table[1:] + table[:-1]) / 2, numpy.abs(x), side="right")
    return numpy.sign(x) * table[at]


def rounded(w, form):
    kind = form.split("-")[1] if form.startswith("s2-") else form.split("-")[0]
    table, largest, top = levels(kind), FORMATS[kind][2], FORMATS[kind][3]
    w = w.astype(numpy.float64)
    if not form.startswith("s2-"):
        scale = numpy.abs(w).max(axis=1, keepdims=True) if form.endswith("-row") else numpy.abs(w).max()
        scale = numpy.where(scale > 0, scale, 1) / largest
        return nearest(w / scale, table) * scale
    logs = numpy.log2(numpy.abs(w[w != 0]))
    mean, most = logs.mean(), logs.max()
    a = top / max(most - mean, 2.0**-20)
    b = -a * mean
    y = nearest(numpy.sign(w) * 2.0**b * numpy.abs(w) ** a, table)
    return numpy.sign(y) * (numpy.abs(y) * 2.0**-b) ** (1 / a)


def main(model, out, form):
    tensors = read_folder(model)
    os.makedirs(out)
    for name in os.listdir(model):
        if name.endswith(".json") and "index" not in name:
            shutil.copy(os.path.join(model, name), out)
    result = {}
    for name, value in tensors.items():
        value = value.astype(numpy.float32) if value.dtype.kind == "f" else value
        if LINEAR.search(name) and form != "float":
            value = rounded(value, form).astype(numpy.float32)
        result[name] = numpy.ascontiguousarray(value)
    save_file(result, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})


main(*sys.argv[1:])
