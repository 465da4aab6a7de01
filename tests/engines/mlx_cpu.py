"""mlx-lm's CPU build; scales and activations are raised to float32."""

import pathlib

import engine


def version():
    return f"mlx-lm {engine.need('mlx-lm', '0.32')} (MLX {engine.need('mlx', '0.32')} on the CPU)"


def measure(model, windows):
    import mlx.core as mx
    import numpy
    import torch
    from mlx_lm.utils import load_model

    loaded, _ = load_model(pathlib.Path(model), strict=True)
    loaded.set_dtype(mx.float32)
    engine.need_quantized(loaded.named_modules(), lambda named: type(named[1]).__name__.startswith("Quantized"))

    def logits(ids):
        return torch.from_numpy(numpy.array(loaded(mx.array([ids]))[0].astype(mx.float32)))

    return engine.losses(logits, windows)


engine.drive(version, measure)
