"""Compares the tokens of `calm generate --json` with transformers' greedy generation.

    generate.py MODEL PROMPT REPORT [MODEL PROMPT REPORT ...]

PROMPT "": the ids of the fixtures below.  Exit status 1 if a token differs, unless transformers' logits of the two tokens are
closer than another order of float32 sums explains (3e-5 of the largest logit each, fixtures/README.md)."""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
import transformers

IDS = [5, 17, 3, 40, 11, 8, 25]
LIMIT = 6e-5


def main():
    failed = 0
    for folder, prompt, report in zip(sys.argv[1::3], sys.argv[2::3], sys.argv[3::3]):
        with open(report, encoding="utf-8") as stream:
            ours = json.load(stream)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        model.set_experts_implementation("eager")    # the default needs rows of experts that are multiples of 16 bytes
        ids = transformers.AutoTokenizer.from_pretrained(folder)(prompt)["input_ids"] if prompt else IDS
        n = len(ours["ids"])
        with torch.no_grad():
            theirs = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=n, min_new_tokens=n,
                                    attention_mask=torch.ones(1, len(ids)), pad_token_id=0, eos_token_id=-1)[0, len(ids):].tolist()
        equal = next((i for i in range(n) if theirs[i] != ours["ids"][i]), n)
        note = ""
        if equal < n:
            with torch.no_grad():
                logits = model(torch.tensor([ids + theirs[:equal]])).logits[0, -1].double()
            gap = (logits[theirs[equal]] - logits[ours["ids"][equal]]).item() / max(1, logits.abs().max().item())
            note = f", then logits that differ by {gap:.1e} of the largest"
            failed += gap > LIMIT
        failed += ours["prompt_tokens"] != len(ids) or n == 0
        print(f"{os.path.basename(folder)}: {equal} of {n} tokens equal{note}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
