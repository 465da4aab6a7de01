"""transformers with compressed-tensors: the quantized module's own forward pass, in float32."""

import engine


def version():
    import importlib.metadata as metadata

    return f"transformers {metadata.version('transformers')} + compressed-tensors {metadata.version('compressed-tensors')}"


def measure(model, windows):
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    engine.need_quantized(loaded.modules(), lambda m: hasattr(m, "quantization_scheme"))
    return engine.mean_nll(engine.torch_logits(loaded), windows)


engine.drive(version, measure)
