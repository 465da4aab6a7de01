"""Makes checkpoints in published formats from a float one: weights as small floats with scales.

    make_published.py MODEL OUT KIND...

Writes OUT/KIND for each KIND of KINDS below that fits weights of MODEL.  MODEL is a folder, or "random:TYPE": a tiny model of
that model_type.  Blocks are small, like these models, and divide every weight, because transformers derives the size of a block
from the number of scales.  Rounding is to nearest; the largest magnitude sets a scale."""

import json
import math
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

E4M3 = torch.float8_e4m3fn
LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def to_e4m3(weight, scales, rows, columns):
    """Returns codes of one or several matrices, whose blocks of rows by columns have these scales."""
    spread = scales.float().repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    return (weight.float() / spread[..., :weight.shape[-2], :weight.shape[-1]]).clamp(-448, 448).to(E4M3)


def largest(weight, rows, columns):
    *lead, n, m = weight.shape
    return weight.float().abs().reshape(*lead, n // rows, rows, m // columns, columns).amax((-3, -1)).clamp(min=1e-6)


def exponents(values):
    return (torch.log2(values).ceil() + 127).clamp(0, 254).to(torch.uint8)


def pack_e2m1(weight, scales, group):
    """Packs two codes into a byte along the columns."""
    spread = scales.repeat_interleave(group, -1)
    codes = (weight.float() / spread).unsqueeze(-1).sub(LEVELS).abs().argmin(-1).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def fp8(side, scale_dtype):
    def put(name, weight, out):
        rows = side or weight.shape[-2]
        columns = side or weight.shape[-1]
        scales = largest(weight, rows, columns) / 448
        if scale_dtype == "ue8m0":
            codes = exponents(scales)
            scales = torch.exp2(codes.float() - 127)
            out[name + "_scale_inv"] = codes.view(torch.float8_e8m0fnu)
        else:
            scales = scales.to(scale_dtype)
            out[name + "_scale_inv"] = scales if side else scales.reshape(scales.shape[:-2])
        out[name] = to_e4m3(weight, scales, rows, columns)
        if not side:
            out[name.replace(".weight", ".activation_scale")] = torch.tensor(0.02, dtype=torch.bfloat16)
    return put, {"quant_method": "fp8", "activation_scheme": "dynamic" if side else "static",
                 "weight_block_size": [side, side] if side else None,
                 "scale_fmt": "ue8m0" if scale_dtype == "ue8m0" else "float", "modules_to_not_convert": ["lm_head"]}


def mxfp4():
    def put(name, weight, out):
        # [E, in, out] here, rows of outputs in the file
        rows = weight.transpose(1, 2).contiguous()
        scales = exponents(largest(rows, 1, 32) / 6)
        codes = pack_e2m1(rows, torch.exp2(scales.float() - 127), 32)
        out[name + "_blocks"] = codes.reshape(*codes.shape[:2], -1, 16).contiguous()
        out[name + "_scales"] = scales
    return put, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}


def compressed(strategy, scale_dtype=torch.bfloat16, side=16):
    def put(name, weight, out):
        rows, columns = {"tensor": weight.shape, "channel": (1, weight.shape[1]), "block": (side, side)}[strategy]
        scales = (largest(weight, rows, columns) / 448).to(scale_dtype)
        out[name + "_scale"] = scales.reshape(1) if strategy == "tensor" else scales
        out[name] = to_e4m3(weight, scales, rows, columns)
        if strategy == "tensor":
            out[name.replace(".weight", ".input_scale")] = torch.tensor([0.02], dtype=scale_dtype)
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy}
    if strategy == "block":
        weights["block_structure"] = [side, side]
    inputs = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": strategy != "tensor",
              "strategy": {"tensor": "tensor", "channel": "token", "block": "group"}[strategy]}
    if strategy == "block":
        inputs["group_size"] = side
    return put, {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
                 "ignore": ["lm_head"], "config_groups": {"group_0": {
                     "targets": ["Linear"], "weights": weights, "input_activations": inputs}}}


