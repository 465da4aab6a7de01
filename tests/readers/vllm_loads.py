"""Checks that vLLM's CPU build loads a checkpoint and computes calm's results:  vllm_loads.py FOLDER TOKENS OURS

OURS: the output of `calm forward --hidden` for the first two lines of TOKENS.  Prints "loaded" once all tensors are in the
engine, then the difference: of the mean loss of a decoder, of the cosine of each token's hidden state of an encoder.  vLLM computes
in bfloat16, calm in float32.  Exit status 0: the difference is within BOUNDS.

On a CPU without AVX-512, which vLLM's kernel of 4-bit weights needs, torch computes that product
(vllm_products.py), and the line "loaded" says so.
"""

import importlib.machinery
import importlib.util
import json
import math
import os
import sys
import types

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy
import vllm_products
from safetensors.numpy import load_file
from vllm import LLM, SamplingParams
from vllm.config import PoolerConfig

# Logits of random weights have a deviation of 2 to 4 and losses of 8 to 20 nats; every product rounds to 2^-9, some ten a
# block, and a token of a mixture may take another expert: .05 of a nat in the mean of 62 tokens, as in rows.txt ten times
# that of a trained model.  Rows of encoders: an angle of .06, ten roundings of 2^-8 each.  A wrong matrix moves a loss by
# .5 and a cosine by .1.
BOUNDS = {"loss": 0.05, "cosine": 0.998}
# The model without the head, whose class vLLM has, of those with one for masked tokens.
HEADLESS = {"ModernBertForMaskedLM": "ModernBertModel"}


def do_without_torchvision():
    """Replaces torchvision, which vLLM's class of Llama 4 imports only for images and setup_vllm.sh removes."""
    import transformers.utils
    from vllm.model_executor.models import registry

    if importlib.util.find_spec("torchvision"):
        return
    transformers.utils.is_torchvision_available()  # remembers that there is none
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name].functional = None
    registry._run_in_subprocess = lambda look: look()


def rows(values):
    """Returns the last hidden states, which enter the head or are the output."""
    if "last_hidden_state" in values:
        return values["last_hidden_state"]
    return values[sorted(name for name in values if name.startswith("hidden.") and name[7:].isdigit())[-1]]


def embed(folder, config, windows, ours):
    """Returns the hidden state of each token, for classes that predict no next token."""
    name = HEADLESS.get(config["architectures"][0])
    more = {"hf_overrides": {"architectures": [name]}} if name else {}
    engine = LLM(model=folder, dtype="bfloat16", enforce_eager=True, max_model_len=64, runner="pooling", convert="embed",
                 pooler_config=PoolerConfig(task="token_embed"), **more)  # fmt: skip
    say_loaded()
    outputs = engine.encode([{"prompt_token_ids": w} for w in windows], pooling_task="token_embed", use_tqdm=False)
    theirs = numpy.stack([output.outputs.data.float().numpy() for output in outputs])
    lengths = numpy.linalg.norm(theirs, axis=-1) * numpy.linalg.norm(ours, axis=-1)
    least = float(((theirs * ours).sum(-1) / lengths).min())
    print(f"cosine {least:.5f} at least")
    return least > BOUNDS["cosine"]


def predict(folder, config, windows, ours):
    # A wrapper's text part alone: without images vLLM leaves the vision part out, and needs no processor.
    text_alone = {"language_model_only": True} if "vision_config" in config else {}
    engine = LLM(model=folder, dtype="bfloat16", enforce_eager=True, max_model_len=64, max_num_batched_tokens=256,
                 **text_alone)  # fmt: skip
    say_loaded()
    outputs = engine.generate([{"prompt_token_ids": w} for w in windows],
                              SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0), use_tqdm=False)  # fmt: skip
    theirs = [row[w].logprob for o, ids in zip(outputs, windows) for row, w in zip(o.prompt_logprobs[1:], ids[1:])]
    logits = ours[:, :-1].astype(numpy.float64)
    logits -= logits.max(-1, keepdims=True)
    logits -= numpy.log(numpy.exp(logits).sum(-1, keepdims=True))
    mine = [logits[i, t, w] for i, ids in enumerate(windows) for t, w in enumerate(ids[1:])]
    difference = (sum(mine) - sum(theirs)) / len(mine)
    print(f"loss {-sum(theirs) / len(mine):.4f}, calm's {-sum(mine) / len(mine):.4f}")
    return math.isfinite(difference) and abs(difference) < BOUNDS["loss"]


def say_loaded():
    print("loaded, products of 4-bit weights by torch" if by_torch else "loaded", flush=True)


by_torch = vllm_products.use_where_missing()
with open(sys.argv[2], encoding="utf-8") as stream:
    windows = [json.loads(line)["ids"] for line in stream][:2]
with open(os.path.join(sys.argv[1], "config.json"), encoding="utf-8") as stream:
    config = json.load(stream)
if config["architectures"][0].startswith("Llama4"):
    do_without_torchvision()
values = load_file(sys.argv[3])
decoder = config["architectures"][0].endswith(("ForCausalLM", "ForConditionalGeneration"))
same = (predict(sys.argv[1], config, windows, values["logits"]) if decoder
        else embed(sys.argv[1], config, windows, rows(values)))  # fmt: skip
sys.exit(0 if same else 1)
