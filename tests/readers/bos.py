"""Compares perplexities of transformers and `calm eval` with BOS in every window.

    bos.py TEXT SEQLEN WINDOWS MODEL REPORT [MODEL REPORT ...]

REPORT: the output of `calm eval --json` for MODEL on that text.  Each window has the tokens that the tokenizer's template puts first,
then the next tokens of the text without special tokens; the first token is not predicted.  Prints one line per model; exit status 1
unless the negative log-likelihoods agree.

Both compute in float32, in different orders: 3e-5 of a logit (fixtures/README.md), and a mean negative log-likelihood differs by no
more.  The script also prints the figure without the first token, which differs by far more if that token is massive."""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
import transformers
from tokenizers import Tokenizer

LIMIT = 3e-5


def nll(model, windows):
    total, count = 0.0, 0
    with torch.no_grad():
        for ids in windows:
            logits = model(torch.tensor([ids])).logits[0].float()
            logp = torch.log_softmax(logits[:-1].double(), -1)
            total -= logp.gather(1, torch.tensor(ids[1:])[:, None]).sum().item()
            count += len(ids) - 1
    return total / count


def main():
    text, seqlen, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(text, encoding="utf-8") as stream:
        words = stream.read()
    failed = 0
    for folder, report in zip(sys.argv[4::2], sys.argv[5::2]):
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        plain = tokenizer.encode(words, add_special_tokens=False).ids
        whole = tokenizer.encode(words).ids
        first = next(i for i in range(len(whole)) if whole[i:i + 8] == plain[:8])
        head = whole[:first]
        step = seqlen - len(head)
        begun = [head + plain[w * step:(w + 1) * step] for w in range(n)]
        without = [plain[w * seqlen:(w + 1) * seqlen] for w in range(n)]
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        theirs, bare = nll(model, begun), nll(model, without)
        with open(report, encoding="utf-8") as stream:
            ours = json.load(stream)["nll"]
        same = len(head) > 0 and abs(theirs - ours) < LIMIT
        print(f"{os.path.basename(os.path.normpath(folder))}: {'same' if same else 'DIFFERENT'}, nll {ours:.6f} by calm, {theirs:.6f} by "
              f"transformers, without {head} {bare:.6f}", flush=True)
        failed += not same
    sys.stdout.flush()
    os._exit(1 if failed else 0)


main()
