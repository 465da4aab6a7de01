/* The matrix: a row per unit, a column per candidate, shaded by the score as a multiple of the unit's least. */
const SHADE_LIMITS = [1.05, 1.25, 2, 4];
const ROWS_IN_FULL = 400;   /* with more rows the matrix scrolls in a box */
const ROWS_IN_BAND = 30;    /* rows of a matrix on paper: at most 600 of a page's 950 pixels */
const STATES = {
  chosen: {shape: "circle", words: "chosen"},
  pinned: {shape: "square", full: true, words: "chosen: pinned"},
  held_back: {shape: "triangle", full: true, words: "chosen: held back from the rule's choice by the target"},
  other: {shape: "diamond", full: true, words: "chosen against the rule"},
  failed: {shape: "cross", words: "failed"},
  skipped: {shape: "dash", words: "skipped: not tried"},
  forbidden: {shape: "slash", words: "left out as asked"},
  unscored: {shape: "plus", words: "without a score"},
};
const DECISIONS = {
  rule: "by the rule", budget: "by the rule, at the scheme that the budget of bits gave it", pinned: "pinned",
  held_back: "held back: the target's kernels do not take what the rule alone would choose",
  other: "otherwise than the rule would", float: "it stays float", none: "nothing was chosen",
};
const CELL_STATES = {
  chosen: "chosen", lost: "lost", failed: "failed", skipped: "skipped", forbidden: "left out", other_scheme: "another scheme",
  unscored: "no score",
};

function shadeOf(times) {
  if (!isNumber(times)) return null;
  const i = SHADE_LIMITS.findIndex(limit => times <= limit);
  return i < 0 ? 4 : i;
}

/* Returns the matrix of the data with cells as objects. */
function unpack(matrix) {
  const at = Object.fromEntries(matrix.columns.map((name, i) => [name, i])), scores = matrix.columns.slice(6);
  const units = matrix.units.map(unit => {
    const cells = new Map();
    for (const row of unit.cells)
      cells.set(row[at.entry], {
        entry: matrix.entries[row[at.entry]].name, candidate: row[at.candidate], state: matrix.phrases[row[at.state]],
        reason: matrix.phrases[row[at.reason]], times_least: row[at.times_least], bits: row[at.bits],
        scores: Object.fromEntries(scores.map(name => [name, row[at[name]]]))});
    return Object.assign({}, unit, {cells: cells});
  });
  return {units: units, entries: matrix.entries, scores: scores, metric: matrix.metric, unit: matrix.unit, all: matrix.all_scores};
}
function markOf(unit, cell) {
  if (cell.state !== "chosen") return STATES[cell.state] || null;
  return STATES[unit.decision] || STATES.chosen;
}

const FILTERS = [
  ["all", "all units", () => true],
  ["not_least", "units whose choice has not the least score", unit => { const c = unit.cells.get(unit.chosen); return c && c.times_least > 1; }],
  ["odd", "pinned, held back or against the rule", unit => ["pinned", "held_back", "other"].includes(unit.decision)],
  ["failed", "units where a candidate failed or was skipped", unit => [...unit.cells.values()].some(c => c.state === "failed" || c.state === "skipped")],
];

