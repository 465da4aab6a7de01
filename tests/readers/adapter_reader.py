#!/usr/bin/env python3
"""Compares adapters merged by calm with those merged by PEFT.

  adapter_reader.py make FOLDER       bases and adapters: FOLDER/NAME/{base,adapter,merged}, merged by merge_and_unload
  adapter_reader.py compare FOLDER    compares FOLDER/NAME/calm, written by calm

PEFT rounds s B A to the base's dtype and then the sum; calm rounds the sum once.  With u the unit roundoff of a dtype
(2^-8 of bfloat16, 2^-11 of float16, 2^-24 of float32) and r products, the two differ by at most u |delta| + 2 u |merged|
and, for the order of float32 sums, 2 r 2^-24 s sum |B| |A| + 2^-23 |delta|.
"""
import pathlib
import sys

import torch
import peft
import transformers
from safetensors.torch import load_file

SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=80,
             max_position_embeddings=128)
LINEARS = ["q_proj", "v_proj", "down_proj"]
CASES = {
    "plain": ("Llama", torch.float32, {}, dict(r=8, lora_alpha=16, target_modules=LINEARS)),
    "rslora": ("Qwen2", torch.bfloat16, {}, dict(r=16, lora_alpha=32, use_rslora=True, target_modules="all-linear")),
    "patterns": ("Qwen3", torch.bfloat16, dict(head_dim=16),
                 dict(r=4, lora_alpha=8, target_modules=LINEARS, rank_pattern={"v_proj": 2, "layers.1.self_attn.q_proj": 6},
                      alpha_pattern={r".*\.down_proj": 32, "q_proj": 3})),
    "fused": ("Phi3", torch.float16, dict(pad_token_id=0), dict(r=8, lora_alpha=16, target_modules=["qkv_proj", "gate_up_proj"])),
    "saved": ("Llama", torch.bfloat16, {},
              dict(r=8, lora_alpha=16, target_modules=LINEARS, modules_to_save=["lm_head", "embed_tokens"])),
    "bias": ("Qwen2", torch.float32, {}, dict(r=8, lora_alpha=16, target_modules=["q_proj"], bias="lora_only")),
    "lora_bias": ("Qwen2", torch.bfloat16, {}, dict(r=8, lora_alpha=16, target_modules=["k_proj"], lora_bias=True)),
    "embedding": ("Llama", torch.float32, {}, dict(r=4, lora_alpha=16, target_modules=["embed_tokens", "q_proj", "lm_head"])),
    "tied_head": ("Llama", torch.bfloat16, dict(tie_word_embeddings=True),
                  dict(r=4, lora_alpha=16, target_modules=["o_proj"], modules_to_save=["lm_head"])),
}


def make(folder):
    torch.manual_seed(7)
    for name, (family, dtype, more, lora) in CASES.items():
        place = folder / name
        config = getattr(transformers, family + "Config")(**{**SMALL, **more})
        base = getattr(transformers, family + "ForCausalLM")(config).to(dtype)
        with torch.no_grad():
            for parameter in base.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.05)
        base.save_pretrained(place / "base")
        model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=True, **lora))
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if parameter.requires_grad:
                    parameter.copy_(torch.randn_like(parameter) * 0.05)
        model.save_pretrained(place / "adapter")
        again = getattr(transformers, family + "ForCausalLM").from_pretrained(place / "base", dtype=dtype)
        merged = peft.PeftModel.from_pretrained(again, place / "adapter").merge_and_unload()
        if name == "tied_head":
            merged.config.tie_word_embeddings = False
        merged.save_pretrained(place / "merged")


def read(folder):
    return {key: value for path in sorted(folder.glob("*.safetensors")) for key, value in load_file(path).items()}


def compare(folder):
    faults = 0
    for name, (_, dtype, _, lora) in CASES.items():
        base, peer, mine = (read(folder / name / part) for part in ("base", "merged", "calm"))
        u = {torch.float32: 2.0 ** -24, torch.bfloat16: 2.0 ** -8, torch.float16: 2.0 ** -11}[dtype]
        worst, changed = 0.0, 0
        for key in peer.keys() | mine.keys():
            if key not in mine or key not in peer:
                print(f"{name}: {key} is {'not in calm' if key not in mine else 'in calm alone'}")
                faults += 1
                continue
            a, b = mine[key].double(), peer[key].double()
            was = base.get(key, torch.zeros(1)).double()
            delta = (b - was).abs()
            # alpha / r is at most 8, r at most 16, and so |B| |A| at most 16 times the square of 5 deviations of 0.05.
            room = u * delta + 2 * u * b.abs() + 2 * 16 * 2.0 ** -24 * 8 * 16 * 0.25 ** 2 + 2.0 ** -23 * delta
            part = ((a - b).abs() / room).max().item()
            worst, changed = max(worst, part), changed + int(not torch.equal(was.float().expand_as(b.float()), b.float()))
            if mine[key].dtype != peer[key].dtype or part > 1:
                print(f"{name}: {key}: {mine[key].dtype} {peer[key].dtype}, {part:.2f} of what rounding allows")
                faults += 1
        print(f"{name}: {changed} tensors changed, at most {worst:.2f} of what rounding allows")
        faults += changed == 0
    return 1 if faults else 0


if __name__ == "__main__":
    place = pathlib.Path(sys.argv[2])
    sys.exit(make(place) if sys.argv[1] == "make" else compare(place))
