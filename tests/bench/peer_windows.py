"""calm's calibration windows for other tools: the first ones of a text, with special tokens at the beginning (BOS).

Environment variable WINDOWS: how many; 128 by default."""

import os

SEQLEN, WINDOWS = 512, int(os.environ.get("WINDOWS", "128"))


def windows(tokenizer, text):
    """Lists of SEQLEN token ids."""
    ids, head = tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer("")["input_ids"]
    step = SEQLEN - len(head)
    return [head + ids[i * step : (i + 1) * step] for i in range(WINDOWS)]
