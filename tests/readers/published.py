"""Compares weights of published checkpoints dequantized by transformers with those of `calm dequantize`.

    published.py PUBLISHED PLAIN...

Pairs of folders; every parameter must have the same dtype and the same bits."""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers import CompressedTensorsConfig, FineGrainedFP8Config, Mxfp4Config

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def open_model(path, **options):
    wrapper = type(AutoConfig.from_pretrained(path)) in AutoModelForImageTextToText._model_mapping
    return (AutoModelForImageTextToText if wrapper else AutoModelForCausalLM).from_pretrained(path, **options)


def open_published(path):
    entry = json.load(open(f"{path}/config.json"))["quantization_config"]
    method = entry["quant_method"]
    if method == "compressed-tensors":
        return open_model(path, quantization_config=CompressedTensorsConfig(run_compressed=False))
    return open_model(path, quantization_config=(FineGrainedFP8Config if method == "fp8" else Mxfp4Config)(
        dequantize=True))


def compare(published, plain):
    theirs = open_published(published).state_dict()
    ours = open_model(plain).state_dict()
    scales = ("scale", "scale_inv", "zero_point", "global_scale")
    theirs = {n: t for n, t in theirs.items() if not n.endswith(scales)}
    assert theirs.keys() == ours.keys(), sorted(theirs.keys() ^ ours.keys())[:4]
    for name, tensor in theirs.items():
        mine = ours[name]
        assert tensor.dtype == mine.dtype and tensor.shape == mine.shape, (name, tensor.dtype, mine.dtype)
        kind = BITS.get(tensor.dtype)
        same = torch.equal(tensor.view(kind), mine.view(kind)) if kind else torch.equal(tensor, mine)
        assert same, f"{name}: {(tensor != mine).sum()} of {tensor.numel()} differ"
    return len(theirs)


for at in range(1, len(sys.argv), 2):
    print(f"{sys.argv[at]}: {compare(sys.argv[at], sys.argv[at + 1])} parameters of the same bits")
