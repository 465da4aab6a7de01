"""transformers with compressed-tensors: the quantized module's own forward pass, in float32.

Weights of small floats are unpacked in bfloat16, which the forward pass does not multiply by float32: such models are
computed in bfloat16 throughout.
"""

import engine


def version():
    import importlib.metadata as metadata

    return f"transformers {metadata.version('transformers')} + compressed-tensors {metadata.version('compressed-tensors')}"


def measure(model, windows):
    import torch
    from transformers import AutoModelForCausalLM

    def losses(dtype):
        loaded = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        engine.need_quantized(loaded.modules(), lambda m: hasattr(m, "quantization_scheme"))
        return engine.losses(engine.torch_logits(loaded), windows)

    try:
        return losses(torch.float32)
    except RuntimeError as error:
        if "same dtype" not in str(error):
            raise
        return losses(torch.bfloat16)


engine.drive(version, measure)
