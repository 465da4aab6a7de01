"""What the drivers of the engines share: windows of tokens, the loss over them, and the one line that they print.

A driver is run as `python DRIVER MODEL WINDOWS` (WINDOWS: JSON lines {"ids": [...]}, as `calm eval --tokens` reads).
It prints {"engine": name and version, "nll": nats per predicted token} and exits 0, or {"error": text} and exits 1.
`python engine.py MODEL TEXT COUNT LENGTH` prints such windows of a text, without special tokens.
`python engine.py` of a driver with --version prints the engine's name and version alone.
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def answer(status, **fields):
    """Print the line and leave.  Native libraries may crash in their destructors, so they are not run."""
    print(json.dumps(fields), flush=True)
    os._exit(status)


def read(path):
    """Windows [n][T] of token ids."""
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line)["ids"] for line in stream]


def nll_of_logits(logits, ids):
    """Sum over a window of -log p(ids[i] | ids[:i]), i >= 1, from logits [T, vocabulary]; summed in double."""
    import torch

    rows = torch.log_softmax(logits[:-1].double(), -1)
    return -rows.gather(1, torch.tensor(ids[1:])[:, None]).sum().item()


def mean_nll(logits, windows):
    """Nats per predicted token; `logits` maps a window to float logits [T, vocabulary]."""
    total = sum(nll_of_logits(logits(ids), ids) for ids in windows)
    return total / sum(len(ids) - 1 for ids in windows)


def torch_logits(model):
    """Map a window to float logits [T, vocabulary] of a model of transformers."""
    import torch

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].float()

    return logits


def need_quantized(modules, is_quantized):
    """A model without a quantized module was loaded as something else."""
    if not any(map(is_quantized, modules)):
        raise ValueError("no module was loaded as quantized")


def drive(version, measure):
    """Run a driver: `version()` names the engine, `measure(model, windows)` returns nats per token."""
    try:
        if sys.argv[1:] == ["--version"]:
            answer(0, engine=version())
        model, path = sys.argv[1:]
        answer(0, engine=version(), nll=measure(model, read(path)))
    except BaseException as error:  # an engine may raise what is no Exception
        answer(1, error=f"{type(error).__name__}: {error}".replace("|", "/").replace("\n", " ")[:300])


def cut(model, text, count, length):
    """Print `count` windows of `length` tokens from the start of a text."""
    from tokenizers import Tokenizer

    with open(text, encoding="utf-8") as stream:
        sample = stream.read(count * length * 16)
    ids = Tokenizer.from_file(os.path.join(model, "tokenizer.json")).encode(sample, add_special_tokens=False).ids
    for i in range(count):
        window = ids[i * length : (i + 1) * length]
        if len(window) < length:
            sys.exit(f"{text}: {len(ids)} tokens, expected at least {count * length}")
        print(json.dumps({"ids": window}))


if __name__ == "__main__":
    cut(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
