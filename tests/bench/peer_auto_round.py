"""Runs auto-round on calm's calibration windows: signed rounding to W4 (or another width); writes dequantized weights.

peer_auto_round.py MODEL TEXT OUTPUT BITS GROUP ITERATIONS, in an environment with auto-round 0.15 or 0.16 and torch.  It uses the first 128
windows (environment variable WINDOWS) of 512 tokens, with special tokens at the beginning (BOS); one thread (THREADS) and float32 (AMP=1:
bfloat16 where auto-round uses it, its default).  Prints the CPU seconds of the quantization alone, without imports, loading and writing.
"""

import os
import sys
import time

import torch
from auto_round import AutoRound
from transformers import AutoModelForCausalLM, AutoTokenizer

from peer_windows import SEQLEN, WINDOWS, windows


def main(model_dir, text, output, bits, group, iterations):
    torch.set_num_threads(int(os.environ.get("THREADS", "1")))
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    with open(text, encoding="utf-8") as stream:
        rows = windows(tokenizer, stream.read())
    assert all(len(row) == SEQLEN for row in rows)
    data = [{"input_ids": torch.tensor([row]), "attention_mask": torch.ones(1, SEQLEN, dtype=torch.long)} for row in rows]
    begun = time.process_time()
    rounder = AutoRound(model, tokenizer, bits=int(bits), group_size=int(group), sym=True, iters=int(iterations), seqlen=SEQLEN,
                        nsamples=WINDOWS, batch_size=8, dataset=data, device_map="cpu", amp=os.environ.get("AMP") == "1")
    rounder.quantize()
    print(f"auto-round: {time.process_time() - begun:.1f} s of CPU time", flush=True)
    rounder.save_quantized(output, format="fake")


main(*sys.argv[1:])
