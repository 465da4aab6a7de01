"""Draws the rates of `calm bench kernels` under the roofs of the machine, as SVG on the standard output.

    roofline.py --table RUN.json... > int_amx.csv         rows from outputs of `calm bench kernels --json` on one machine; the median
                                                          of each figure over runs of the same shape
    roofline.py DOCS/EVIDENCE > int_kernels.svg           from int_kernels.csv of the folder

A point is a product y [m, n] = x [m, k] W^T: its rate against its operations per byte of operands and result, each byte counted once (weights as
packed, activations of one byte, float32 results; of sgemm all float32). The roofs are the rate of the instructions in registers, and the rate
of reading memory; a weight in a cache goes above the slope. Needs only Python's standard library."""

import csv
import json
import math
import sys

from picture import HEIGHT, LEFT, TOP, WIDTH, begin, dot, end

BOTTOM = 64
KINDS = {"w8a8": ("#1f6feb", 8), "w4a8": ("#1a7f37", 4), "w4a8_g128": ("#d1570c", 4.25), "sgemm": ("#8c8c8c", 32)}
COLUMNS = "m,k,n,kind,instructions,gops,share_of_peak,ratio_to_sgemm,ratio_to_float,weight_gb_per_s,read_gb_per_s"


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def table(files):
    """Rows of the CSV; a figure that was steady in no run is empty, and without a rate the row is left out."""
    rows, reads = {}, []
    for name in files:
        with open(name, encoding="utf-8") as stream:
            run = json.load(stream)
        reads.append(run["read_bytes_per_second"] / 1e9)
        for row in run["shapes"]:
            rows.setdefault((row["m"], row["k"], row["n"], row["kind"], run["simd"]), []).append(row)
    print(COLUMNS)
    for key, found in sorted(rows.items(), key=lambda item: (item[0][1] * item[0][2], item[0][1], item[0][0])):
        texts = []
        for figure, digits in (("gops", 1), ("share_of_peak", 3), ("ratio", 2), ("ratio_best", 2), ("weight_gb", 1)):
            values = [row[figure] for row in found if row[figure] is not None]
            texts.append(f"{median(values):.{digits}f}" if values else "")
        if texts[0]:
            print(",".join([*map(str, key), *texts, f"{median(reads):.1f}"]))


def intensity(row):
    """Operations per byte."""
    m, k, n = int(row["m"]), int(row["k"]), int(row["n"])
    bits = KINDS[row["kind"]][1]
    rows = 4 * m * k if row["kind"] == "sgemm" else m * k
    return 2 * m * k * n / (k * n * bits / 8 + rows + 4 * m * n)


def main():
    if sys.argv[1] == "--table":
        table(sys.argv[2:])
        return
    with open(f"{sys.argv[1]}/int_kernels.csv", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    peak = median([float(row["gops"]) / float(row["share_of_peak"]) for row in rows if row["share_of_peak"]])
    read = median([float(row["read_gb_per_s"]) for row in rows])
    points = [(row, intensity(row), float(row["gops"])) for row in rows]
    left, right = (f(math.log10(g(p[1] for p in points))) for f, g in ((math.floor, min), (math.ceil, max)))
    bottom = math.floor(math.log10(min(p[2] for p in points)))
    top = math.ceil(math.log10(max(peak, max(p[2] for p in points))))

    def x(value):
        return LEFT + (math.log10(value) - left) / (right - left) * (WIDTH - LEFT - 16)

    def y(value):
        return TOP + (top - math.log10(value)) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    ridge = peak / read
    start = max(10**left, 10**bottom / read)
    out = begin("Rates of products of whole numbers under the roofs of the machine")
    for power in range(left, right + 1):
        out.append(f'<line x1="{x(10**power):.1f}" x2="{x(10**power):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e5e5e5"/>')
        out.append(f'<text x="{x(10**power):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**power:g}</text>')
    for power in range(bottom, top + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(10**power):.1f}" y2="{y(10**power):.1f}" stroke="#e5e5e5"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(10**power) + 4:.1f}" text-anchor="end">{10**power:g}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - BOTTOM + 32}" text-anchor="middle">operations per byte</text>')
    out.append(f'<text x="14" y="{HEIGHT / 2 - 20}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2 - 20})">Gop/s</text>')
    corners = ((start, start * read), (ridge, peak), (10**right, peak))
    out.append('<polyline fill="none" stroke="#333333" points="' + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners) + '"/>')
    out.append(f'<text x="{x(10**right):.1f}" y="{y(peak) - 6:.1f}" text-anchor="end" font-size="11">{peak:.0f} Gop/s in registers</text>')
    out.append(f'<text x="{x(ridge / 3) - 8:.1f}" y="{y(peak / 3):.1f}" text-anchor="end" font-size="11">{read:.1f} GB/s of memory</text>')
    for row, a, b in points:
        title = f"{row['kind']}, m {row['m']}, k {row['k']}, n {row['n']}: {b:.1f} Gop/s, {a:.1f} operations per byte"
        out.append(dot(x(a), y(b), KINDS[row["kind"]][0], title))
    shown = [(KINDS[kind][0], kind) for kind in KINDS if any(p[0]["kind"] == kind for p in points)]
    print("\n".join(out + end(shown, 30, 6)))


main()
