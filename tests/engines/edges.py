"""Tests whether the last bit of arithmetic explains an engine's difference at quantized activations.

    edges.py WINDOWS ENGINE LOGITS OTHER

WINDOWS: JSON lines {"ids": [...]}.  ENGINE: the engine's nats per predicted token, one a line.  LOGITS and OTHER: `calm
forward`'s logits of the same windows, under two families of BLAS kernels, which add in different orders.

If a quotient is on the edge of two levels, its last bit decides, and from that token on a sequence differs by as much as
the rounding itself does.  Such differences have no preferred sign and are as large between two kernels of calm as between calm and
the engine; a different rule moves every token.  So differences count as edges if their root mean square is at most twice that
between calm's kernels, and their mean within four standard errors of 0.  Prints both; exit status 0: edges.
"""

import json
import math
import sys

import numpy
from safetensors.numpy import load_file


def losses(path, windows):
    """Returns nats per predicted token from logits [S, T, vocabulary]."""
    out = []
    for ids, logits in zip(windows, load_file(path)["logits"].astype(numpy.float64)):
        rows = logits[: len(ids) - 1]
        top = rows.max(axis=1)
        out.append(top + numpy.log(numpy.exp(rows - top[:, None]).sum(axis=1)) - rows[range(len(rows)), ids[1:]])
    return numpy.concatenate(out)


def main():
    windows = [json.loads(line)["ids"] for line in open(sys.argv[1], encoding="utf-8")]
    ours, other = (losses(path, windows) for path in sys.argv[3:5])
    theirs = numpy.loadtxt(sys.argv[2])
    difference, kernels = theirs - ours, other - ours
    error, rms = math.sqrt((difference**2).mean()), math.sqrt((kernels**2).mean())
    edges = error <= 2 * rms and abs(difference.mean()) <= 4 * error / math.sqrt(len(ours))
    print(f"a token differs by {error:.2g}, under two kernels of calm by {rms:.2g}")
    sys.exit(0 if edges else 1)


main()
