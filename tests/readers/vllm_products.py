"""Computes vLLM's product of 4-bit weights in torch, for CPUs without AVX-512, which vLLM's kernel needs.

Layers, names, shapes and repacked weights are vLLM's; only the product is this one.
"""

import torch


def product(x, words, scales, zeros, bias, pack_factor, isa_hint):
    """x [..., K] times weights whose codes vLLM keeps as [N / 16, K, 16], 8 to a word; scales and zeros [groups, N]."""
    inputs, outputs, groups = x.shape[-1], scales.size(1), scales.size(0)
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    codes = ((words.view(outputs // 16, inputs, 2, 1) >> shifts) & 15).view(outputs // 16, inputs, 16)
    codes = codes.permute(1, 0, 2).reshape(groups, inputs // groups, outputs)
    zero = 8 if zeros is None else ((zeros.unsqueeze(-1) >> shifts) & 15).view(groups, 1, outputs)
    weights = ((codes - zero) * scales.float().unsqueeze(1)).view(inputs, outputs).to(x.dtype)
    return torch.nn.functional.linear(x, weights.t(), bias)


def use_where_missing():
    """Replaces the kernel by `product` if this CPU has none; returns whether it did."""
    import vllm._custom_ops as ops

    if hasattr(torch.ops._C, "cpu_gemm_wna16"):
        return False
    ops.cpu_gemm_wna16 = lambda input, q_weight, **rest: product(input, q_weight, **rest)
    return True
