"""Compresses the plan's weights with compressed-tensors' compressors and compares every tensor with the file's, byte for byte.

    ct_packer.py OUT...

Each OUT was written by write_format: OUT.plan.safetensors has the weights in float32, from which the library packs anew, with
the scales that the file has.  One line per folder; exit status 1 at the first tensor that differs."""

import json
import re
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import load_file


def scales(compressor, stored, scheme):
    """Returns the file's scales as numbers."""
    widen = getattr(compressor, "_decompress_scale", None)
    return widen(stored, torch.float32) if widen else stored


def check(folder):
    with open(f"{folder}/config.json", encoding="utf-8") as stream:
        entry = json.load(stream)["quantization_config"]
    file, plan = load_file(f"{folder}/model.safetensors"), load_file(f"{folder}.plan.safetensors")
    modules = tensors = 0
    for group in entry["config_groups"].values():
        scheme = QuantizationScheme(**group)
        compressor = BaseCompressor.get_value_from_registry(group["format"])
        for name in plan:
            module = name[: -len(".weight")]
            if not any(re.match(target[3:], module) for target in group["targets"]):
                continue
            ours = {key[len(module) + 1 :]: value for key, value in file.items() if key.startswith(module + ".")}
            state = {key: value for key, value in ours.items() if key.endswith(("global_scale", "zero_point"))}
            state["weight"] = plan[name]
            state["weight_scale"] = scales(compressor, ours["weight_scale"], scheme)
            theirs = compressor.compress(state, scheme)
            for key, value in theirs.items():
                found = ours[key]
                assert found.dtype == value.dtype, f"{folder}: {module}.{key}: {found.dtype}, the library {value.dtype}"
                same = found.contiguous().view(torch.uint8).equal(value.reshape(found.shape).contiguous().view(torch.uint8))
                assert same, f"{folder}: {module}.{key} differs from the library's"
                tensors += 1
            assert set(ours) - {"bias"} == set(theirs), f"{folder}: {module}: {sorted(ours)}, the library {sorted(theirs)}"
            modules += 1
    assert modules > 0, f"{folder}: no module was compared"
    print(f"{folder.rsplit('/', 1)[-1]}: {tensors} tensors of {modules} modules are the library's, byte for byte")


for folder in sys.argv[1:]:
    check(folder)