def packed(method):
    group = 32 if method == "mxfp4" else 16

    def put(name, weight, out):
        scales = largest(weight, 1, group) / 6
        if method == "mxfp4":
            codes = exponents(scales)
            out[name + "_scale"] = codes
            scales = torch.exp2(codes.float() - 127)
        else:
            divisor = 448 * 6 / weight.float().abs().max()
            out[name + "_global_scale"] = divisor.reshape(1)
            out[name + "_scale"] = (scales * divisor).clamp(max=448).to(E4M3)
            scales = out[name + "_scale"].float() / divisor
        out[name + "_packed"] = pack_e2m1(weight, scales.clamp(min=1e-12), group)
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "group_size": group,
               "strategy": "group" if method == "mxfp4" else "tensor_group"}
    return put, {"quant_method": "compressed-tensors", "format": method + "-pack-quantized",
                 "quantization_status": "compressed", "ignore": ["lm_head"],
                 "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


# The side of blocks, 0 where there are none, and what writes weights with blocks of a side.
KINDS = {
    "fp8-block": (16, lambda side: fp8(side, torch.float32)), "fp8-block-bf16": (8, lambda side: fp8(side, torch.bfloat16)),
    "fp8-ue8m0": (16, lambda side: fp8(side, "ue8m0")), "fp8-tensor": (0, lambda side: fp8(0, torch.bfloat16)),
    "mxfp4": (0, lambda side: mxfp4()), "ct-tensor": (0, lambda side: compressed("tensor")),
    "ct-channel": (0, lambda side: compressed("channel")),
    "ct-channel-f32": (0, lambda side: compressed("channel", torch.float32)),
    "ct-block": (16, lambda side: compressed("block", side=side)), "ct-mxfp4": (0, lambda side: packed("mxfp4")),
    "ct-nvfp4": (0, lambda side: packed("nvfp4")),
}


def is_taken(kind, name, tensor):
    fused = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
    if kind == "mxfp4":
        return fused and tensor.shape[1] % 32 == 0
    linear = name.endswith("proj.weight") and ".layers." in name and "vision" not in name and "visual" not in name
    return tensor.ndim == 2 and linear


def write(model, output, kind):
    """Writes a checkpoint; False: no weight of the model has a shape that fits the kind."""
    tensors = load_file(f"{model}/model.safetensors")
    taken = [name for name, tensor in tensors.items() if is_taken(kind, name, tensor)]
    if not taken:
        return False
    side, make = KINDS[kind]
    put, entry = make(math.gcd(side, *(n for name in taken for n in tensors[name].shape)))
    out = {name: tensor for name, tensor in tensors.items() if name not in taken}
    for name in taken:
        put(name, tensors[name], out)
    os.makedirs(output, exist_ok=True)
    for name in os.listdir(model):
        if name.startswith("tokenizer") or name == "generation_config.json":
            shutil.copy(f"{model}/{name}", output)
    config = json.load(open(f"{model}/config.json"))
    config["quantization_config"] = entry
    json.dump(config, open(f"{output}/config.json", "w"), indent=2)
    save_file({n: t.contiguous() for n, t in out.items()}, f"{output}/model.safetensors", {"format": "pt"})
    return True


def make_random(kind, output):
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    sizes = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, num_experts_per_tok=2, pad_token_id=0, tie_word_embeddings=False)
    if kind == "gpt_oss":
        sizes.update(num_local_experts=4, layer_types=["sliding_attention", "full_attention"])
    config = AutoConfig.for_model(kind, **sizes)
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(output)


if __name__ == "__main__":
    if sys.argv[1].startswith("random:"):
        make_random(sys.argv[1][7:], f"{sys.argv[2]}/float")
        sys.argv[1] = f"{sys.argv[2]}/float"
    for name in sys.argv[3:] or KINDS:
        if not write(sys.argv[1], f"{sys.argv[2]}/{name}", name):
            print(f"{sys.argv[1]}: no weight has a shape that {name} takes")