/* opened(unit) returns the panel of a unit. */
function matrixFigure(m, opened) {
  const place = el("div", {class: "heat", id: "matrix-heat", tabindex: "0", role: "application",
    "aria-label": "Heat map of units and candidates. Arrow keys move, Enter opens the unit.", "aria-describedby": "matrix-readout"});
  const out = el("output", {class: "readout", id: "matrix-readout", "aria-live": "polite"}, "Point at a cell, or press the arrow keys in the figure.");
  const detail = el("div", {id: "matrix-detail"}), split = el("div", {class: "matrix"}, el("div", {}, place, out), detail);
  let units = m.units, at = {row: 0, column: 0}, geometry = null, cursor = null;

  function draw(width) {
    const n = m.entries.length, longest = Math.max(4, ...units.slice(0, 2000).map(u => shown(u.name).length));
    /* The matrix is as wide as the page for any number of candidates: if cells are narrower than a name's height, some names are left out. */
    const left = Math.round(Math.min(width * 0.4, 7 * longest + 14)), size = (width - left - 6) / Math.max(1, n), every = Math.ceil(13 / size);
    const high = Math.max(15, Math.min(20, size)), whole = width;
    const top = 20 + Math.ceil(6.2 * Math.max(3, ...m.entries.map(entry => Math.min(18, shown(entry.name).length))));
    const head = canvas(whole, top), body = canvas(whole, Math.max(4, units.length * high)), paths = {}, marks = {};
    geometry = {left: left, size: size, high: high, top: top};
    m.entries.forEach((entry, e) => {
      if (e % every !== 0) return;
      const x = left + (e + 0.5) * size + 4;
      head.append(svg("text", {transform: `translate(${x} ${top - 6}) rotate(-90)`}, cut(entry.name, 18), svg("title", {}, shown(entry.name))));
    });
    place.classList.toggle("tall", units.length > ROWS_IN_FULL);
    units.forEach((unit, u) => {
      const y = u * high;
      body.append(svg("text", {x: left - 6, y: y + high / 2 + 4, "text-anchor": "end"}, cut(unit.name, Math.floor(left / 6.8))));
      for (const [e, cell] of unit.cells) {
        const shade = shadeOf(cell.times_least), style = shade === null ? "none" : "s" + shade, x = left + e * size, sign = markOf(unit, cell);
        paths[style] = (paths[style] || "") + `M${(x + 0.5).toFixed(1)} ${y + 0.5}h${(size - 1).toFixed(1)}v${high - 1}h${(1 - size).toFixed(1)}z`;
        if (sign) {
          const key = (sign.full ? "mark full" : "mark") + (shade !== null && shade >= 3 ? " dark" : "");
          marks[key] = (marks[key] || "") + shapePath(sign.shape, x + size / 2, y + high / 2, Math.min(size, high) * 0.24);
        }
      }
    });
    for (const [style, d] of Object.entries(paths)) body.append(svg("path", {class: style, d: d}));
    for (const d of Object.values(marks)) body.append(svg("path", {class: "mark halo", d: d}));
    for (const [style, d] of Object.entries(marks)) body.append(svg("path", {class: style.replace(" dark", ""), d: d}));
    cursor = svg("rect", {class: "cursor", visibility: "hidden", width: size, height: high});
    body.append(cursor);
    if (onPaper) return {head: head, body: body};
    place.replaceChildren(el("div", {class: "head"}, head), body);
    body.setAttribute("aria-hidden", "true");
    head.setAttribute("aria-hidden", "true");
    geometry.body = body;
  }
  /* Paper cannot scroll: prints bands of units, each with the names above it, which no page break cuts. */
  function drawBands(width) {
    const all = units, bands = [];
    for (let from = 0; from < all.length; from += ROWS_IN_BAND) {
      units = all.slice(from, from + ROWS_IN_BAND);
      const {head, body} = draw(width), band = canvas(head.getAttribute("width"), geometry.top + Number(body.getAttribute("height")));
      body.setAttribute("y", geometry.top);
      band.setAttribute("aria-hidden", "true");
      band.append(head, body);
      bands.push(band);
    }
    units = all;
    place.replaceChildren(...bands);
  }
  function say() {
    const unit = units[at.row], entry = m.entries[at.column], cell = unit && unit.cells.get(at.column);
    if (!unit || !entry) return;
    const words = [shown(unit.name) + " by " + shown(entry.name) + ": "];
    if (!cell) words.push("no candidate");
    else {
      words.push(CELL_STATES[cell.state] || cell.state);
      if (cell.state !== "chosen" || unit.decision !== "rule") words.push(" (" + shown(cell.state === "chosen" ? unit.reason : cell.reason) + ")");
      if (isNumber(cell.times_least)) words.push("; " + short(cell.times_least) + " times the least " + shown(m.metric));
      for (const name of m.scores) if (isNumber(cell.scores[name])) words.push("; " + shown(name) + " " + short(cell.scores[name]));
      if (isNumber(cell.bits)) words.push("; " + short(cell.bits) + " bits");
    }
    out.textContent = words.join("");
    cursor.setAttribute("x", geometry.left + at.column * geometry.size);
    cursor.setAttribute("y", at.row * geometry.high);
    cursor.setAttribute("visibility", "visible");
  }
  function find(event) {
    const box = geometry.body.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / geometry.high), column = Math.floor((event.clientX - box.left - geometry.left) / geometry.size);
    if (event.clientY < box.top || row < 0 || row >= units.length || column >= m.entries.length) return null;
    return {row: row, column: Math.max(0, column)};
  }
  function open() {
    const unit = units[at.row];
    if (!unit) return;
    split.classList.add("open");
    detail.replaceChildren(opened(unit, close));
    for (const plot of plots) plot.redraw();
    detail.querySelector("h3").focus();
  }
  function close() {
    split.classList.remove("open");
    detail.replaceChildren();
    for (const plot of plots) plot.redraw();
    place.focus();
  }
  place.addEventListener("pointermove", event => { const cell = find(event); if (cell) { at = cell; say(); } });
  place.addEventListener("click", event => { const cell = find(event); if (cell) { at = cell; say(); open(); } });
  place.addEventListener("focus", say);
  place.addEventListener("keydown", event => {
    const page = Math.max(1, Math.floor(Math.min(place.clientHeight, innerHeight) / geometry.high) - 8);
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-page, 0], PageDown: [page, 0],
                   Home: [-1e9, 0], End: [1e9, 0]}[event.key];
    if (moves) {
      at = {row: Math.min(units.length - 1, Math.max(0, at.row + moves[0])), column: Math.min(m.entries.length - 1, Math.max(0, at.column + moves[1]))};
      say();
      const y = at.row * geometry.high;
      if (y < place.scrollTop) place.scrollTop = y;
      if (y + geometry.high + geometry.top + 8 > place.scrollTop + place.clientHeight) place.scrollTop = y + geometry.high + geometry.top + 8 - place.clientHeight;
      cursor.scrollIntoView({block: "nearest", behavior: "instant"});
    } else if (event.key === "Enter" || event.key === " ") open();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
  const plot = {width: 0, redraw(force) {
    const width = widthOf(place);
    if (!width || (width === plot.width && !force)) return;
    plot.width = width;
    if (onPaper) drawBands(width);
    else draw(width);
  }};
  plots.push(plot);
  const filter = el("select", {id: "matrix-filter", change: event => {
    units = m.units.filter(FILTERS.find(f => f[0] === event.target.value)[2]);
    at = {row: 0, column: 0};
    plot.redraw(true);
    out.textContent = count(units.length) + " of " + count(m.units.length) + " units are shown.";
  }}, FILTERS.map(f => el("option", {value: f[0]}, f[1])));
  const used = new Set(m.units.flatMap(unit => [...unit.cells.values()].map(cell => markOf(unit, cell))));
  const box = (style) => svg("rect", {class: style, x: 1, y: 1, width: 14, height: 14});
  return {node: el("figure", {id: "matrix-figure"}, el("div", {class: "controls"}, el("label", {for: "matrix-filter"}, "Show "), filter),
    legend(SHADE_LIMITS.map((limit, i) => ({drawing: box("s" + i), words: "up to " + limit + " times the least"}))
      .concat([{drawing: box("s4"), words: "more"}])
      .concat(Object.values(STATES).filter(s => used.has(s)).map(s => ({drawing: svg("path", {class: s.full ? "mark full" : "mark", d: shapePath(s.shape, 8, 8, 4.5)}), words: s.words})))),
    split), open: unit => { units = m.units; filter.value = "all"; plot.redraw(true); at = {row: m.units.indexOf(unit), column: unit.chosen || 0}; say(); open(); }};
}
