"""transformers with compressed-tensors: the quantized module's own forward pass, in float32.

The library unpacks weights of small floats in bfloat16, which its forward pass cannot multiply by float32, so such models run
in bfloat16.
"""

import engine


def version():
    return f"transformers {engine.need('transformers', '5')} + compressed-tensors {engine.need('compressed-tensors', '0.14')}"


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
