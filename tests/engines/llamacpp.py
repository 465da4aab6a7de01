"""llama.cpp through llama-cpp-python.  Its integer kernels quantize activations to 8 bits."""

import engine


def version():
    return f"llama.cpp (llama-cpp-python {engine.need('llama-cpp-python', '0.3.16')})"


def measure(model, windows):
    import glob
    import os

    import llama_cpp
    import numpy
    import torch

    length = max(map(len, windows))
    if os.path.isdir(model):
        model = sorted(glob.glob(os.path.join(model, "*.gguf")))[0]
    loaded = llama_cpp.Llama(
        model, n_ctx=length, n_batch=length, n_ubatch=length, logits_all=True, verbose=False
    )

    def logits(ids):
        loaded.reset()
        loaded.eval(ids)
        return torch.from_numpy(numpy.array(loaded.scores[: len(ids)], dtype=numpy.float32))

    return engine.losses(logits, windows)


engine.drive(version, measure)
