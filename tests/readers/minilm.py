"""Compares all-MiniLM-L6-v2 with transformers, for minilm.sh.

    minilm.py pad MODEL TEXT IDS PADDED        TEXT: JSON lines {"text": ...}; IDS: what `calm tokenize` makes of them.
                                               Compares the ids with transformers', and writes them with padding and masks
    minilm.py compare MODEL PADDED STATES      STATES: last_hidden_state as `calm forward` writes it

2e-4 is the tolerance of ../shared/fixtures for float32: both compute the same sums in different orders.
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from safetensors.torch import load_file

TOLERANCE = 2e-4
PAD_ID = 0


def read_lines(path):
    with open(path, encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def pad(model, text, ids, padded):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)    # the file asks for padding and cutting to 128
    ours = [line["ids"] for line in read_lines(ids)]
    for number, (line, found) in enumerate(zip(read_lines(text), ours, strict=True)):
        if found != tokenizer(line["text"], padding=False, truncation=False)["input_ids"]:
            sys.exit(f"line {number + 1}: other ids than transformers'")
    longest = max(map(len, ours))
    with open(padded, "w", encoding="utf-8") as stream:
        for found in ours:
            empty = longest - len(found)
            json.dump({"ids": found + [PAD_ID] * empty, "mask": [1] * len(found) + [0] * empty}, stream)
            stream.write("\n")


def compare(model, padded, states):
    lines = read_lines(padded)
    ids, mask = (torch.tensor([line[key] for line in lines]) for key in ("ids", "mask"))
    reference = transformers.AutoModel.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = reference(input_ids=ids, attention_mask=mask).last_hidden_state
    ours = load_file(states)["last_hidden_state"]
    error = (theirs - ours).abs()[mask.bool()].max().item()
    print(f"last_hidden_state: {len(lines)} sentences of {int(mask.sum())} tokens and {int((1 - mask).sum())} of padding, at most "
          f"{error:.1e} from transformers' (values up to {theirs.abs().max().item():.1f})", flush=True)
    return error <= TOLERANCE


if sys.argv[1] == "pad":
    pad(*sys.argv[2:])
else:
    os._exit(0 if compare(*sys.argv[2:]) else 1)
