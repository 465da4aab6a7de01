"""Prints digests of the tensors that compressed-tensors' own compressors write for sample weights.

    pip install torch compressed-tensors==0.20.0; python tests/golden/make_ct_digests.py > tests/data/ct_tensors.txt

The weights are those of tests/conformance/test_ct_tensors.c, levels times scales, so that the library finds the levels."""

import hashlib

import numpy
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

OUT, IN, GLOBAL = 160, 256, 1075.2
FLOAT = {"type": "float", "symmetric": True}
SCHEMES = [
    ("fp8", "float-quantized", {"num_bits": 8, "strategy": "channel"}),
    ("fp8_block", "float-quantized", {"num_bits": 8, "strategy": "block", "block_structure": [128, 128]}),
    ("mxfp4", "mxfp4-pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}),
    ("nvfp4", "nvfp4-pack-quantized", {"num_bits": 4, "strategy": "tensor_group", "group_size": 16,
                                       "scale_dtype": "torch.float8_e4m3fn"}),
]
E4M3 = sorted({value for value in torch.arange(256).to(torch.uint8).view(torch.float8_e4m3fn).float().tolist() if value == value})
E2M1 = [-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6]


class Generator:
    def __init__(self, state):
        self.state = state

    def next(self):
        self.state = (self.state * 1664525 + 1013904223) & 0xFFFFFFFF
        return self.state


def scale(name, bits):
    """Return a scale that the format can store, from 32 random bits."""
    if name == "mxfp4":
        return 2.0 ** ((bits >> 26) - 30)
    if name == "nvfp4":
        return [value for value in E4M3 if value > 0][(bits >> 24) % 126]
    return (128 + (bits >> 16 & 127)) * 2.0 ** (-11 - (bits >> 28 & 7))


def tensors(number, name, form, arguments):
    random, levels = Generator(number + 1), E4M3 if arguments["num_bits"] == 8 else E2M1
    rows, columns = {"fp8": (1, IN), "fp8_block": (128, 128), "mxfp4": (1, 32), "nvfp4": (1, 16)}[name]
    codes = [levels[(random.next() >> 24) % len(levels)] for _ in range(OUT * IN)]
    shape = -(-OUT // rows), IN // columns
    scales = numpy.array([scale(name, random.next()) for _ in range(shape[0] * shape[1])], dtype=numpy.float32).reshape(shape)
    each = scales.repeat(rows, 0)[:OUT].repeat(columns, 1)
    state = {"weight_scale": torch.from_numpy(scales)}
    if name == "nvfp4":
        each = each / numpy.float32(GLOBAL)
        state["weight_global_scale"] = torch.tensor([GLOBAL])
    if name.startswith("fp8"):
        state["weight_scale"] = state["weight_scale"].to(torch.bfloat16)
    state["weight"] = torch.from_numpy(numpy.array(codes, dtype=numpy.float32).reshape(OUT, IN) * each)
    scheme = QuantizationScheme(targets=["Linear"], format=form, weights=QuantizationArgs(**FLOAT, **arguments))
    return BaseCompressor.get_value_from_registry(form).compress(state, scheme)


for number, (name, form, arguments) in enumerate(SCHEMES):
    made = tensors(number, name, form, arguments)
    for key in sorted(made):
        tensor = made[key].contiguous()
        print(name, key, hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest())
