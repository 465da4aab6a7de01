"""Compares INT8 errors of activations, computed value by value, with those of `calm inspect activations` from histograms.

    int8_values.py MODEL TEXT WINDOWS REPORT HOOK MODULE

REPORT: `calm inspect STORE activations --json` of a run on the first WINDOWS windows of 512 tokens of TEXT.  HOOK: a hook point of it, such as
model.layers.2.down_in; MODULE: the module in transformers that reads it, such as model.layers.2.mlp.down_proj."""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from tokenizers import Tokenizer


def errors(x, scale):
    e = x - (x / scale).round().clamp(-127, 127) * scale
    return (e.abs().sum() / x.abs().sum()).item(), (e.square().sum() / x.square().sum()).sqrt().item()


def main():
    folder, text, n, report, hook, module = sys.argv[1:]
    with open(text, encoding="utf-8") as stream:
        ids = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).encode(stream.read(), add_special_tokens=False).ids
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    model.get_submodule(module).register_forward_pre_hook(lambda _, inputs: rows.append(inputs[0][0].double()))
    with torch.no_grad():
        for w in range(int(n)):
            model(torch.tensor([ids[w * 512:(w + 1) * 512]]))
    x = torch.cat(rows)
    with open(report, encoding="utf-8") as stream:
        said = next(row for row in json.load(stream)["int8"] if row["hook"] == hook)
    largest = x.abs().max().item()
    q999 = x.abs().flatten().sort().values[int(0.999 * x.numel())].item()
    mae, rmse = errors(x, largest / 127)
    mae_clip, rmse_clip = errors(x, said["q999"] / 127)
    for name, value in (("max", largest), ("q999", q999), ("rel_mae_max", mae), ("rel_rmse_max", rmse),
                        ("rel_mae_clip", mae_clip), ("rel_rmse_clip", rmse_clip)):
        print(f"{hook} {name}: {abs(said[name]):.5g} from the histogram, {value:.5g} from {x.numel()} values")


main()
