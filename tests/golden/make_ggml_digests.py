"""Prints digests of the values that the gguf package reads from sample blocks.

    pip install gguf==0.19.0; python tests/golden/make_ggml_digests.py > tests/data/ggml_blocks.txt

The blocks are those of tests/support/ggml_sample.c.  All NaNs are replaced by one, since payloads do not count."""

import hashlib

import gguf
import numpy

TYPES = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4 NVFP4".split()
SAME = [0x00, 0xFF, 0x7F, 0x80, 0x55, 0xAA, 0x0F, 0xF0]
HALVES = [0x0001, 0x7BFF, 0x8001, 0xFBFF, 0x8000, 0x3C00]
BLOCKS = 96


def sample(number, size):
    state, out = number + 1, numpy.zeros((BLOCKS, size), dtype=numpy.uint8)
    for b in range(BLOCKS):
        for i in range(size):
            state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
            out[b, i] = SAME[b] if b < len(SAME) else state >> 24
        if len(SAME) <= b < len(SAME) + len(HALVES):
            for i in range(0, size - 1, size - 4 if size > 36 else 2):
                out[b, i], out[b, i + 1] = HALVES[b - len(SAME)] & 255, HALVES[b - len(SAME)] >> 8
    return out


for name in TYPES:
    kind = gguf.GGMLQuantizationType[name]
    blocks = sample(kind.value, gguf.GGML_QUANT_SIZES[kind][1])
    with numpy.errstate(all="ignore"):
        values = gguf.quants.dequantize(blocks, kind).astype(numpy.float32).reshape(-1)
    values[numpy.isnan(values)] = numpy.frombuffer(b"\x00\x00\xc0\x7f", dtype=numpy.float32)[0]
    print(name, hashlib.sha256(values.astype("<f4").tobytes()).hexdigest())
