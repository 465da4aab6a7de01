"""Compares results of transformers and calm on quantized checkpoints.

    field_families.py TOKENS FOLDER...

TOKENS: JSON lines {"ids": [...]}.  Each FOLDER has a compressed-tensors checkpoint, and the logits (or last_hidden_state) of
`calm forward` in FOLDER/calm.safetensors.  Prints a line per folder: same, DIFFERENT, or NOT READ with the reason;
exit status 1 unless all are the same.

Both compute in float32 from the same numbers in different orders, which differs by about 1e-6 of the largest value.  Two cases differ more:
  - quantized activations: if a quotient is on the edge of two codes the last bit decides, and one code of 127 is 1 % of
    a token's largest value; such tokens (and in decoders those after them) differ, the others do not.  Symmetric codes of
    a token are x / (its largest |x| / 127.5), so a negative largest value is always on an edge, at -127.5: with every block
    more tokens differ, and transformers' logits change as much if its embeddings are multiplied by 1 + 2e-7
  - experts: transformers rounds codes times scales to bfloat16, 2^-9 of each weight, and if two
    experts are almost equally good the router then chooses the other
Therefore the median over tokens has a separate bound.  In encoders every token sees every other, so one such code changes all
tokens of a line: there the line with the least difference counts.  A matrix in the wrong place changes every token by its whole size.

If FOLDER.float exists (the output of `calm dequantize --dtype f32` for FOLDER), the script compares experts without that noise:
each weight in transformers with that in FOLDER.float, within the rounding to bfloat16; then it replaces them by the latter.

transformers cannot quantize an expert's inputs: with quantized activations it reads only experts of
Llama 4, with one scale for all tokens if codes are dynamic.

transformers 5.23 does not read (`CANNOT`): packed weights of ModernBERT, whose initialization needs a `weight` of each linear; and
packed weights that are one matrix in the checkpoint but several modules (GTE, Nomic's BERT), since it divides their shape too.
"""

import glob
import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import fused_experts
import torch
import transformers
from safetensors.torch import load_file

# Bounds as shares of the largest value: for the median over tokens, and for the worst token.
BOUNDS = {"weights": (1e-5, 1e-4), "activations": (1e-5, 3e-2), "encoders": (1e-5, 0.3), "experts": (2**-9, 0.3),
          "routed": (1e-5, 0.3)}  # activations of a mixture: a code more or less, and another expert


# Families whose quantized experts transformers does not read: calm's result is compared with transformers' on FOLDER.float.
FUSED = {"gpt_oss", "gemma4_text", "granitemoe", "granitemoehybrid", "qwen3_vl_moe_text"}
# Families whose quantized experts are separate modules in transformers: no noise, and no need of FOLDER.float.
SINGLE = {"llama4_text"}
CANNOT = {("modernbert", "pack-quantized"), ("gte", "pack-quantized"), ("nomic_bert", "pack-quantized")}


def cannot_be_read(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    return (config["model_type"], config["quantization_config"]["format"]) in CANNOT


def load(folder):
    """Loads the model that the config names; a missing or unused tensor is an error."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        name = json.load(stream)["architectures"][0]
    kind = getattr(transformers, name)
    if experts_alone(folder):
        return load_fused(folder, kind)
    model, info = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(key):
            raise ValueError(f"{key}: {sorted(map(str, info[key]))[:3]}")
    return model.eval()


def text_config(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    return config.get("text_config", config)


def experts_alone(folder):
    """Does transformers hold experts of this family in tensors of all experts, and read no others?"""
    text = text_config(folder)
    # Gemma 4 has models without experts, and Granite 4.
    gemma = text.get("model_type") == "gemma4_text"
    return (text.get("model_type") in FUSED and text.get("enable_moe_block", not gemma)
            and text.get("num_local_experts") != 0)


def load_fused(folder, kind):
    """Loads a float checkpoint with single experts, which from_pretrained cannot load."""
    model = kind(transformers.AutoConfig.from_pretrained(folder)).float()
    values = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        values.update(load_file(path))
    missing, extra = model.load_state_dict(fused_experts.fuse(values, model), strict=False)
    if extra or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"missing {missing[:3]}, unexpected {extra[:3]}")
    model.tie_weights()
    return model.eval()


def count_quantized(model):
    return sum(getattr(module, "quantization_scheme", None) is not None for module in model.modules())


def kind_of(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    groups = config["quantization_config"]["config_groups"].values()
    mixture = any("experts" in key and value for key, value in {**config, **config.get("text_config", {})}.items())
    if mixture and not os.path.isdir(folder + ".float"):
        return "experts"
    if not any(group["input_activations"] for group in groups):
        return "weights"
    if mixture:
        return "routed"
    return "activations" if config["architectures"][0].endswith("LM") else "encoders"


def outputs(model, name, lines):
    with torch.no_grad():
        return torch.cat([getattr(model(torch.tensor([ids])), name).float() for ids in lines])


def use_exact_experts(model, exact):
    """Replaces the model's experts by those of `exact`, after checking that they differ only by rounding to bfloat16 (2^-8 of each)."""
    values = dict(exact.named_parameters())
    for key, parameter in model.named_parameters():
        if ".experts." not in key or not parameter.is_floating_point():
            continue
        wanted = values[key].data
        if ((parameter.data.float() - wanted).abs() > wanted.abs() * 2**-8).any():
            raise ValueError(f"{key} is not what calm wrote")
        parameter.data = wanted
    return model


def compare(folder, lines):
    ours = load_file(os.path.join(folder, "calm.safetensors"))
    name = "logits" if "logits" in ours else "last_hidden_state"
    twin = folder + ".float"
    if experts_alone(folder):
        errors = (ours[name] - outputs(load(twin), name, lines)).abs().amax(-1) / ours[name].abs().max()
        return errors.median().item(), errors.max().item(), 1
    model = load(folder)
    if os.path.isdir(twin) and text_config(folder)["model_type"] not in SINGLE:
        use_exact_experts(model, load(twin))
    errors = (ours[name] - outputs(model, name, lines)).abs().amax(-1) / ours[name].abs().max()
    usual = errors.amax(1).min() if name == "last_hidden_state" else errors.median()
    return usual.item(), errors.max().item(), count_quantized(model)


def main():
    with open(sys.argv[1], encoding="utf-8") as stream:
        lines = [json.loads(line)["ids"] for line in stream]
    failed = 0
    for folder in sys.argv[2:]:
        if cannot_be_read(folder):
            print(f"{os.path.basename(folder)}: transformers does not read it", flush=True)
            continue
        try:
            kind = kind_of(folder)
            median, worst, quantized = compare(folder, lines)
            same = quantized > 0 and median < BOUNDS[kind][0] and worst < BOUNDS[kind][1]
            read = "dequantized" if experts_alone(folder) else f"{quantized} quantized modules"
            print(f"{os.path.basename(folder)}: {'same' if same else 'DIFFERENT'}, {median:.1e} of the largest value, "
                  f"at worst {worst:.1e} ({kind}; {read})", flush=True)
        except Exception as problem:
            same = False
            print(f"{os.path.basename(folder)}: NOT READ: {type(problem).__name__}: {problem}"[:400], flush=True)
        failed += not same
    sys.stdout.flush()
    os._exit(1 if failed else 0)


main()
