#!/usr/bin/env python3
"""Compares `calm eval --tasks --json` with transformers: the log-probability of every choice and the answers.

    tasks_reader.py MODEL TASKS RESULT

Tokens as in EleutherAI's lm-evaluation-harness (TemplateLM._encode_pair and loglikelihood, HFLM._loglikelihood_tokens), one
choice at a time, the model in float32 and the logarithms in double."""
import json
import math
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

# Sums of up to some hundred log-probabilities of float32 logits that two programs compute in different orders: each logit
# is within 1e-5 of the other's, and so is each term.
TOLERANCE = 1e-3


def pair(tokenizer, context, choice):
    """Returns the ids of the context and of the choice."""
    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False)

    spaces = len(context) - len(context.rstrip())
    if spaces:
        choice = context[-spaces:] + choice
        context = context[:-spaces]
    if not context:
        prefix = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
        ids = encode(choice)
        return ([prefix], ids) if ids[0] != prefix else (ids[:1], ids[1:])
    before = encode(context)
    return before, encode(context + choice)[len(before):]


@torch.no_grad()
def log_prob(model, before, own):
    ids = (before + own)[-(model.config.max_position_embeddings + 1):]
    logits = model(torch.tensor([ids[:-1]])).logits[0, -len(own):].double()
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(own)[:, None]).sum().item()


def mean_and_error(right):
    n = len(right)
    mean = sum(right) / n
    return mean, math.sqrt(sum((x - mean) ** 2 for x in right) / (n - 1)) / math.sqrt(n)


def argmax(values):
    return max(range(len(values)), key=lambda i: (values[i], -i))


def main(directory, path, result):
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    with open(path, encoding="utf-8") as stream:
        tasks = [json.loads(line) for line in stream if line.strip()]
    with open(result, encoding="utf-8") as stream:
        found = json.load(stream)
    worst, right, right_norm, n_choices, n_tokens = 0, [], [], 0, 0
    assert found["tasks"] == len(found["per_task"]) == len(tasks)
    for task, mine in zip(tasks, found["per_task"]):
        theirs = []
        for choice in task["choices"]:
            before, own = pair(tokenizer, task["context"], choice)
            theirs.append(log_prob(model, before, own))
            n_tokens += len(own)
        assert len(mine["log_probs"]) == len(theirs), mine
        apart = max(abs(a - b) for a, b in zip(mine["log_probs"], theirs))
        if not apart <= TOLERANCE:
            print(f"line {mine['line']}: {mine['log_probs']}, by transformers {theirs}")
        worst = apart if apart > worst or math.isnan(apart) else worst    # max() forgets a NaN
        best = argmax(theirs), argmax([p / len(c) for p, c in zip(theirs, task["choices"])])
        assert (mine["choice"], mine["choice_norm"]) == best and mine["answer"] == task["answer"], (mine, theirs)
        right.append(best[0] == task["answer"])
        right_norm.append(best[1] == task["answer"])
        n_choices += len(theirs)
    assert (found["choices"], found["tokens"]) == (n_choices, n_tokens), (found["choices"], found["tokens"], n_tokens)
    for key, outcome in ("acc", right), ("acc_norm", right_norm):
        expected = mean_and_error(outcome)
        assert all(abs(a - b) < 1e-12 for a, b in zip((found[key], found[key + "_se"]), expected)), (key, expected)
    print(f"{len(tasks)} tasks, {n_choices} choices, {n_tokens} tokens: log-probabilities at most {worst:.2e} apart, "
          f"acc {found['acc']:.4f} and acc_norm {found['acc_norm']:.4f} by both")
    sys.exit(0 if worst <= TOLERANCE else f"more than {TOLERANCE} apart")


main(*sys.argv[1:])
