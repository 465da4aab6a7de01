"""Makes checkpoints by llm-compressor's rounding to nearest, in an environment with llmcompressor.

    foreign_ct.py MODEL OUT SCHEME...

Writes OUT/SCHEME for each preset of compressed-tensors (FP8_DYNAMIC, NVFP4, ...).  Input ranges, if a scheme needs them, come
from a few windows of random ids, because no test measures the loss of these files."""

import sys

import torch
from datasets import Dataset
from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoConfig, AutoModelForCausalLM

WINDOWS, LENGTH = 4, 64


def write(model_dir, output, scheme):
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.bfloat16)
    torch.manual_seed(0)
    ids = torch.randint(3, AutoConfig.from_pretrained(model_dir).vocab_size, (WINDOWS, LENGTH)).tolist()
    rows = [{"input_ids": row, "attention_mask": [1] * LENGTH} for row in ids]
    oneshot(model=model, dataset=Dataset.from_list(rows), max_seq_length=LENGTH, num_calibration_samples=WINDOWS,
            recipe=QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"]))
    model.save_pretrained(output, save_compressed=True)


for name in sys.argv[3:]:
    write(sys.argv[1], f"{sys.argv[2]}/{name}", name)
