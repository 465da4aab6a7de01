"""Joins single experts, as calm writes them, into the tensors of all experts in transformers' classes."""

import torch

# Classes that hold [experts, in, out]; the others hold [experts, out, in].
TRANSPOSED = ("gpt_oss", "llama4", "llama4_text")
ENDS = (".experts.gate_up_proj", ".experts.up_proj", ".experts.down_proj", ".experts.gate_up_proj_bias", ".experts.down_proj_bias")


def is_fused(name):
    return name.endswith(ENDS)


def fuse(values, model):
    """Replaces single experts in `values` (name -> tensor) by tensors of all experts, for `model`.load_state_dict."""
    kind = model.config.get_text_config().model_type
    for name, wanted in model.state_dict().items():
        if not is_fused(name):
            continue
        stem, word = name.rsplit(".", 1)
        suffix = "bias" if word.endswith("_bias") else "weight"
        named = f"{stem}.0.gate_proj.weight" in values or f"{stem}.0.down_proj.weight" in values
        gate, up, down = ("gate_proj", "up_proj", "down_proj") if named else ("w1", "w3", "w2")
        parts = [gate, up] if word.startswith("gate_up_proj") else [up] if word == "up_proj" else [down]
        rows = []
        for expert in range(wanted.shape[0]):
            own = [values[f"{stem}.{expert}.{part}.{suffix}"] for part in parts]
            # gpt-oss alternates rows of gate and up.
            own = torch.stack(own, 1).flatten(0, 1) if kind == "gpt_oss" and len(own) == 2 else torch.cat(own)
            rows.append(own.T if kind in TRANSPOSED and own.ndim == 2 else own)
        values[name] = torch.stack(rows).contiguous()
    for name in [name for name in values if ".experts." in name and not is_fused(name)]:
        del values[name]
    # Granite's checkpoints have the router one module deeper.
    for name in [name for name in values if name.endswith(".router.layer.weight")]:
        values[name.replace(".layer.", ".")] = values.pop(name)
    return values
