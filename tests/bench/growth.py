"""Fits lines and exponents to the table of growth.sh; prints a table in Markdown.

    growth.py docs/evidence/growth.csv

For each factor and column: the line a + b value of least relative squares with its largest residual, and the exponent between
the two largest values, log(y2 / y1) / log(x2 / x1).  Needs only Python's standard library."""

import csv
import math
import sys

COLUMNS = (("cpu_seconds", "s"), ("peak_mib", "MiB"), ("store_mib", "MiB"))


def line(xs, ys):
    """a, b of a + b x with the least squares of relative residuals."""
    weights = [1 / y**2 for y in ys]
    total = sum(weights)
    x0 = sum(w * x for w, x in zip(weights, xs)) / total
    y0 = sum(w * y for w, y in zip(weights, ys)) / total
    b = sum(w * (x - x0) * (y - y0) for w, x, y in zip(weights, xs, ys)) / sum(w * (x - x0) ** 2 for w, x in zip(weights, xs))
    return y0 - b * x0, b


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    print("| grows | from, to | column | measured | line | off by at most | last exponent |\n|---|---|---|---|---|---|---|")
    for factor in dict.fromkeys(row["factor"] for row in rows):
        of = [row for row in rows if row["factor"] == factor]
        xs = [float(row["value"]) for row in of]
        for column, unit in COLUMNS:
            ys = [float(row[column]) for row in of]
            a, b = line(xs, ys)
            off = max(abs(a + b * x - y) / y for x, y in zip(xs, ys))
            exponent = math.log(ys[-1] / ys[-2]) / math.log(xs[-1] / xs[-2])
            print(f"| {factor} | {xs[0]:g}, {xs[-1]:g} | {column.split('_')[0]} | {ys[0]:g} to {ys[-1]:g} {unit} "
                  f"| {a:.3g} + {b:.3g} n | {off:.0%} | {exponent:.2f} |")


if __name__ == "__main__":
    main()
