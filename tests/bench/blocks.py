"""Compares the time of a block of each kind in calm and in transformers, on the same weights and tokens.

    blocks.py CALM FIXTURES WORK [--tokens N] [--only FAMILY...] > blocks.csv

CALM: the program.  FIXTURES: the folder with make_families.py.  WORK: a folder for one checkpoint at a time.  blocks.json has
the shapes: published sizes, two blocks or four, only some of the experts, random weights.

Both compute in float32 on one thread.  Time is processor time of a window of N tokens (512), divided by the number of blocks: for
calm the difference between runs of ten and of two windows, which excludes reading the model; for transformers
the least of five forward passes.  The head of these models has at most 400 rows.
"""

import argparse
import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
WINDOWS = (2, 10)


def make(row, opts):
    params = os.path.join(opts.work, "params.json")
    with open(params, "w") as file:
        json.dump({"configs": {row["family"]: {**row["config"], "max_position_embeddings": 4096}}}, file)
    subprocess.run(
        [sys.executable, f"{opts.fixtures}/make_families.py", "--out", opts.work, "--params", params, "--only", row["family"]],
        check=True, stdout=sys.stderr)
    return os.path.join(opts.work, row["family"])


def spent():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def calm_seconds(opts, folder, vocabulary):
    """Seconds per window: the least of three differences."""
    times = []
    for _ in range(3):
        per_run = []
        for windows in WINDOWS:
            tokens = os.path.join(opts.work, "tokens.jsonl")
            with open(tokens, "w") as file:
                for w in range(windows):
                    ids = [(7 * i * (w + 3) + w) % vocabulary for i in range(opts.tokens)]
                    file.write(json.dumps({"ids": ids}) + "\n")
            before = spent()
            subprocess.run([opts.calm, "forward", "--model", folder, "--tokens", tokens, "--threads", "1", "--quiet",
                            "--output", os.path.join(opts.work, "logits.safetensors")], check=True)
            per_run.append(spent() - before)
        times.append((per_run[1] - per_run[0]) / (WINDOWS[1] - WINDOWS[0]))
    return min(times)


def transformers_seconds(opts, folder, config):
    import torch
    import transformers

    torch.set_num_threads(1)
    class_ = getattr(transformers, config["architectures"][0])
    model = class_.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor([[(21 * i) % config["vocab_size"] for i in range(opts.tokens)]])
    times = []
    with torch.no_grad():
        for _ in range(6):
            began = time.process_time()
            model(input_ids=ids, use_cache=False)
            times.append(time.process_time() - began)
    blocks = sum(p.numel() for name, p in model.named_parameters() if ".layers." in name)
    return min(times[1:]), blocks


def n_blocks(config):
    return config.get("num_hidden_layers") or len(config["layers_block_type"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calm")
    parser.add_argument("fixtures")
    parser.add_argument("work")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--only", nargs="*")
    opts = parser.parse_args()
    os.makedirs(opts.work, exist_ok=True)
    with open(os.path.join(HERE, "blocks.json")) as file:
        rows = json.load(file)
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(["kind", "shape", "parameters_per_block", "tokens", "calm_ms", "transformers_ms", "ratio"])
    for row in rows:
        if opts.only and row["family"] not in opts.only:
            continue
        folder = make(row, opts)
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
        n = n_blocks(config)
        ours = calm_seconds(opts, folder, config["vocab_size"])
        theirs, parameters = transformers_seconds(opts, folder, config)
        table.writerow([row["kind"], row["like"], parameters // n, opts.tokens, f"{1e3 * ours / n:.1f}", f"{1e3 * theirs / n:.1f}",
                        f"{ours / theirs:.2f}"])
        sys.stdout.flush()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
