"""Reads a compressed-tensors checkpoint whose linears multiply their inputs by a Hadamard matrix, by the lines of its model card,
and compares the results with calm's.

    transform_reader.py FOLDER TEXT WINDOWS TOKENS

FOLDER has calm.safetensors, the logits of `calm forward` on TOKENS (JSON lines {"ids": [...]}).  Prints one JSON line: perplexity on WINDOWS
windows of 512 tokens of TEXT with and without the transform, and the least, median and largest difference of a token's
logits as shares of the largest value; ../shared/tools has the windows.

With 4-bit activations the last bit of a sum decides a code if a quotient is on the edge of two codes, as a token's largest value
always is if it is negative: -7.5 is the code -8, -7.4999999 the code -7.  Such tokens, and in a decoder all after them, differ by
as much as the rounding itself does, the few others by rounding in float32.  A matrix in the wrong place changes every token."""

import json
import os
import sys

import common    # of ../shared/tools, in PYTHONPATH


def open_model(folder, transform):
    import torch
    import transformers
    from compressed_tensors.transform import TransformConfig, apply_transform_config

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        entry = json.load(stream)["quantization_config"]
    with torch.no_grad():
        model(torch.zeros((1, 2), dtype=torch.int64))    # unpacks the weights
    if transform:
        apply_transform_config(model, TransformConfig(**entry["transform_config"]))
    return model


def main():
    import math

    import torch
    from safetensors.torch import load_file

    folder, text, n, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    windows = common.windows(common.encode(folder, text, n * 512), 512)
    ppl = {}
    for name, transform in (("ppl_without", False), ("ppl", True)):
        model = open_model(folder, transform)
        logits = common.torch_logits(model)
        ppl[name] = math.exp(sum(common.nll(logits(ids), ids) for ids in windows) / (len(windows) * 511))
    ours = load_file(os.path.join(folder, "calm.safetensors"))["logits"]
    with open(tokens, encoding="utf-8") as stream:
        lines = [json.loads(line)["ids"] for line in stream]
    with torch.no_grad():
        theirs = torch.cat([model(torch.tensor([ids])).logits.float() for ids in lines])
    errors = (theirs - ours).abs().amax(-1).flatten() / ours.abs().max()
    common.report(True, **ppl, least=errors.min().item(), median=errors.median().item(), worst=errors.max().item())


common.run(main)
