"""GPTQModel's plain PyTorch kernel, in float16 as the library loads it on CPUs."""

import contextlib
import sys

import engine


def version():
    return f"GPTQModel {engine.need('gptqmodel', '7')} (torch kernel)"


def measure(model, windows):
    import torch

    with contextlib.redirect_stdout(sys.stderr):
        from gptqmodel import BACKEND, GPTQModel

        # The automatic choice compiles a C++ kernel on the first load.
        loaded = GPTQModel.load(model, device="cpu", dtype=torch.float16, backend=BACKEND.GPTQ_TORCH).model.eval()
        engine.need_quantized(loaded.modules(), lambda m: hasattr(m, "qweight"))
        return engine.losses(engine.torch_logits(loaded), windows)


engine.drive(version, measure)
