"""Runs llm-compressor on calm's calibration text: rounding to nearest, GPTQ or AWQ; writes a compressed-tensors checkpoint.

peer_llm_compressor.py MODEL TEXT OUTPUT rtn|gptq|awq SCHEME [SENTENCES], in an environment with llmcompressor.  SCHEME: W4A16, NVFP4A16,
MXFP4A16, FP8_DYNAMIC, or BITS[gGROUP][aBITS]: symmetric weights in groups or by row, asymmetric activations per token (3g128, 8a8, 4g128a4).
It uses the first 128 windows (environment variable WINDOWS) of 512 tokens of the text, with special tokens at the beginning (BOS). With
SENTENCES, each of that many first lines is a sample."""

import re
import sys

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
from llmcompressor.modifiers.transform.awq import AWQModifier
from llmcompressor.pipelines.cache import IntermediatesCache
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

from peer_windows import SEQLEN, windows

if not torch.accelerator.is_available():
    # AWQ (0.14) asks for pinned memory, which torch has with an accelerator alone; it changes no number.
    IntermediatesCache.pin_memory = lambda *_: None

SENTENCE = 128  # the longest, in tokens; calm's --seqlen


def integers(scheme):
    """The scheme that BITS[gGROUP][aBITS] says; None: it is one of llm-compressor's names."""
    parts = re.fullmatch(r"(\d+)(?:g(\d+))?(?:a(\d+))?", scheme)
    if not parts:
        return None
    bits, group, activations = (int(part) if part else None for part in parts.groups())
    weights = QuantizationArgs(num_bits=bits, type="int", symmetric=True, strategy="group" if group else "channel", group_size=group)
    inputs = QuantizationArgs(num_bits=activations, type="int", symmetric=False, strategy="token", dynamic=True) if activations else None
    return QuantizationScheme(targets=["Linear"], weights=weights, input_activations=inputs)


def samples(tokenizer, text, sentences):
    """Rows of token ids: windows of the whole text, or its first lines."""
    if sentences:
        lines = text.splitlines()[:sentences]
        return [tokenizer(line, truncation=True, max_length=SENTENCE)["input_ids"] for line in lines]
    return windows(tokenizer, text)


def main(model_dir, text, output, how, scheme, sentences=0):
    encoder = AutoConfig.from_pretrained(model_dir).architectures[0].endswith("Model")
    model = (AutoModel if encoder else AutoModelForCausalLM).from_pretrained(model_dir, dtype=torch.float32)
    before, modifier = {"rtn": ([], QuantizationModifier), "gptq": ([], GPTQModifier), "awq": ([AWQModifier()], QuantizationModifier)}[how]
    own = integers(scheme)
    what = {"config_groups": {"all": own}} if own else {"targets": "Linear", "scheme": scheme}
    with open(text, encoding="utf-8") as stream:
        rows = samples(AutoTokenizer.from_pretrained(model_dir), stream.read(), int(sentences))
    data = Dataset.from_list([{"input_ids": row, "attention_mask": [1] * len(row)} for row in rows])
    oneshot(model=model, dataset=data, max_seq_length=SEQLEN, num_calibration_samples=len(rows),
            recipe=before + [modifier(ignore=["lm_head", "re:.*pooler.*"], **what)])
    model.save_pretrained(output, save_compressed=True)


main(*sys.argv[1:])
