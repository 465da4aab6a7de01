"""Loads checkpoints of mixtures with mlx-lm and compares its logits with calm's:  mlx_experts.py TOKENS FOLDER...

TOKENS: JSON lines {"ids": [...]}.  FOLDER/calm.safetensors has the logits of `calm forward`.  Both are float32 sums in
different orders; if two experts are almost equally good the router may choose the other, so the median over tokens has a
tighter bound than the worst."""

import json
import os
import pathlib
import sys

import mlx.core as mx
import numpy
from mlx_lm.utils import load_model


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        lines = [json.loads(line)["ids"] for line in stream]
    failed = 0
    for folder in sys.argv[2:]:
        ours = numpy.array(mx.load(os.path.join(folder, "calm.safetensors"))["logits"].astype(mx.float32))
        model, _ = load_model(pathlib.Path(folder), strict=True)
        model.set_dtype(mx.float32)
        stacks = [n for n, m in model.named_modules() if type(m).__name__ == "QuantizedSwitchLinear"]
        theirs = numpy.concatenate([numpy.array(model(mx.array([ids]))[0].astype(mx.float32)) for ids in lines])
        errors = numpy.abs(theirs - ours.reshape(theirs.shape)).max(-1) / numpy.abs(ours).max()
        same = len(stacks) > 0 and numpy.median(errors) < 1e-5 and errors.max() < 1e-3
        failed += not same
        print(f"{os.path.basename(folder)}: {'same' if same else 'DIFFERENT'}, {numpy.median(errors):.1e} of the largest value, "
              f"at worst {errors.max():.1e} ({len(stacks)} stacks of experts)", flush=True)
    sys.exit(failed > 0)


main()
