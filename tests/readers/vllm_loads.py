"""Does vLLM's CPU build load a checkpoint and give finite log-likelihoods, of encoders embeddings?   vllm_loads.py FOLDER TOKENS

Prints "loaded" once all tensors are in the engine, and exits 0 if it also ran: builds for CPUs without
AVX-512 have no kernel for 4-bit weights.
"""

import json
import math
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from vllm import LLM, SamplingParams


def embed(folder, windows):
    """Of classes that predict no next token; vLLM pools them in its own way."""
    engine = LLM(model=folder, dtype="bfloat16", enforce_eager=True, max_model_len=64, runner="pooling", convert="embed")
    print("loaded", flush=True)
    outputs = engine.embed([{"prompt_token_ids": w} for w in windows], use_tqdm=False)
    values = [value for o in outputs for value in o.outputs.embedding]
    assert values and all(math.isfinite(v) for v in values), "an embedding is not finite"
    print(f"{len(outputs)} embeddings of {len(values) // len(outputs)}")


def main():
    with open(sys.argv[2], encoding="utf-8") as stream:
        windows = [json.loads(line)["ids"] for line in stream][:2]
    # A wrapper's text part alone: without images vLLM leaves the vision part out, and needs no processor.
    with open(os.path.join(sys.argv[1], "config.json"), encoding="utf-8") as stream:
        config = json.load(stream)
    if not config["architectures"][0].endswith(("ForCausalLM", "ForConditionalGeneration")):
        return embed(sys.argv[1], windows)
    text_alone = {"language_model_only": True} if "vision_config" in config else {}
    engine = LLM(model=sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=64, max_num_batched_tokens=256,
                 **text_alone)  # fmt: skip
    print("loaded", flush=True)
    outputs = engine.generate([{"prompt_token_ids": w} for w in windows],
                              SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0))  # fmt: skip
    values = [row[w].logprob for o, ids in zip(outputs, windows) for row, w in zip(o.prompt_logprobs[1:], ids[1:])]
    assert values and all(math.isfinite(v) for v in values), "a log-likelihood is not finite"
    print(f"{len(values)} tokens, mean {-sum(values) / len(values):.4f}")


main()
