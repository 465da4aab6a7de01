"""Shared by the engines' drivers: windows of tokens, the loss over them, and the line that a driver prints.

A driver is run as `python DRIVER MODEL WINDOWS [LOSSES]` (WINDOWS: JSON lines {"ids": [...]}, as `calm eval --tokens`
reads).  It prints {"engine": name and version, "nll": nats per predicted token} and exits 0, or {"error": text} and exits 1;
LOSSES gets the nats of each predicted token, one a line.  With --version it prints the engine's name and version alone.
`python engine.py MODEL TEXT COUNT LENGTH` prints such windows of a text, without special tokens.
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")


def answer(status, **fields):
    """Prints the line and ends the process without destructors, in which native libraries may crash."""
    print(json.dumps(fields), flush=True)
    os._exit(status)


def need(package, least):
    """Returns the version of a package; fails if it is missing or below `least` ("0.32")."""
    import importlib.metadata

    def numbers(text):
        return [int(part) if part.isdigit() else 0 for part in text.split(".")[:3]]

    found = importlib.metadata.version(package)
    if numbers(found) < numbers(least):
        raise ImportError(f"{package} {found}, expected {least} or later")
    return found


def read(path):
    """Reads windows [n][T] of token ids."""
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line)["ids"] for line in stream]


def losses_of_logits(logits, ids):
    """Returns -log p(ids[i] | ids[:i]) of a window, i >= 1, from logits [T, vocabulary], in double."""
    import torch

    rows = torch.log_softmax(logits[:-1].double(), -1)
    return (-rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]).tolist()


def losses(logits, windows):
    """Returns nats per predicted token; `logits` maps a window to float logits [T, vocabulary]."""
    return [nats for ids in windows for nats in losses_of_logits(logits(ids), ids)]


def torch_logits(model):
    """Returns a function from a window to float logits [T, vocabulary] of a transformers model."""
    import torch

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0].float()

    return logits


def need_quantized(modules, is_quantized):
    """Fails if the model has no quantized module: then the library loaded it as something else."""
    if not any(map(is_quantized, modules)):
        raise ValueError("no module was loaded as quantized")


def drive(version, measure):
    """Runs a driver: `version()` names the engine, `measure(model, windows)` returns nats per predicted token."""
    try:
        if sys.argv[1:] == ["--version"]:
            answer(0, engine=version())
        model, path = sys.argv[1:3]
        nats = measure(model, read(path))
        if len(sys.argv) > 3:
            with open(sys.argv[3], "w", encoding="utf-8") as stream:
                stream.writelines(f"{value!r}\n" for value in nats)
        answer(0, engine=version(), nll=sum(nats) / len(nats))
    except BaseException as error:  # an engine may raise what is no Exception
        answer(1, error=f"{type(error).__name__}: {error}".replace("|", "/").replace("\n", " ")[:300])


def cut(model, text, count, length):
    """Prints `count` windows of `length` tokens from the start of a text."""
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
