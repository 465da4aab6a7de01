"""Measures the processor time per token of `calm generate`; CSV on the standard output.

    decode.py CALM TURNS TOKENS NAME=MODEL... > decode.csv

Models take turns on one thread; the least of TURNS counts, without the first two tokens. Times are CPU times of the process, which other
programs lengthen only by their memory traffic. `ratio`: tokens per second relative to the first model. Needs only Python's
standard library, on Linux."""

import json
import os
import subprocess
import sys
import tempfile

COLUMNS = "model,token_bytes,milliseconds,tokens_per_second,ratio"


def command(calm, model, ids, n, *more):
    return [calm, "generate", "--quiet", "--model", model, "--tokens", ids, "--max-tokens", str(n), "--ignore-eos", "--threads", "1", *more]


def used(process):
    """Nanoseconds of processor time so far."""
    with open(f"/proc/{process.pid}/schedstat", encoding="ascii") as stream:
        return int(stream.read().split()[0])


def time_of(calm, model, ids, n):
    """Seconds of a token: ids are printed as they are chosen, a space before each but the first."""
    with subprocess.Popen(command(calm, model, ids, n), stdout=subprocess.PIPE, bufsize=0) as process:
        marks, spaces = [], 0
        while part := os.read(process.stdout.fileno(), 4096):
            spaces += part.count(b" ")
            marks.append((spaces, used(process)))
            if part.endswith(b"\n"):
                break
    if process.returncode != 0:
        sys.exit(f"decode.py: {model}: calm generate failed")
    (first, begun), (last, ended) = marks[1], marks[-1]
    return (ended - begun) / (last - first) * 1e-9


def main():
    calm, turns, n, models = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [name.split("=", 1) for name in sys.argv[4:]]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write('{"ids": [2, 3, 5, 7]}\n')
        file.flush()
        times = {name: [] for name, _ in models}
        for _ in range(turns):
            for name, model in models:
                times[name].append(time_of(calm, model, file.name, n))
        print(COLUMNS)
        base = min(times[models[0][0]])
        for name, model in models:
            told = json.loads(subprocess.run(command(calm, model, file.name, 1, "--json"), stdout=subprocess.PIPE, check=True).stdout)
            least = min(times[name])
            print(f"{name},{told['token_bytes']:.0f},{1e3 * least:.2f},{1 / least:.1f},{base / least:.2f}")


main()
