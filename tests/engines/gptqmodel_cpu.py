"""GPTQModel's plain PyTorch kernel, in float16 as the library loads it on CPUs."""

import contextlib
import sys

import engine


def version():
    import importlib.metadata

    return f"GPTQModel {importlib.metadata.version('gptqmodel')} (torch kernel)"


def measure(model, windows):
    import torch

    with contextlib.redirect_stdout(sys.stderr):
        from gptqmodel import BACKEND, GPTQModel

        # The automatic choice compiles a C++ kernel on the first load.
        loaded = GPTQModel.load(model, device="cpu", dtype=torch.float16, backend=BACKEND.GPTQ_TORCH).model.eval()
        if not any(hasattr(m, "qweight") for m in loaded.modules()):
            raise ValueError("no module was loaded as quantized")

        def logits(ids):
            with torch.no_grad():
                return loaded(torch.tensor([ids])).logits[0].float()

        return engine.mean_nll(logits, windows)


engine.drive(version, measure)
