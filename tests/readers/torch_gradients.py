"""Computes gradients of checkpoints in torch, in the layout that tests/golden/test_gradient_fixtures.c reads.

usage: torch_gradients.py FAMILIES OUT NAME...      needs torch and transformers

For each folder NAME of FAMILIES, if it is there, OUT/models/NAME has its files and gradients.safetensors:
  direction, loss     [S, T, V] normal / sqrt(tokens), and the sum of direction * logits
  grad.TENSOR         d loss / d a tensor of the checkpoint, experts of one tensor one by one
  grad.hidden.embed   d loss / d what enters block 0
  kl_reference        [S, T, V] other logits f; kl_loss: mean of KL(softmax f || softmax logits) over tokens
  kl.hidden.embed     d kl_loss / d what enters block 0
in float64, but for what the reference computes in float32 in any case (norms, rotations, routers, the delta rule).
"""
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

# Of a model with inputs of each layer: weights that calm does not learn, and the table through which they read ids.
LAYER_INPUTS = ("per_layer", "embed_tokens.weight")


def load(folder):
    arch = json.loads((folder / "config.json").read_text())["architectures"][0]
    model = getattr(transformers, arch).from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    model.set_experts_implementation("eager") if hasattr(model, "set_experts_implementation") else None
    return model.eval()


def expert_words(stem, names):
    """What the checkpoint calls gate, up and down of an expert."""
    split = f"{stem}.0.w1.weight" in names
    return ("w1", "w3", "w2") if split else ("gate_proj", "up_proj", "down_proj")


def of_experts(name, grad, names):
    """Of all experts in one tensor: [E, 2 I, D] or, next to biases, [E, D, 2 I] with gate and up taking turns."""
    stem, kind = name.rsplit(".", 1)
    bias, by_turns = kind.endswith("_bias"), f"{stem}.gate_up_proj_bias" in names
    gate, up, down = expert_words(stem, names)
    part = "bias" if bias else "weight"
    for e, g in enumerate(grad):
        g = g.T if by_turns and not bias else g
        if kind.startswith("down_proj"):
            yield f"{stem}.{e}.{down}.{part}", g
        else:
            first, second = (g[0::2], g[1::2]) if by_turns else g.chunk(2, 0)
            yield f"{stem}.{e}.{gate}.{part}", first
            yield f"{stem}.{e}.{up}.{part}", second


def named_gradients(model, names):
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        if ".experts." in name and p.dim() >= 2 and "_proj" in name.rsplit(".", 1)[1]:
            yield from of_experts(name, p.grad, names)
        elif name in names:
            yield name, p.grad
        else:
            sys.exit(f"{name} is not in the checkpoint")


def gradients(folder):
    ref, model = load_file(folder / "reference.safetensors"), load(folder)
    ids, want = ref["input_ids"], ref["logits"]
    random = np.random.default_rng(sum(folder.name.encode()))
    names = {n for f in folder.glob("*.safetensors") for n in safe_open(f, "pt").keys()}
    blocks = next(m for n, m in model.named_modules() if n.endswith("layers") and "visual" not in n)
    seen = {}

    def keep(module, args, kwargs):
        # A tensor of its own: embeddings also reach blocks as inputs of each layer, of which block 0's input says nothing.
        seen["x"] = (args[0] if args else kwargs["hidden_states"]).clone()
        seen["x"].retain_grad()
        return ((seen["x"], *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": seen["x"]})

    blocks[0].register_forward_pre_hook(keep, with_kwargs=True)

    def back(loss_of):
        model.zero_grad(set_to_none=True)
        loss = loss_of(model(input_ids=ids, use_cache=False).logits)
        loss.backward()
        return loss.detach().reshape(1).double(), seen["x"].grad.float()

    direction = torch.tensor(random.standard_normal(want.shape) / np.sqrt(ids.numel()), dtype=torch.float32)
    other = want.float() + torch.tensor(.3 * random.standard_normal(want.shape), dtype=torch.float32)
    loss, embed = back(lambda y: (y * direction.double()).sum())
    out = {"direction": direction, "loss": loss, "grad.hidden.embed": embed}
    left = LAYER_INPUTS if getattr(model.config.get_text_config(), "hidden_size_per_layer_input", 0) else ()
    out.update({f"grad.{n}": g.float() for n, g in named_gradients(model, names) if not any(word in n for word in left)})
    target = torch.log_softmax(other.double(), -1)
    kl, embed = back(lambda y: (target.exp() * (target - torch.log_softmax(y.double(), -1))).sum(-1).mean())
    out.update({"kl_reference": other, "kl_loss": kl, "kl.hidden.embed": embed})
    return {k: v.contiguous().clone() for k, v in out.items()}


def main():
    torch.set_num_threads(1)
    families, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for name in sys.argv[3:]:
        source, to = families / name, out / "models" / name
        if not source.exists():
            continue
        to.mkdir(parents=True)
        for file in source.iterdir():
            (to / file.name).symlink_to(file.resolve())
        save_file(gradients(source), to / "gradients.safetensors")


main()
