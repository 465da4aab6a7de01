"""Compare what transformers reads of quantized checkpoints with what calm computes of them.

    field_families.py TOKENS FOLDER...

TOKENS: JSON lines {"ids": [...]}.  Each FOLDER has a compressed-tensors checkpoint, and its logits (or last_hidden_state) as
`calm forward` writes them in FOLDER/calm.safetensors.  One line per folder: same, DIFFERENT, or NOT READ with the reason;
exit status 1 unless all are the same.

Both compute in float32 from the same numbers in another order, which gives some 1e-6 of the largest value; two readers do more:
  - quantized activations: where a quotient is on the edge of two codes the last bit decides, and one code of 127 is 1 % of
    a token's largest value; such tokens (and in decoders those after them) differ, the others do not.  Symmetric codes of
    a token are x / (its largest |x| / 127.5), so that a largest one below 0 is always there, at -127.5: with every block
    more tokens differ, and transformers' logits change as much when its embeddings are multiplied by 1 + 2e-7
  - experts: transformers keeps them in bfloat16 once it has multiplied codes by scales, 2^-9 of each weight, and where two
    experts are almost as good the router then takes the other
so the median over tokens has its own bound.  Where every token sees every other (encoders) one such code moves all tokens of
a line: there the line with the least difference counts.  A matrix in the wrong place moves every token by its whole size.

Where FOLDER.float is there, what `calm dequantize --dtype f32` makes of FOLDER, experts are compared without that noise: each
weight that transformers has read with the one in FOLDER.float, to the rounding to bfloat16; then those take their place.

transformers has no place for what quantizes an expert's inputs: with quantized activations it reads no experts, but those of
Llama 4, and of these with one scale for all tokens where codes are dynamic.

transformers 5.23 does not read (`CANNOT`): packed weights of ModernBERT, whose initialization wants a `weight` of each linear; and
packed weights that are one matrix in the checkpoint and several modules (GTE, Nomic's BERT), since it divides their shape too.
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

# Of the largest value: the median over tokens, and the worst of them.
BOUNDS = {"weights": (1e-5, 1e-4), "activations": (1e-5, 3e-2), "encoders": (1e-5, 0.3), "experts": (2**-9, 0.3),
          "routed": (1e-5, 0.3)}  # activations of a mixture: a code more or less, and another expert


# Families whose quantized experts transformers does not read: its run of FOLDER.float is what calm's is compared with.
FUSED = {"gpt_oss", "gemma4_text", "granitemoe", "granitemoehybrid", "qwen3_vl_moe_text"}
# Whose experts it puts in modules of their own once they are quantized: no noise, and no need of FOLDER.float.
SINGLE = {"llama4_text"}
CANNOT = {("modernbert", "pack-quantized"), ("gte", "pack-quantized"), ("nomic_bert", "pack-quantized")}


def cannot_be_read(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    return (config["model_type"], config["quantization_config"]["format"]) in CANNOT


def load(folder):
    """The model as its config names it; anything missing or left over is an error."""
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
    """A float checkpoint whose experts are one by one; not one by from_pretrained, which has no place for those."""
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
    """Experts of `exact` in place of the model's, which are these rounded once or twice to bfloat16 (2^-8 of each)."""
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
