"""Draws KL against file bytes, one point per file, as SVG on the standard output.

    rate.py DOCS/EVIDENCE > rate.svg
    rate.py --encoder DOCS/EVIDENCE > rate_encoder.svg      all-MiniLM-L6-v2 by rate_encoder.csv: 1 - cosine in place of KL
    rate.py --check DOCS/EVIDENCE       prints calm's point, of the same format and at most as many bytes, that
                                        beats each point of another tool; status 1: one is not beaten

Reads rate.csv (rate.sh), rate_peers.csv (rate_peers.sh; auto-round's row is auto_round.sh's), gguf_types.csv and gguf_sizes.csv of the folder:
all of the bundled model, on the same windows (auto-round and calm's learned blocks: four more). KL is on a logarithmic axis; the line is the lower
hull of calm's points in the picture. Needs only Python's standard library."""

import csv
import math
import sys

from picture import HEIGHT, LEFT, TOP, WIDTH, begin, dot, end

KINDS = {
    "calm": ("#1f6feb", "calm"),
    "rounded": ("#8c8c8c", "rounded to nearest"),
    "llama-quantize": ("#d1570c", "llama-quantize"),
    "llama-quantize, importance matrix": ("#8f3a06", "the same, importance matrix"),
    "mlx-lm": ("#1a7f37", "mlx-lm"),
    "llm-compressor": ("#8250df", "llm-compressor"),
    "auto-round": ("#bf3989", "auto-round"),
}


def compared(row):
    """Bytes that --check compares: a GGUF file's; of safetensors files those of their tensors, since each tool has its own keys in headers."""
    return int(row.get("tensors") or row["bytes"])


def read(folder, name):
    with open(f"{folder}/{name}", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def own(folder, name):
    """calm's files of a table that rate.sh wrote."""
    kinds = {"rtn": "rounded"}
    return [
        (kinds.get(row["how"], row["how"] if row["how"] in KINDS else "calm"), f"{row['format']} {row['scheme']}",
         int(row["bytes"]), float(row["kl"]), compared(row))
        for row in read(folder, name)
    ]


def points(folder):
    """(kind, format and scheme, bytes, KL, bytes to compare) of each file."""
    out = own(folder, "rate.csv")
    for row in read(folder, "gguf_types.csv"):
        kind = "calm" if row["tool"] == "calm" else "llama-quantize, importance matrix"
        out.append((kind, f"gguf {row['type']}", int(row["bytes"]), float(row["kl"]), compared(row)))
    for row in read(folder, "rate_peers.csv"):
        kind = next(k for k in KINDS if row["tool"].startswith(k))
        out.append((kind, f"{row['format']} {row['scheme']}", int(row["bytes"]), float(row["kl"]), compared(row)))
    for row in read(folder, "gguf_sizes.csv"):
        out.append(("calm", f"gguf --size {row['size']}", int(row["bytes"]), float(row["kl"]), compared(row)))
    return out


def hull(those):
    """The lower convex hull of (x, y), from the least x on, as far as y falls."""
    line = []
    for at in sorted(set(those)):
        while len(line) > 1 and (line[-1][0] - line[-2][0]) * (at[1] - line[-2][1]) <= (line[-1][1] - line[-2][1]) * (
            at[0] - line[-2][0]
        ):
            line.pop()
        if not line or at[1] < line[-1][1]:
            line.append(at)
    return line


def check(found):
    """Print the best point of calm, of the same format and at most the same bytes, next to each point of another tool."""
    beaten = True
    for kind, label, _, loss, size in found:
        if kind == "calm":
            continue
        own_files = [p for p in found if p[0] == "calm" and p[1].split()[0] == label.split()[0] and p[4] <= size]
        best = min(own_files, key=lambda p: p[3], default=None)
        better = best is not None and best[3] < loss
        beaten &= better
        print(f"{'' if better else 'NOT BEATEN '}{kind}, {label}: {size} bytes, {loss:.5f};"
              f" calm {f'{best[1]}: {best[4]}, {best[3]:.5f}' if best else 'has no such file'}")
    return beaten


def main():
    if sys.argv[1] == "--check":
        sys.exit(not check(points(sys.argv[2])))
    encoder = sys.argv[1] == "--encoder"
    found = own(sys.argv[2], "rate_encoder.csv") if encoder else points(sys.argv[1])
    shown = {kind: KINDS[kind] for kind in KINDS if not encoder or any(p[0] == kind for p in found)}
    loss_name = "1 - cosine" if encoder else "KL"
    sizes, losses = [p[2] / 1e6 for p in found], [math.log10(p[3]) for p in found]
    least, most = math.floor(min(sizes) * 5) / 5, math.ceil(max(sizes) * 5) / 5
    bottom, top = math.floor(min(losses)), math.ceil(max(losses))

    def x(megabytes):
        return LEFT + (megabytes - least) / (most - least) * (WIDTH - LEFT - 16)

    def y(loss):
        return TOP + (top - loss) / (top - bottom) * (HEIGHT - TOP - 48)

    out = begin(f"{loss_name} to the float model against bytes of the file, {'all-MiniLM-L6-v2' if encoder else 'bundled model'}")
    for k in range(bottom, top + 1):
        out.append(f'<path d="M{LEFT} {y(k):.1f}H{WIDTH - 16}" stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(k) + 4:.1f}" text-anchor="end">{10.0**k:g}</text>')
    ticks = round((most - least) * 5)
    for i in range(0, ticks + 1, max(1, ticks // 8)):
        out.append(f'<text x="{x(least + i / 5):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{least + i / 5:.1f} MB</text>')
    line = hull([(size, loss) for p, size, loss in zip(found, sizes, losses) if p[0] == "calm"])
    out.append(
        f'<polyline fill="none" stroke="{KINDS["calm"][0]}" stroke-opacity=".5" points="'
        + " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        + '"/>'
    )
    for (kind, label, size, loss, _), a, b in zip(found, sizes, losses):
        out.append(dot(x(a), y(b), KINDS[kind][0], f"{label}, {KINDS[kind][1]}: {size} bytes, {loss_name} {loss:.5f}"))
    print("\n".join(out + end(shown.values(), 22, 5.6)))


main()
