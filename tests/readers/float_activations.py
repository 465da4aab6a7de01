"""Compares logits of `calm forward` with those of transformers' model under compressed-tensors' rule for activations.

    float_activations.py MODEL TOKENS FOLDER...

MODEL: the float model.  TOKENS: JSON lines {"ids": [...]}.  write_format wrote each FOLDER, which has the logits of
`calm forward` in FOLDER/calm.safetensors; FOLDER.plan.safetensors has its weights in float32, which format_weights.py compares with the file.  transformers keeps weights of small
floats in bfloat16, so this script puts them into a float32 model, whose linears quantize their inputs by compressed_tensors'
forward_quantize, by the entry in config.json.

Both compute in float32 from the same numbers in different orders, which differs by about 1e-6 of the largest value.  If a quotient is on
the edge of two levels the last bit decides, and that token and those after it differ by as much as the rounding itself does.  So windows
have a few tokens, and two medians count: over all tokens, and over the windows' first ones, which attend only to themselves.  A
wrong rule changes every token: the bound is a hundredth of the change by rounding.

If q, k, v and o all have MXFP4, edges are systematic.  Weights and inputs are small numbers times powers of two, so v is an integer
times a power of two, and so is o's input scale: a token that attends to one other, or to several with the same v, has
values exactly on an edge except for the last bit of softmax.  transformers' two ways to compute attention then differ as much from
each other: calm's median over all tokens may be twice that.  With alternating MXFP4 and NVFP4 nothing is on an edge."""

import json
import os
import re
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
import transformers
from compressed_tensors.quantization import QuantizationScheme
from compressed_tensors.quantization.lifecycle.forward import fake_quantize
from compressed_tensors.quantization.utils import compute_dynamic_scales_and_zp
from safetensors.torch import load_file


def quantized_forward(args, global_scale):
    def hook(module, inputs):
        scale, zero = compute_dynamic_scales_and_zp(inputs[0], args, module, global_scale=global_scale)
        return (fake_quantize(inputs[0], scale, zero, args, global_scale=global_scale),)

    return hook


def library_model(folder, source, attention):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        groups = json.load(stream)["quantization_config"]["config_groups"].values()
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation=attention).eval()
    stored = load_file(os.path.join(folder, "model.safetensors"))
    hooked = 0
    for name, weight in load_file(folder + ".plan.safetensors").items():
        module = model.get_submodule(name.removesuffix(".weight"))
        module.weight.data = weight
        for group in groups:
            if group["input_activations"] and any(re.match(t[3:], name.removesuffix(".weight")) for t in group["targets"]):
                args = QuantizationScheme(**group).input_activations
                global_scale = stored.get(name.removesuffix("weight") + "input_global_scale")
                module.register_forward_pre_hook(quantized_forward(args, global_scale))
                hooked += 1
    return model, hooked


def logits_of(model, windows):
    with torch.no_grad():
        return torch.cat([model(torch.tensor([ids])).logits[0] for ids in windows])


def check(folder, source, windows, plain):
    model, hooked = library_model(folder, source, "sdpa")
    theirs = logits_of(model, windows)
    ours = load_file(os.path.join(folder, "calm.safetensors"))["logits"].reshape(theirs.shape)
    apart = (ours - theirs).abs().amax(-1)
    first = apart[torch.tensor([0] + [len(ids) for ids in windows[:-1]]).cumsum(0)].median()
    rounding = (theirs - plain).abs().amax(-1).median()
    text = (
        f"median {apart.median():.2e} (first tokens {first:.2e}), largest {apart.max():.2e}; rounding itself {rounding:.2e}; "
        f"{hooked} inputs quantized"
    )
    bound = 0.01 * rounding
    same = first <= bound and hooked > 0
    if same and apart.median() > bound:
        own = (logits_of(library_model(folder, source, "eager")[0], windows) - theirs).abs().amax(-1).median()
        text += f"; transformers' two attentions {own:.2e}"
        bound = 2 * own
    return same and apart.median() <= bound, text


def main():
    source, tokens = sys.argv[1:3]
    with open(tokens, encoding="utf-8") as stream:
        windows = [json.loads(line)["ids"] for line in stream]
    plain = logits_of(transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval(), windows)
    failed = 0
    for folder in sys.argv[3:]:
        same, text = check(folder, source, windows, plain)
        failed += not same
        print(f"{os.path.basename(folder)}: {'same' if same else 'DIFFERENT'}: {text}", flush=True)
    sys.exit(failed > 0)


main()
