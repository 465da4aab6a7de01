/* Elements, texts, numbers and tables.  Strings of the store reach the page only as text nodes and attribute values. */
const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(key, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(3))
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}
function el(name, attributes, ...children) { return fill(document.createElement(name), attributes, children); }
function svg(name, attributes, ...children) { return fill(document.createElementNS(SVG, name), attributes, children); }

/* Makes a text of the store safe to show: control, format and direction characters become escapes. */
const UNSEEN = new RegExp("[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff]", "g");
function shown(text) {
  if (text === null || text === undefined) return "";
  const names = {"\n": "\\n", "\t": "\\t", "\r": "\\r"};
  return String(text).replace(UNSEEN, c => names[c] || "\\u{" + c.codePointAt(0).toString(16) + "}");
}
function cut(text, n) {
  const letters = Array.from(shown(text));
  return letters.length > n ? letters.slice(0, n - 1).join("") + "\u2026" : letters.join("");
}

/* ---- numbers ---- */

function isNumber(value) { return typeof value === "number" && isFinite(value); }
function count(value) { return isNumber(value) ? value.toLocaleString("en-US").replace(/,/g, "\u202f") : ""; }
function fixed(digits) { return value => isNumber(value) ? value.toFixed(digits) : ""; }
/* Formats a number with three significant digits, in powers of ten if that is shorter. */
function short(value) {
  if (!isNumber(value)) return "";
  const size = Math.abs(value);
  if (value === 0 || (size >= 0.001 && size < 1e5)) return String(Number(value.toPrecision(4)));
  return value.toExponential(2);
}
function mebibytes(value) { return isNumber(value) ? (value / 1048576).toFixed(2) + " MiB" : ""; }
function percent(value) { return isNumber(value) ? (100 * value).toFixed(2) + " %" : ""; }
function signed(value) { return isNumber(value) ? (value > 0 ? "+" : "") + short(value) : ""; }

/* Returns the rows of a section as objects, from either form of the data. */
function rowsOf(table) {
  if (!table) return [];
  if (Array.isArray(table)) return table;
  return table.rows.map(row => Object.fromEntries(table.columns.map((name, i) => [name, row[i]])));
}

/* ---- sortable tables ---- */

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined || a === "") return 1;
  if (b === null || b === undefined || b === "") return -1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", {numeric: true});
}

/* columns: [{key, label, form, wide, cell}]: form writes a number, wide is a column of sentences, cell(row) makes what is
 * shown.  options: caption, picked(row),
 * sort: "key" or "-key", open(row): makes the first cell a button. */
function table(columns, rows, options) {
  options = options || {};
  const body = el("tbody");
  const heads = columns.map(column => el("th", {scope: "col", class: column.form ? "number" : null},
    el("button", {type: "button", click: () => sortBy(column)}, column.label)));
  const more = el("button", {type: "button", class: "action", click: () => { limit = Infinity; show(); }});
  const rest = el("p", {class: "quiet paper"});
  let order = rows.slice(), sorted = null, falling = false, limit = ROWS_AT_FIRST;
  function value(row, column) { return typeof column.key === "function" ? column.key(row) : row[column.key]; }
  function sortBy(column) {
    falling = sorted === column ? !falling : Boolean(column.falling);
    sorted = column;
    const sign = falling ? -1 : 1;
    order = rows.slice().sort((a, b) => {
      const x = value(a, column), y = value(b, column);
      const empty = v => v === null || v === undefined || v === "";
      return empty(x) || empty(y) ? compare(x, y) : sign * compare(x, y);
    });
    heads.forEach((head, i) => columns[i] === column
      ? head.setAttribute("aria-sort", falling ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    show();
  }
  function cellOf(row, column, i) {
    const raw = value(row, column);
    const words = column.form ? column.form(raw, row) : typeof raw === "boolean" ? (raw ? "yes" : "") : shown(raw);
    const exact = column.form && isNumber(raw) && String(raw) !== words ? String(raw) : null;
    const content = column.cell ? column.cell(row) : i === 0 && options.open
      ? el("button", {type: "button", class: "action", click: () => options.open(row)}, words) : words;
    return el("td", {class: column.form ? "number" : column.wide ? "text wide" : "text", title: exact, "data-label": column.label}, content);
  }
  function show() {
    const n = onPaper ? Math.max(limit, ROWS_ON_PAPER) : limit;
    body.replaceChildren(...order.slice(0, n).map(row =>
      el("tr", {class: options.picked && options.picked(row) ? "picked" : null},
         columns.map((column, i) => cellOf(row, column, i)))));
    more.hidden = order.length <= limit;
    more.textContent = "Show all " + count(order.length) + " rows";
    rest.hidden = order.length <= n;
    rest.textContent = "The first " + count(n) + " of " + count(order.length) + " rows; the page on a screen has all.";
  }
  const first = options.sort && columns.find(column => column.key === options.sort.replace(/^-/, ""));
  if (first) {
    falling = options.sort[0] !== "-";
    sorted = first;
    sortBy(first);
  } else show();
  tables.push({show: show});
  return el("div", {},
    el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": options.caption || "Table"},
      el("table", {}, options.caption ? el("caption", {}, options.caption) : null,
         el("thead", {}, el("tr", {}, heads)), body)), more, rest);
}

/* Makes a list of names and values, without those that have no value. */
function facts(pairs) {
  const list = el("dl", {class: "facts"});
  for (const [name, value] of pairs)
    if (value !== null && value !== undefined && value !== "")
      list.append(el("dt", {}, name), el("dd", {}, value instanceof Node ? value : shown(value)));
  return list;
}

function part(id, title, ...children) {
  return el("section", {id: id, "aria-labelledby": id + "-title"}, el("h2", {id: id + "-title"}, title), children);
}
function read(...words) { return el("p", {class: "read"}, words); }
function none(words) { return el("p", {class: "quiet none"}, words); }

/* Makes a text with a button that copies it; if the browser refuses, the button selects the text. */
function copyable(text, label) {
  const box = el("pre", {tabindex: "0", "aria-label": label}, text);
  const button = el("button", {type: "button", class: "action", click: () => {
    const range = document.createRange();
    range.selectNodeContents(box);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    const done = () => { button.textContent = "Copied"; };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => { button.textContent = "Selected"; });
    else button.textContent = "Selected";
  }}, "Copy");
  return el("div", {class: "copy"}, box, button);
}
