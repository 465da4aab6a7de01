"""vLLM's CPU build: log-probabilities of the prompt, computed in bfloat16.

Its kernels for 4-bit weights and int8 activations need AVX-512; on other CPUs the driver fails with that reason.
"""

import contextlib
import os
import sys

import engine

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def version():
    import importlib.metadata

    for name in ("vllm", "vllm-cpu"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return f"vLLM {engine.need(name, '0.32')} (CPU)"
    raise ImportError("no package vllm or vllm-cpu")


def has_kernels():
    """Does the extension for this CPU have the kernels of quantized linears?"""
    import torch
    import vllm._custom_ops  # noqa: F401  (loads the extension)

    return hasattr(torch.ops._C, "cpu_gemm_wna16")


def measure(model, windows):
    if not has_kernels():
        raise RuntimeError("this CPU has no AVX-512: vLLM's CPU build has no kernels of quantized linears for it")
    from vllm import LLM, SamplingParams

    length = max(map(len, windows))
    with contextlib.redirect_stdout(sys.stderr):
        llm = LLM(
            model=model,
            dtype="bfloat16",
            enforce_eager=True,
            max_model_len=length + 1,
            max_num_batched_tokens=4 * length,
        )
        # One window at a time: its result must not depend on the others.
        prompts = [{"prompt_token_ids": ids} for ids in windows]
        sampling = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
        outputs = [llm.generate(prompt, sampling, use_tqdm=False)[0] for prompt in prompts]
    return [
        -row[token].logprob
        for output in outputs
        for token, row in zip(output.prompt_token_ids, output.prompt_logprobs)
        if row
    ]


engine.drive(version, measure)
