"""Greedy tokens of three prompts, for tests/engines/serve.

    greedy.py prompts MODEL                    the prompts as token ids, BOS first: a JSON list of lists
    greedy.py transformers MODEL DTYPE IDS     continuations by transformers: a JSON list of {"ids", "gaps"}
    greedy.py llamacpp FILE.gguf IDS           continuations by llama-cpp-python: a JSON list of {"ids"}
    greedy.py compare IDS EXPECTED FOUND       how many of the tokens are equal; exit status 0: all
    greedy.py follow MODEL DTYPE IDS FOUND STEP
                                               is each token of another engine transformers' best one after those before it?

A gap is the difference in nats between a token and the next best one.  In bfloat16 logits of 16 to 32 have steps of .125, so
two tokens may tie, and two engines differ there: `follow` then continues with the other engine's text.  A token passes if its
logit is within the share STEP of the best one's: 2^-7, two such steps; 2^-5 for llama.cpp, which rounds activations to 8
bits.
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "Once upon a time, in a small village by the sea,"]
LENGTH = 64


def read(path):
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


def prompts(model):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    bos = tokenizer.token_to_id("<bos>")
    return [[bos] * (bos is not None) + tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]


def by_transformers(model, dtype, ids):
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    out = []
    for start in ids:
        tokens, gaps, cache = list(start), [], None
        with torch.no_grad():
            while len(tokens) < len(start) + LENGTH:
                fresh = tokens if cache is None else tokens[-1:]
                step = loaded(torch.tensor([fresh]), past_key_values=cache, use_cache=True)
                cache = step.past_key_values
                best = step.logits[0, -1].float().topk(2)
                gaps.append((best.values[0] - best.values[1]).item())
                tokens.append(best.indices[0].item())
        out.append({"ids": tokens[len(start) :], "gaps": gaps})
    return out


def follow(model, dtype, ids, found, step):
    import torch
    from transformers import AutoModelForCausalLM

    loaded, worst = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval(), 0
    for start, other in zip(ids, found, strict=True):
        tokens = other["ids"][:LENGTH]
        with torch.no_grad():
            logits = loaded(torch.tensor([start + tokens])).logits[0, len(start) - 1 : -1].float()
        best = logits.max(-1).values
        short = (best - logits[torch.arange(len(tokens)), torch.tensor(tokens)]) / best.abs()
        worst = max(worst, short.max().item())
        print(f"  prompt of {len(start)} tokens: {(short == 0).sum()} of {len(tokens)} are the best, the others within "
              f"{short.max():.4f} of its logit")  # fmt: skip
    return 0 if worst <= step else 1


def by_llamacpp(path, ids):
    import llama_cpp

    loaded = llama_cpp.Llama(path, n_ctx=256, n_batch=256, verbose=False)
    out = []
    for start in ids:
        loaded.reset()
        tokens = []
        for token in loaded.generate(start, temp=0, top_k=1, repeat_penalty=1.0):
            tokens.append(int(token))
            if len(tokens) == LENGTH:
                break
        out.append({"ids": tokens})
    return out


def compare(ids, expected, found):
    apart = 0
    for start, a, b in zip(ids, expected, found, strict=True):
        length = min(len(a["ids"]), LENGTH)
        same = next((i for i in range(length) if i >= len(b["ids"]) or a["ids"][i] != b["ids"][i]), length)
        apart += same < length
        gap = f", where the best two are {a['gaps'][same]:.4f} nats apart" if same < length else ""
        print(f"  prompt of {len(start)} tokens: {same} of {length} equal{gap}")
    return 1 if apart else 0


def main(command, *words):
    if command == "compare":
        return compare(*map(read, words))
    if command == "follow":
        return follow(words[0], words[1], read(words[2]), read(words[3]), float(words[4]))
    made = {"prompts": lambda model: prompts(model), "transformers": lambda m, d, i: by_transformers(m, d, read(i)),
            "llamacpp": lambda p, i: by_llamacpp(p, read(i))}  # fmt: skip
    print(json.dumps(made[command](*words)))
    return 0


sys.stdout.flush()
status = main(*sys.argv[1:])
sys.stdout.flush()
os._exit(status)
