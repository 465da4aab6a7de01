"""llm-compressor on the calibration windows that calm takes: rounding to nearest or GPTQ, a compressed-tensors checkpoint written.

peer_llm_compressor.py MODEL TEXT OUTPUT rtn|gptq SCHEME, in an environment with llmcompressor.  SCHEME: W4A16, NVFP4A16, MXFP4A16, FP8_DYNAMIC,
or BITSgGROUP (3g128)."""

import sys

import torch
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import GPTQModifier, QuantizationModifier
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

SEQLEN, WINDOWS = 512, 128


def main(model_dir, text, output, how, scheme):
    encoder = AutoConfig.from_pretrained(model_dir).architectures[0].endswith("Model")
    model = (AutoModel if encoder else AutoModelForCausalLM).from_pretrained(model_dir, dtype=torch.float32)
    ignore = ["lm_head", "re:.*pooler.*"]
    modifier = {"rtn": QuantizationModifier, "gptq": GPTQModifier}[how]
    if "g" in scheme:
        bits, group = map(int, scheme.split("g"))
        args = QuantizationArgs(num_bits=bits, type="int", symmetric=True, strategy="group", group_size=group)
        recipe = modifier(config_groups={"all": QuantizationScheme(targets=["Linear"], weights=args)}, ignore=ignore)
    else:
        recipe = modifier(targets="Linear", scheme=scheme, ignore=ignore)
    with open(text, encoding="utf-8") as stream:
        ids = AutoTokenizer.from_pretrained(model_dir)(stream.read(), add_special_tokens=False)["input_ids"]
    rows = [{"input_ids": ids[i * SEQLEN : (i + 1) * SEQLEN], "attention_mask": [1] * SEQLEN} for i in range(WINDOWS)]
    oneshot(model=model, dataset=Dataset.from_list(rows), max_seq_length=SEQLEN, num_calibration_samples=WINDOWS, recipe=recipe)
    model.save_pretrained(output, save_compressed=True)


main(*sys.argv[1:])
