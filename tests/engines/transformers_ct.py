"""transformers with compressed-tensors: the quantized module's own forward pass, in float32."""

import engine


def version():
    import importlib.metadata as metadata

    return f"transformers {metadata.version('transformers')} + compressed-tensors {metadata.version('compressed-tensors')}"


def measure(model, windows):
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if not any(hasattr(m, "quantization_scheme") for m in loaded.modules()):
        raise ValueError("no module was loaded as quantized")

    def logits(ids):
        with torch.no_grad():
            return loaded(torch.tensor([ids])).logits[0].float()

    return engine.mean_nll(logits, windows)


engine.drive(version, measure)
