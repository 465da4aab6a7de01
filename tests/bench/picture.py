"""Shared parts of SVG pictures of points (rate.py, roofline.py). Needs only Python's standard library."""

WIDTH, HEIGHT, LEFT, TOP = 720, 460, 64, 24


def begin(title):
    """The first lines: an empty picture."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{title}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]


def dot(x, y, colour, title):
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{title}</title></circle>'


def end(entries, gap, letter):
    """The last lines: (colour, name) in a row at the bottom, each as wide as `gap` and `letter` for each letter."""
    out, at = [], 12
    for colour, name in entries:
        out.append(f'<circle cx="{at}" cy="{HEIGHT - 10}" r="4" fill="{colour}"/>')
        out.append(f'<text x="{at + 7}" y="{HEIGHT - 6}" font-size="11">{name}</text>')
        at += gap + letter * len(name)
    return [*out, "</svg>"]
