"""Computes standard errors of a mean KL by articles instead of windows: block bootstrap over the articles of WikiText.

    articles.py STORE TOKENIZER TEXT

STORE: the store of a run that evaluated the first windows of TEXT; the script takes its last evaluation with a KL.  A window belongs to
the article of its first token (lines ` = Title = `).  Windows of one article are alike, so errors over windows may be too small: the
script draws articles with replacement, each with its windows.  Prints windows, articles, mean, and both standard errors."""

import random
import re
import sqlite3
import sys

from tokenizers import Tokenizer

DRAWS = 10000


def error_of(blocks, seed):
    """Standard deviation of sum KL / sum tokens over draws of the blocks [(kl, tokens)]."""
    draw = random.Random(seed)
    means = []
    for _ in range(DRAWS):
        chosen = draw.choices(blocks, k=len(blocks))
        means.append(sum(kl for kl, _ in chosen) / sum(tokens for _, tokens in chosen))
    mean = sum(means) / DRAWS
    return (sum((value - mean) ** 2 for value in means) / (DRAWS - 1)) ** 0.5


def main():
    store, tokenizer, path = sys.argv[1:]
    db = sqlite3.connect(store)
    evaluation, size, subject = db.execute(
        "SELECT e.id, e.window_tokens, e.subject FROM evaluation e JOIN run_evaluation r ON r.evaluation_id = e.id "
        "WHERE r.role = 'test' AND e.kl IS NOT NULL AND e.subject <> 'float' ORDER BY e.id DESC LIMIT 1").fetchone()
    windows = db.execute("SELECT kl, tokens FROM evaluation_window WHERE evaluation_id = ? ORDER BY number",
                         (evaluation,)).fetchall()
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    titles = [match.start() for match in re.finditer(r"^ = [^=\n]+ = $", text, re.MULTILINE)]
    offsets = Tokenizer.from_file(tokenizer).encode(text, add_special_tokens=False).offsets
    articles = {}
    for number, (kl, tokens) in enumerate(windows):
        at = offsets[number * size][0]
        block = articles.setdefault(sum(title <= at for title in titles), [0.0, 0])
        block[0] += kl
        block[1] += tokens
    blocks = [tuple(block) for block in articles.values()]
    mean = sum(kl for kl, _ in windows) / sum(tokens for _, tokens in windows)
    print(f"{subject}: {len(windows)} windows of {len(blocks)} articles, KL {mean:.5f}, standard error {error_of(windows, 1):.5f} by windows, "
          f"{error_of(blocks, 2):.5f} by articles")


main()
