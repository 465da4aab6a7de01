"""Rounds a model's linears to nearest by compressed-tensors' functions, in float32.

    naive_ct.py MODEL OUT SCHEME...

OUT/SCHEME/model.safetensors has the rounded weights in float32; schemes have calm's names.  Scales of 16 bits are bfloat16, as those
of a bfloat16 model are; q, k, v share NVFP4's number for the whole matrix, and so do gate, up, as llm-compressor has them."""

import os
import re
import sys

import torch
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file, save_file

GROUPS = {"fp8a16": {"num_bits": 8, "type": "float", "strategy": "channel"},
          "fp8_blocka16": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]},
          "mxfp4a16": {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"},
          "nvfp4a16": {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16,
                       "scale_dtype": "torch.float8_e4m3fn"}}
FUSED = r"(.*)\.(?:[qkv]_proj|gate_proj|up_proj)\.weight"


def arguments(name):
    if name in GROUPS:
        return QuantizationArgs(symmetric=True, **GROUPS[name])
    bits, group, asym = re.fullmatch(r"w(\d)a16(?:_g(\d+))?(_asym)?", name).groups()
    shape = {"strategy": "group", "group_size": int(group)} if group else {"strategy": "channel"}
    return QuantizationArgs(num_bits=int(bits), type="int", symmetric=not asym, **shape)


def spans(weight, args):
    """Returns the least and largest value of each group that shares a scale, in the shape of the scales."""
    out, columns = weight.shape
    if args.strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if args.strategy == "block":
        blocks = weight.reshape(out // 128, 128, columns // 128, 128)
        return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.reshape(out, -1, args.group_size)
    return groups.amin(2), groups.amax(2)


def rounded(weight, args, whole):
    number = None
    if args.strategy == "tensor_group":
        number = generate_gparam(whole.amin().reshape(1), whole.amax().reshape(1))
    scale, zero = calculate_qparams(*spans(weight, args), args, global_scale=number)
    if args.scale_dtype is None:
        scale = scale.to(torch.bfloat16)
    scale = scale.float()
    codes = quantize(weight, scale, zero, args, global_scale=number)
    return dequantize(codes.float(), scale, zero if not args.symmetric else None, args, dtype=torch.float32, global_scale=number)


weights = {name: value.float() for name, value in load_file(f"{sys.argv[1]}/model.safetensors").items()
           if name.endswith("_proj.weight")}
for scheme in sys.argv[3:]:
    args, out = arguments(scheme), {}
    for name, weight in weights.items():
        if weight.shape[1] % 128:
            continue
        fused = re.fullmatch(FUSED, name)
        kin = [value for other, value in weights.items()
               if other == name or fused and re.fullmatch(FUSED, other) and re.fullmatch(FUSED, other)[1] == fused[1]]
        whole = torch.cat([value.reshape(-1) for value in kin])
        out[name] = rounded(weight, args, whole).contiguous()
    os.makedirs(f"{sys.argv[2]}/{scheme}", exist_ok=True)
    save_file(out, f"{sys.argv[2]}/{scheme}/model.safetensors")
