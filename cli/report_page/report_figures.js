/* Figures: SVG drawn at the width of their place, and again when the width changes. */
let figureNumber = 0;

/* draw(width) returns an svg; `words` describe it for screen readers; `alternative` is a table of its figures. */
function figure(title, reading, words, draw, alternative, extra) {
  const place = el("div", {class: "plot"}), id = "figure-" + (++figureNumber);
  const box = el("figure", {id: id}, el("figcaption", {}, el("h3", {}, title)), read(reading), extra, place,
    alternative ? el("details", {}, el("summary", {}, "The same as a table"), alternative) : null);
  const plot = {width: 0, redraw(force) {
    const width = widthOf(place);
    if (!width || (width === plot.width && !force)) return;
    plot.width = width;
    const picture = draw(width);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", title + ". " + (typeof words === "function" ? words() : words));
    place.replaceChildren(picture);
  }};
  plots.push(plot);
  box.redraw = () => plot.redraw(true);
  return box;
}
function canvas(width, height) { return svg("svg", {width: width, height: height, viewBox: "0 0 " + width + " " + height}); }

/* ---- scales and axes ---- */

function linear(from, to, a, b) {
  const span = to - from || 1, scale = value => a + (value - from) / span * (b - a);
  const rough = span / 7, power = Math.pow(10, Math.floor(Math.log10(Math.abs(rough) || 1)));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= rough) || power;
  scale.ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) scale.ticks.push(Number((i * step).toPrecision(12)));
  return scale;
}
function logarithmic(from, to, a, b) {
  const low = Math.log10(from), span = Math.log10(to) - low || 1;
  const scale = value => a + (Math.log10(value) - low) / span * (b - a);
  const every = Math.max(1, Math.ceil(span / 6)), factors = span < 0.8 ? [1, 1.5, 2, 3, 4, 5, 7] : span < 1.2 ? [1, 2, 5] : span < 2.5 ? [1, 3] : [1];
  scale.ticks = [];
  for (let e = Math.floor(low); e <= Math.ceil(low + span); e += every)
    for (const factor of factors) {
      const tick = factor * Math.pow(10, e);
      if (tick >= from * 0.999 && tick <= to * 1.001) scale.ticks.push(Number(tick.toPrecision(6)));
    }
  if (scale.ticks.length < 2) scale.ticks = [from, to];
  return scale;
}
function tickText(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 1e5) ? value.toExponential(size === Math.abs(Number(value.toPrecision(1))) ? 0 : 1)
                                                     : String(Number(value.toPrecision(4)));
}
/* Returns ticks of an axis at least `room` pixels apart. */
function spaced(scale, room) {
  const kept = [];
  for (const tick of scale.ticks)
    if (!kept.length || Math.abs(scale(tick) - scale(kept[kept.length - 1])) >= room) kept.push(tick);
  return kept;
}
/* `names`: labels at tick 0, 1 ... instead of numbers. */
function axisBelow(picture, scale, box, label, names) {
  picture.append(svg("line", {class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
  for (const tick of spaced(scale, 48))
    picture.append(svg("line", {class: "grid", x1: scale(tick), x2: scale(tick), y1: box.top, y2: box.bottom}),
      svg("text", {class: "tick", x: Math.min(scale(tick), box.right - 8), y: box.bottom + 15, "text-anchor": "middle"}, names ? names[tick] : tickText(tick)));
  /* A long label ends at the figure's edge. */
  const middle = Math.min((box.left + box.right) / 2, box.right + 10 - 3.2 * label.length);
  picture.append(svg("text", {class: "tick", x: middle, y: box.bottom + 32, "text-anchor": "middle"}, label));
}
function axisLeft(picture, scale, box, label) {
  picture.append(svg("line", {class: "axis", x1: box.left, x2: box.left, y1: box.top, y2: box.bottom}));
  for (const tick of spaced(scale, 16))
    picture.append(svg("line", {class: "grid", x1: box.left, x2: box.right, y1: scale(tick), y2: scale(tick)}),
      svg("text", {class: "tick", x: box.left - 6, y: scale(tick) + 4, "text-anchor": "end"}, tickText(tick)));
  picture.append(svg("text", {class: "tick", x: 2, y: box.top - 8}, label));
}
function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values)
    if (isNumber(value)) { low = Math.min(low, value); high = Math.max(high, value); }
  return low <= high ? [low, high] : null;
}

/* ---- marks: a shape for each series, so that colour is never alone ---- */

const SHAPES = ["circle", "square", "triangle", "diamond", "cross", "plus"];
function shapePath(kind, x, y, r) {
  switch (kind) {
  case "square": return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  case "triangle": return `M${x} ${y - 1.2 * r}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`;
  case "diamond": return `M${x} ${y - 1.4 * r}l${1.4 * r} ${1.4 * r}l${-1.4 * r} ${1.4 * r}l${-1.4 * r} ${-1.4 * r}z`;
  case "cross": return `M${x - r} ${y - r}l${2 * r} ${2 * r}M${x + r} ${y - r}l${-2 * r} ${2 * r}`;
  case "plus": return `M${x - r} ${y}h${2 * r}M${x} ${y - r}v${2 * r}`;
  case "dash": return `M${x - r} ${y}h${2 * r}`;
  case "slash": return `M${x - r} ${y + r}l${2 * r} ${-2 * r}`;
  default: return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
  }
}
function mark(kind, x, y, r, style, words) {
  const open = kind === "cross" || kind === "plus";
  return svg("path", {d: shapePath(kind, x, y, r), class: style + (open ? " line" : "")}, words ? svg("title", {}, words) : null);
}
function legend(items) {
  return el("ul", {class: "legend"}, items.map(item => {
    const picture = svg("svg", {width: 16, height: 16, "aria-hidden": "true"}, item.drawing || mark(item.shape, 8, 8, 4.5, item.style));
    return el("li", {}, picture, item.words);
  }));
}

/* ---- kinds of figures ---- */

/* Largest average width of a letter in row labels, also in bold; labels get at most 40 % of the width (150 pixels if that is more). */
const LETTER = 7.8;
function labelRoom(rows, width) {
  return Math.min(Math.max(150, 0.4 * width), Math.max(70, LETTER * Math.max(...rows.map(r => shown(r.label).length)) + 16));
}

/* Intervals around points: rows {label, value, error, chosen, words}. */
function forest(rows, axis) {
  return width => {
    const left = labelRoom(rows, width);
    const box = {left: left, right: width - 14, top: 8, bottom: 8 + 26 * rows.length};
    const ends = range(rows.flatMap(r => [r.value, r.value - 1.96 * (r.error || 0), r.value + 1.96 * (r.error || 0)]).concat([0])) || [0, 1];
    const pad = (ends[1] - ends[0] || 1) * 0.05, picture = canvas(width, box.bottom + 42);
    const x = linear(ends[0] - pad, ends[1] + pad, box.left, box.right);
    axisBelow(picture, x, box, axis);
    picture.append(svg("line", {class: "zero", x1: x(0), x2: x(0), y1: box.top, y2: box.bottom}));
    rows.forEach((row, i) => {
      const y = box.top + 26 * i + 13;
      picture.append(svg("text", {x: left - 10, y: y + 4, "text-anchor": "end", "font-weight": row.chosen ? 700 : 400},
                         cut(row.label, Math.floor((left - 16) / LETTER))));
      if (row.error)
        picture.append(svg("path", {class: "whisker",
          d: `M${x(row.value - 1.96 * row.error)} ${y}H${x(row.value + 1.96 * row.error)}m0 -4v8M${x(row.value - 1.96 * row.error)} ${y - 4}v8`}));
      picture.append(mark(row.chosen ? "diamond" : "circle", x(row.value), y, row.chosen ? 5.5 : 4.5, row.chosen ? "f1" : "f0", row.words));
    });
    return picture;
  };
}

/* Lines over an x of whole numbers: series [{label, points: [[x, y]]}]; notes: [{x, words}] as dashed verticals. */
function lines(series, options) {
  return width => {
    const box = {left: 58, right: width - 14, top: 26, bottom: 266}, picture = canvas(width, 312);
    const all = series.flatMap(s => s.points), xs = range(all.map(p => p[0])), ys = range(all.map(p => p[1]).filter(v => !options.log || v > 0));
    if (!xs || !ys) return picture;
    const x = linear(xs[0], xs[1], box.left + 8, box.right - 8);
    const y = options.log ? logarithmic(ys[0] / 1.2, ys[1] * 1.2, box.bottom, box.top) : linear(Math.min(0, ys[0]), ys[1] * 1.05 || 1, box.bottom, box.top);
    x.ticks = x.ticks.filter(Number.isInteger);
    axisBelow(picture, x, box, options.x, options.names);
    axisLeft(picture, y, box, options.y);
    for (const note of options.notes || [])
      picture.append(svg("line", {class: "zero", x1: x(note.x), x2: x(note.x), y1: box.top, y2: box.bottom}),
        svg("text", {class: "tick", x: Math.min(x(note.x) + 4, box.right - 90), y: box.top + 12}, note.words));
    series.forEach((s, i) => {
      const points = s.points.filter(p => isNumber(p[1]) && (!options.log || p[1] > 0)), style = "f" + i % 6;
      picture.append(svg("path", {class: "line " + style, fill: "none", d: points.map((p, k) => (k ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[1]).toFixed(1)).join("")}));
      const every = Math.ceil(points.length / 60);
      points.filter((p, k) => k % every === 0).forEach(p =>
        picture.append(mark(SHAPES[i % 6], x(p[0]), y(p[1]), 3.2, style, shown(s.label) + ", " + options.x + " " + (options.names ? options.names[p[0]] : p[0]) + ": " + short(p[1]))));
    });
    return picture;
  };
}

/* Points with names: [{x, y, label, shape, style, words}]. */
function scatter(points, options) {
  return width => {
    const box = {left: 62, right: width - 16, top: 26, bottom: 266}, picture = canvas(width, 312);
    const xs = range(points.map(p => p.x)), ys = range(points.map(p => p.y).filter(v => v > 0));
    if (!xs || !ys) return picture;
    const pad = (xs[1] - xs[0]) * 0.08 || xs[0] * 0.1;
    const x = linear(xs[0] - pad, xs[1] + pad, box.left, box.right), y = logarithmic(ys[0] / 1.4, ys[1] * 1.4, box.bottom, box.top);
    axisBelow(picture, x, box, options.x);
    axisLeft(picture, y, box, options.y);
    if (options.joined) {
      const order = points.filter(p => p.y > 0).sort((a, b) => a.x - b.x);
      picture.append(svg("path", {class: "line f5", fill: "none", d: order.map((p, k) => (k ? "L" : "M") + x(p.x).toFixed(1) + " " + y(p.y).toFixed(1)).join("")}));
    }
    const placed = [];
    for (const p of points) {
      if (!(p.y > 0)) continue;
      picture.append(mark(p.shape || "circle", x(p.x), y(p.y), 5, p.style || "f0", p.words));
      /* Leaves out a label that would touch another: the title and the table have it. */
      const side = x(p.x) > (box.left + box.right) / 2 ? -1 : 1, words = cut(p.label, 18), at = {x: x(p.x) + 9 * side, y: y(p.y) - 8};
      const area = {from: side > 0 ? at.x : at.x - 7 * words.length, to: side > 0 ? at.x + 7 * words.length : at.x, y: at.y};
      if (area.from < box.left || area.to > width || placed.some(o => Math.abs(o.y - area.y) < 14 && o.from < area.to && area.from < o.to)) continue;
      placed.push(area);
      picture.append(svg("text", {x: at.x, y: at.y, "text-anchor": side > 0 ? "start" : "end"}, words));
    }
    return picture;
  };
}

/* Bars over bins: counts [n] from x = first, each `step` wide. */
function histogram(get, name) {
  return width => {
    const h = get(), box = {left: 62, right: width - 14, top: 26, bottom: 226}, picture = canvas(width, 272);
    const last = h.first + h.counts.length, top = Math.max(...h.counts);
    const x = linear(h.first / 32 - 8, last / 32 - 8, box.left, box.right), y = logarithmic(0.7, Math.max(10, top * 1.3), box.bottom, box.top);
    axisBelow(picture, x, box, "log10 |x| of " + cut(name(), Math.floor(width / 6.6) - 13));
    axisLeft(picture, y, box, "values in a bin (log scale)");
    const one = (box.right - box.left) / h.counts.length;
    picture.append(svg("path", {class: "bar", d: h.counts.map((n, i) => n > 0
      ? `M${(box.left + i * one).toFixed(2)} ${box.bottom}V${y(n).toFixed(1)}h${Math.max(one * 0.96, 0.5).toFixed(2)}V${box.bottom}z` : "").join("")}));
    return picture;
  };
}

/* Two values of one thing joined by a line: [{label, before, after}] over x, on a log scale. */
function dumbbells(rows, axis) {
  return width => {
    const box = {left: 74, right: width - 14, top: 6, bottom: 6 + 20 * rows.length}, picture = canvas(width, box.bottom + 42);
    const ends = range(rows.flatMap(r => [r.before, r.after]).filter(v => v > 0));
    if (!ends) return picture;
    const x = logarithmic(ends[0] / 1.15, ends[1] * 1.15, box.left, box.right);
    axisBelow(picture, x, box, axis);
    rows.forEach((row, i) => {
      const y = box.top + 20 * i + 10;
      picture.append(svg("text", {x: box.left - 8, y: y + 4, "text-anchor": "end"}, row.label));
      if (!(row.before > 0 && row.after > 0)) return;
      picture.append(svg("line", {class: "whisker", x1: x(row.before), x2: x(row.after), y1: y, y2: y}),
        mark("square", x(row.before), y, 4, "f5 outlined", "before: " + short(row.before)), mark("circle", x(row.after), y, 4.5, "f0", "after: " + short(row.after)));
    });
    return picture;
  };
}

/* A grid of shades: cell(row, column) gives {shade 0 .. 4, words} or null. */
function shades(rows, columns, labels, cell) {
  return width => {
    const left = 40, size = Math.max(2, Math.min(22, (width - left - 4) / columns)), picture = canvas(width, 26 + rows * Math.max(6, size));
    const high = Math.max(6, size), paths = ["", "", "", "", ""];
    for (let r = 0; r < rows; r++) {
      if (r % Math.ceil(12 / high) === 0)
        picture.append(svg("text", {class: "tick", x: left - 6, y: 22 + r * high + high / 2 + 4, "text-anchor": "end"}, labels.row(r)));
      for (let c = 0; c < columns; c++) {
        const it = cell(r, c);
        if (it) paths[it.shade] += `M${(left + c * size).toFixed(1)} ${(22 + r * high).toFixed(1)}h${(size - 0.5).toFixed(1)}v${(high - 0.5).toFixed(1)}h${(0.5 - size).toFixed(1)}z`;
      }
    }
    const every = Math.ceil(24 / size);
    for (let c = 0; c < columns; c += every)
      picture.append(svg("text", {class: "tick", x: left + (c + 0.5) * size, y: 14, "text-anchor": "middle"}, labels.column(c)));
    paths.forEach((d, i) => { if (d) picture.append(svg("path", {class: "s" + i, d: d})); });
    return picture;
  };
}
