/* The parts of the page, in order, for one run; and the differences between two runs. */
const LOSSES = {kl: "KL(float || result), nats per token", one_minus_cosine: "1 - cosine to the float embedding"};

function evaluationsOf(run, role) { return run.evaluations.filter(row => row.role === role); }
function lossOf(row) { return isNumber(row.kl) ? row.kl : isNumber(row.cosine) ? 1 - row.cosine : null; }
function deltaOf(row) { return isNumber(row.delta_kl) ? row.delta_kl : row.delta_one_minus_cosine; }
/* Compares the result with the simplest plan that the guard measured: rtn if it is there, else the worst uniform run.
 * null: the guard compared nothing. */
function baselineCard(run, r, card) {
  const rows = evaluationsOf(run, "guard").filter(row => isNumber(lossOf(row))), result = rows.find(row => row.subject === r.result);
  const uniform = rows.filter(row => row.subject !== "hybrid" && row.subject !== "float");
  const base = uniform.find(row => row.subject === "rtn") || uniform.sort((a, b) => lossOf(b) - lossOf(a))[0];
  if (!result || !base) return null;
  const name = isEncoder(run) ? "1 - cosine" : "KL", less = 1 - lossOf(result) / lossOf(base);
  if (base === result) return card("Against the simplest", "no gain: it is " + shown(base.subject), name + " " + short(lossOf(base)) + " on the guard's windows");
  return card("Against " + shown(base.subject) + " everywhere", (100 * Math.abs(less)).toFixed(0) + " % " + (less >= 0 ? "less " : "more ") + name,
    short(lossOf(result)) + " instead of " + short(lossOf(base)) + " on the guard's windows");
}
function isEncoder(run) { return run.evaluations.some(row => isNumber(row.cosine)); }

/* ---- what was asked, what came out ---- */

function summaryPart(run) {
  const r = run.run[0], model = run.model[0] || {}, text = run.calibration[0] || {}, recipe = run.recipe || {};
  const tests = evaluationsOf(run, "test"), before = tests.find(row => row.subject === "float"), after = tests.find(row => row.subject === r.result);
  const schemes = recipe.schemes || (recipe.scheme ? [recipe.scheme] : []), card = (name, value, more) => value ? el("li", {}, el("span", {}, name), el("strong", {}, value), more ? el("small", {}, more) : null) : null;
  const algorithms = (recipe.algorithms || []).map(a => shown(a.name || a)).join(", "), loss = run.loss;
  const finished = r.status === "finished";
  return part("summary", "What was asked, what came out",
    read("Figures of the result are measured on the test text, on tokens that no choice has seen; sizes are of the whole checkpoint."),
    finished ? null : el("p", {class: "bad"}, el("span", {class: "status bad"}, shown(r.status)), " ",
      r.status === "running" ? "The run has not ended: this is what it had stored." : "The run did not finish: this is what it had stored. The same command continues from here."),
    r.verdict ? el("p", {}, shown(r.verdict)) : null,
    el("ul", {class: "cards"},
      baselineCard(run, r, card),
      card("Result", shown(r.result), "of " + count(r.candidates) + " candidates, " + count(r.failed) + " failed"),
      card("Size", mebibytes(r.bytes_after), r.bytes_before ? "from " + mebibytes(r.bytes_before) + (isNumber(r.size_ratio) ? ", " + percent(r.size_ratio) : "") : null),
      card("Bits per weight", isNumber(r.bits_per_weight) ? r.bits_per_weight.toFixed(3) : "", "with scales and zeros, quantized linears"),
      card("Perplexity", after && fixed(4)(after.ppl), before ? "float " + fixed(4)(before.ppl) : null),
      card(isEncoder(run) ? "1 - cosine" : "KL to float", isNumber(loss.mean) ? short(loss.mean) : after ? short(lossOf(after)) : "",
           isNumber(loss.se) ? "standard error " + short(loss.se) + ", " + count(loss.windows) + " windows" : null),
      card("Top-1 agreement", after && percent(after.top1), "tokens with the float model's first choice"),
      card("Rank correlation", after && fixed(4)(after.spearman), "of the cosines of all pairs")),
    after ? null : none("Nothing was evaluated on a test text: this run has no perplexity and no divergence."),
    run.gates.length ? [el("h3", {}, "Gates"), table([{key: "gate", label: "Gate"}, {key: "measured", label: "Measured", form: short}, {key: row => row.holds ? "holds" : "does NOT hold", label: "Holds"}], run.gates, {caption: "What the recipe demands of the result"})] : null,
    el("h3", {}, "Asked"),
    facts([["Model", model.name], ["Architecture", [model.architecture, model.dtype, model.parameters ? count(model.parameters) + " parameters" : "", model.blocks ? model.blocks + " blocks" : ""].filter(Boolean).join(", ")],
      ["Schemes", schemes.join(", ")], ["Algorithms", algorithms], ["Calibration", text.text ? [text.text, text.windows + " windows of " + text.window_tokens + " tokens", text.score_windows + " of them scored"].concat(text.weight === "gradient" ? "rows weighed by gradients" : []).join(", ") : ""],
      ["Choice", [r.rule && "rule " + r.rule, r.metric && "by " + r.metric, "one per " + r.unit].filter(Boolean).join(", ")],
      ["Budget", recipe.budget === undefined || recipe.budget === null ? "" : [].concat(recipe.budget).join(", ") + " bits per weight"], ["Target", recipe.select && recipe.select.target || recipe.target],
      ["Started", [r.started, r.ended && "ended " + r.ended, r.attempts > 1 && r.attempts + " attempts"].filter(Boolean).join(", ")]]));
}

function guardPart(run) {
  const r = run.run[0], rows = [...evaluationsOf(run, "guard"), ...evaluationsOf(run, "guard_more")];
  /* The name of the choices' plan, its own if it is uniform.  Figures of other plans are minus those of this plan. */
  const first = rows.find(row => row.subject === "hybrid") || rows.find(row => isNumber(lossOf(row)) && !isNumber(deltaOf(row))), base = !first || first.subject === "hybrid" ? "the hybrid" : first.subject;
  const named = row => row.role === "guard" ? row.subject : row.subject + ", " + count(row.windows) + " windows";
  const reading = "Each plan against " + base + " on the same held-out windows: right of zero is worse. Whiskers are 1.96 paired standard errors; a plan whose whiskers reach zero cannot be told from " + base + ". What was within an error was measured again on more windows. The diamond is the result.";
  if (!rows.length) return part("guard", "Guard", none("The guard has measured nothing in this run: it was turned off, or the run stopped before it."));
  const compared = rows.map(row => ({label: named(row), value: row === first ? 0 : deltaOf(row), error: row.delta_se, chosen: row.subject === r.result,
    words: shown(named(row)) + ": " + signed(deltaOf(row)) + " +- " + short(row.delta_se)})).filter(row => isNumber(row.value));
  const alternative = table([{key: named, label: "Plan"}, {key: lossOf, label: isEncoder(run) ? "1 - cosine" : "KL", form: short}, {key: deltaOf, label: "Minus " + base + "'s", form: signed},
    {key: "delta_se", label: "Standard error", form: short}, {key: row => deltaOf(row) / row.delta_se, label: "In errors", form: v => isNumber(v) ? v.toFixed(1) : ""}, {key: "ppl", label: "Perplexity", form: fixed(4)},
    {key: row => 100 * row.top1, label: "Top-1 %", form: fixed(2)}], rows, {caption: "Plans on the guard's windows", picked: row => row.subject === r.result});
  return part("guard", "Guard", compared.length ? figure("Plans against " + base, reading, compared.map(row => row.words).join("; "), forest(compared, "loss minus " + base + "'s"), alternative) : alternative);
}

/* ---- the matrix and a unit ---- */

function statistics(row) {
  return facts([["Largest |x|", row.max === null ? "" : short(row.max) + " (channel " + row.channel + ", token \"" + shown(row.token) + "\" at " + row.position + " of window " + row.window + ")"],
    ["Crest, median", short(row.crest)], ["Crest, greatest", short(row.crest_max)], ["max / median of a token, median", short(row.ratio_median)], ["Largest / median |x|", short(row.times_median)],
    ["rms", short(row.rms)], ["99.9 % quantile of |x|", short(row.q999)], ["Massive tokens", count(row.massive)]]);
}
function unitPanel(run, m, unit, close) {
  const inputs = rowsOf(run.inputs), hooks = new Map(rowsOf(run.activations).map(row => [row.hook, row]));
  const jobs = unit.jobs.map(name => inputs.find(input => input.job === name)).filter(Boolean);
  const of = [...new Set(jobs.map(job => job.hook).filter(hook => hook && hooks.has(hook)))];
  const chosen = unit.cells.get(unit.chosen), rule = m.entries[unit.rule_choice];
  const columns = [{key: "entry", label: "Candidate"}, {key: row => CELL_STATES[row.state] || row.state, label: "State"}, {key: "times_least", label: "Times the least", form: short},
    {key: "reason", label: "Why", wide: true}, ...m.scores.map(name => ({key: row => row.scores[name], label: name, form: short})), {key: "bits", label: "Bits", form: short}];
  return el("div", {class: "detail", role: "region", "aria-label": "Unit " + shown(unit.name)},
    el("header", {}, el("h3", {tabindex: "-1"}, shown(unit.unit)), el("button", {type: "button", class: "action", click: close}, "Close")),
    facts([["Chosen", chosen ? chosen.entry : unit.decision === "float" ? "float" : "nothing"], ["How", DECISIONS[unit.decision]], ["Reason", unit.reason], ["The rule takes", rule && rule !== m.entries[unit.chosen] ? rule.name + ": " + unit.rule_reason : ""],
      ["As the rule says", unit.consistent], ["Advice by the crest", unit.advice ? unit.advice + (unit.disagrees ? ", which the choice is not" : "") : ""], ["Jobs", unit.jobs.join(", ")], ["Weights", count(unit.weights)]]),
    unit.cells.size ? table(columns, [...unit.cells.values()].sort((a, b) => compare(a.times_least, b.times_least)), {caption: "Candidates of the unit", picked: row => row.state === "chosen"}) : none("The unit has no candidate."),
    of.length ? of.map(hook => [el("h3", {}, "Input ", shown(hook)), statistics(hooks.get(hook)),
      (run.histograms || {})[hook] && el("button", {type: "button", class: "action", click: () => { const select = document.getElementById("hook"); if (!select) return; select.value = hook; select.dispatchEvent(new Event("change")); document.getElementById("histogram").scrollIntoView(); select.focus(); }}, "Histogram")])
      : none("The store has no activation statistics of its input."));
}
function matrixPart(run, m) {
  if (!m.units.length) return part("matrix", "Units and candidates", none("The run has no candidates and no choices yet."));
  let view = null;
  if (m.entries.length) view = matrixFigure(m, (unit, close) => unitPanel(run, m, unit, close));
  const rows = m.units.map(unit => ({unit: unit, name: unit.name, block: unit.block, weights: unit.weights, least: unit.least, reason: unit.reason, decision: DECISIONS[unit.decision],
    chosen: (unit.cells.get(unit.chosen) || {entry: unit.decision === "float" ? "float" : ""}).entry, times: (unit.cells.get(unit.chosen) || {}).times_least,
    bits: (unit.cells.get(unit.chosen) || {}).bits}));
  const all = table([{key: "name", label: "Unit"}, {key: "block", label: "Block", form: count}, {key: "chosen", label: "Chosen"}, {key: "times", label: "Times the least", form: short}, {key: "least", label: "Least " + shown(m.metric), form: short},
    {key: "bits", label: "Bits", form: short}, {key: "weights", label: "Weights", form: count}, {key: "decision", label: "How", wide: true}, {key: "reason", label: "Reason", wide: true}], rows,
    {caption: "Units and what was chosen", open: view ? row => view.open(row.unit) : null});
  return part("matrix", "Units and candidates",
    read("A row is a " + shown(m.unit) + ", a column a candidate. A faint cell is near the least " + shown(m.metric) + " of its row, a strong one many times it; scores compare the candidates of one row, not rows with each other. Marks tell what became of a candidate. Open a row to see why its choice won."),
    view ? view.node : null, m.all ? null : none("The run has more scores than this page holds: the common ones are shown, calm inspect scores has the rest."),
    el("details", {open: !view}, el("summary", {}, "All units as a table"), all));
}

/* ---- activations ---- */

const STATISTICS = [["max", "largest |x|", row => Math.abs(row.max)], ["crest", "crest max|x| / rms(x) of a token, median", row => row.crest], ["crest_max", "greatest crest of a token", row => row.crest_max],
  ["ratio_median", "max|x| / median|x| of a token, median", row => row.ratio_median], ["ratio_max", "greatest max|x| / median|x| of a token", row => row.ratio_max]];

function activationsPart(run) {
  const rows = rowsOf(run.activations), emergence = rowsOf(run.emergence)[0] || {}, peaks = rowsOf(run.peaks), hooks = Object.keys(run.histograms || {});
  if (!rows.length) return part("activations", "Activations", none("The store has no activation statistics of this run's calibration."));
  const points = [...new Set(rows.filter(row => row.block !== null).map(row => row.point))];
  let statistic = STATISTICS[0], wanted = points.includes("block_out") ? ["block_out", ...points.filter(p => p !== "block_out" && /down|qkv|gate_up/.test(p))].slice(0, 4) : points.slice(0, 4);
  const series = () => wanted.map(point => ({label: point, points: rows.filter(row => row.point === point && row.block !== null).map(row => [row.block, statistic[2](row)])}));
  const notes = isNumber(emergence.emergence_block) ? [{x: emergence.emergence_block, words: "emergence"}] : [];
  const keys = el("div", {});
  const showKeys = () => keys.replaceChildren(legend(wanted.map((point, i) => ({shape: SHAPES[i % 6], style: "f" + i % 6, words: shown(point)}))));
  const through = figure("Through the layers", "Log scale; a line is the same place in every block. Massive activations emerge where the output of a block is 10 times that of the one before: smoothing and finer scales matter from there on.",
    () => statistic[1] + " of " + wanted.map(shown).join(", ") + " over " + new Set(rows.map(row => row.block)).size + " blocks", width => lines(series(), {x: "block", y: statistic[1] + " (log scale)", log: true, notes: notes})(width), null,
    [el("div", {class: "controls"}, el("label", {}, "Figure ", el("select", {id: "statistic", change: event => { statistic = STATISTICS.find(s => s[0] === event.target.value); through.redraw(); }}, STATISTICS.map(s => el("option", {value: s[0]}, s[1])))),
      el("fieldset", {class: "controls"}, el("legend", {}, "Places"), points.map(point => el("label", {}, el("input", {type: "checkbox", checked: wanted.includes(point), change: event => {
        wanted = event.target.checked ? points.filter(p => p === point || wanted.includes(p)) : wanted.filter(p => p !== point);
        showKeys();
        through.redraw();
      }}), " ", shown(point))))), keys]);
  showKeys();
  let hook = hooks[0];
  const bins = !hooks.length ? none("The store has no histograms of this calibration.") : figure("Histogram of a hook point", "Number of values by size: 512 bins over log10 |x| from -8 to 8, without zeros. One scale for all values must cover the right tail, even if it is far from the body." + (run.histograms_every > 1 ? " There are more than this page holds: here are those of blocks 0, " + run.histograms_every + ", " + 2 * run.histograms_every + " ..., the table activation of the store has all." : ""),
    () => shown(hook), width => histogram(() => run.histograms[hook], () => hook)(width), null,
    el("div", {class: "controls"}, el("label", {}, "Hook point ", el("select", {id: "hook", change: event => { hook = event.target.value; bins.redraw(); }}, hooks.map(name => el("option", {value: name}, shown(name)))))));
  if (hooks.length) bins.id = "histogram";
  return part("activations", "Activations",
    el("p", {}, isNumber(emergence.emergence_block) ? "Massive activations emerge in block " + emergence.emergence_block + ": outputs grow " + short(emergence.largest_growth) + " times there at most, up to " + short(emergence.max_block_out) + "."
      : "No block multiplies the largest output by 10: massive activations do not emerge" + (isNumber(emergence.max_block_out) ? "; the largest block output is " + short(emergence.max_block_out) + "." : ".")),
    through, bins,
    el("h3", {}, "The 100 largest values"), read("The largest values of all hook points, each with its token between the words around it. Massive values occur at few tokens: the first of a window, full stops, line ends." + (peaks.length && peaks.every(row => row.text_before === null) ? " The words around are not in the store: its statistics were computed from token ids, or by an earlier calm." : "")),
    peaks.length ? table([{key: row => Math.abs(row.max), label: "|x|", form: short, falling: true}, {key: "times_median", label: "Times the median", form: short}, {key: "token", label: "Token in context", cell: row => excerpt(row.text_before, row.token, row.text_after), wide: true}, {key: "window", label: "Window", form: count}, {key: "position", label: "Position", form: count},
      {key: "channel", label: "Channel", form: count}, {key: "block", label: "Block", form: count}, {key: "point", label: "Place"}], peaks, {caption: "The largest activations"}) : none("The store has none."),
    el("details", {}, el("summary", {}, "Tokens that carry the largest values"), table([{key: "token", label: "Token"}, {key: "peaks", label: "Peaks", form: count}, {key: "percent", label: "%", form: fixed(1)}, {key: "hooks", label: "Hook points", form: count}, {key: "max", label: "Largest |x|", form: short}], rowsOf(run.tokens), {caption: "Tokens by how many of the kept peaks they have"})),
    rowsOf(run.texts).length ? el("details", {}, el("summary", {}, "Largest values of each calibration text"), table([{key: "hook", label: "Hook point"}, {key: "text", label: "Text"}, {key: "max", label: "Largest |x|", form: short}, {key: "share", label: "Share of the largest over all", form: fixed(4)}, {key: "token", label: "Token"}, {key: "median", label: "Median |x|", form: short}, {key: "massive", label: "Massive tokens", form: count}, {key: "tokens", label: "Tokens", form: count}], rowsOf(run.texts), {caption: "Each calibration text alone, by hook point"})) : null,
    el("details", {}, el("summary", {}, "All hook points"), table([{key: "hook", label: "Hook point"}, {key: "max", label: "Largest x", form: short}, {key: "token", label: "Token"}, {key: "crest", label: "Crest", form: short}, {key: "crest_max", label: "Greatest crest", form: short}, {key: "ratio_max", label: "Greatest max / median", form: short},
      {key: "rms", label: "rms", form: short}, {key: "q999", label: "99.9 %", form: short}, {key: "massive", label: "Massive tokens", form: count}], rows, {caption: "Hook points"})));
}

/* ---- bits ---- */

function bitsPart(run, m) {
  const r = run.run[0], of = m.units.map(unit => ({name: unit.name, block: unit.block, weights: unit.weights, bits: (unit.cells.get(unit.chosen) || {}).bits, entry: (unit.cells.get(unit.chosen) || {}).entry})).filter(row => isNumber(row.bits));
  const kinds = [...new Set(of.map(row => row.bits))].sort((a, b) => a - b), children = [];
  if (!of.length) children.push(none("No unit has a chosen candidate, so there are no bits to show."));
  else if (kinds.length === 1) children.push(el("p", {}, "Every unit that was quantized has " + short(kinds[0]) + " bits per weight, scales and zeros included."));
  else {
    children.push(figure("Bits of each unit", "Units in the order of the model; a budget gives bits where they save most loss for their weights.", kinds.map(k => of.filter(row => row.bits === k).length + " units at " + short(k) + " bits").join(", "),
      lines(kinds.map(k => ({label: short(k) + " bits", points: of.map((row, i) => [i, row.bits]).filter(p => p[1] === k)})), {x: "unit, in the order of the model", y: "bits per weight", log: false}),
      table([{key: "name", label: "Unit"}, {key: "bits", label: "Bits", form: short}, {key: "weights", label: "Weights", form: count}, {key: "entry", label: "Chosen"}], of, {caption: "Bits of units"})));
  }
  const budgets = evaluationsOf(run, "budget").map(row => ({x: parseFloat(row.subject), y: lossOf(row), label: row.subject, row: row})).filter(p => isNumber(p.x) && isNumber(p.y));
  if (budgets.length) children.push(figure("Pareto curve of the budgets", "Loss on the test text against the budget of bits: what a bit more buys. The curve bends where more bits stop to help.", budgets.map(p => shown(p.label) + ": " + short(p.y)).join("; "),
    scatter(budgets.map(p => ({x: p.x, y: p.y, label: p.label, words: shown(p.label) + ": " + short(p.y)})), {x: "budget, bits per weight", y: (isEncoder(run) ? "1 - cosine" : "KL") + " (log scale)", joined: true}),
    table([{key: "subject", label: "Budget and result"}, {key: lossOf, label: "Loss", form: short}, {key: "ppl", label: "Perplexity", form: fixed(4)}], budgets.map(p => p.row), {caption: "Budgets"})));
  const others = rowsOf(run.model_runs).map(row => ({id: row.run, result: row.result, bits: row.bits, bytes: row.bytes_after, loss: isNumber(row.kl) ? row.kl : isNumber(row.cosine) ? 1 - row.cosine : null, text: row.text, windows: row.windows}));
  const own = others.find(row => row.id === r.run), same = others.filter(row => own && row.text === own.text && row.windows === own.windows && isNumber(row.bytes));
  if (same.length > 1) children.push(figure("Rate against loss: this store's results of the model", "Runs measured on the same windows. Lower and further left is better; the diamond is this run.", same.map(row => "run " + row.id + ": " + mebibytes(row.bytes) + ", " + short(row.loss)).join("; "),
    scatter(same.map(row => ({x: row.bytes / 1048576, y: row.loss, label: "run " + row.id, shape: row.id === r.run ? "diamond" : "circle", style: row.id === r.run ? "f1" : "f0", words: "run " + row.id + ", " + shown(row.result) + ": " + mebibytes(row.bytes) + ", " + short(row.loss)})), {x: "size of the result, MiB", y: (isEncoder(run) ? "1 - cosine" : "KL") + " (log scale)"}),
    table([{key: "id", label: "Run", form: count}, {key: "result", label: "Result"}, {key: "bits", label: "Bits", form: short}, {key: "bytes", label: "Bytes", form: count}, {key: "loss", label: "Loss", form: short}], same, {caption: "Results of the model"})));
  else children.push(none(budgets.length ? "The store has no other result of this model on the same windows." : "The store has one result of this model on these windows and no list of budgets, so there is no curve to draw."));
  return part("bits", "Bits", read("Bits per weight count codes, scales and zeros of the quantized linears."), children);
}

/* ---- mixtures, learned blocks, ablation ---- */

function expertsPart(run) {
  const cells = new Map(), rows = rowsOf(run.experts);
  for (const row of rows) {
    const name = /experts\.(\d+)/.exec(row.job);
    if (name) cells.set(row.block + " " + name[1], {block: row.block, expert: Number(name[1]), tokens: row.tokens, algorithm: row.algorithm});
  }
  const of = [...cells.values()];
  if (!of.length) return part("experts", "Experts", none("The model is no mixture of experts."));
  const blocks = [...new Set(of.map(c => c.block))].sort((a, b) => a - b), columns = 1 + Math.max(...of.map(c => c.expert)), mean = of.reduce((sum, c) => sum + c.tokens, 0) / of.length || 1;
  const steps = [1.5, 0.75, 0.35, 0.1], shade = tokens => { const i = steps.findIndex(s => tokens >= s * mean); return i < 0 ? 4 : i; };
  return part("experts", "Experts", figure("Calibration tokens of each expert", "A row is a block, a column an expert; experts in strong shades saw few calibration tokens, so their candidates are known least.", of.length + " experts, from " + Math.min(...of.map(c => c.tokens)) + " to " + Math.max(...of.map(c => c.tokens)) + " tokens",
    shades(blocks.length, columns, {row: r => blocks[r], column: c => c}, (r, c) => { const it = cells.get(blocks[r] + " " + c); return it ? {shade: shade(it.tokens)} : null; }),
    table([{key: "block", label: "Block", form: count}, {key: "expert", label: "Expert", form: count}, {key: "tokens", label: "Tokens", form: count}, {key: "algorithm", label: "Chosen"}], of, {caption: "Experts by calibration tokens", sort: "tokens"}),
    legend(["at least " + count(Math.ceil(1.5 * mean)) + " tokens", "at least " + count(Math.ceil(0.75 * mean)), "at least " + count(Math.ceil(0.35 * mean)), "at least " + count(Math.ceil(0.1 * mean)), "fewer"].map((words, i) => ({drawing: svg("rect", {class: "s" + i, x: 1, y: 1, width: 14, height: 14}), words: words})))));
}

function learnedPart(run) {
  const rows = rowsOf(run.learned);
  if (!rows.length) return part("learned", "Learned blocks", none("No block was learned: the run had no --learn, or stopped before learning."));
  return part("learned", "Learned blocks", figure("Error of the blocks' outputs", "Relative error of a block's output on the same few windows, before learning (square) and after (circle); left of the square is better.",
    rows.map(row => "block " + row.block + ": " + short(row.loss_before) + " to " + short(row.loss_after)).join("; "), dumbbells(rows.map(row => ({label: "block " + row.block, before: row.loss_before, after: row.loss_after})), "relative error (log scale)"),
    table([{key: "block", label: "Block", form: count}, {key: "loss_before", label: "Before", form: short}, {key: "loss_after", label: "After", form: short}, {key: "changed", label: "Codes changed", form: count}, {key: "kept", label: "Kept at its start because", wide: true}, {key: "seconds", label: "Seconds", form: fixed(1)}], rows, {caption: "Learned blocks"})));
}

function ablationPart(run) {
  const rows = rowsOf(run.ablation);
  if (!rows.length) return part("ablation", "Ablation", none("The run does not come from calm ablate."));
  const loss = row => isNumber(row.kl) ? row.kl : row.one_minus_cosine, delta = row => isNumber(row.delta_kl) ? row.delta_kl : row.delta_one_minus_cosine;
  const best = rows.filter(row => isNumber(delta(row)) && row.kind !== "random" && row.kind !== "seed").slice(0, 24);
  const all = table([{key: "subject", label: "Way of choosing"}, {key: "kind", label: "Kind"}, {key: loss, label: "Loss", form: short}, {key: delta, label: "Minus the best uniform", form: signed}, {key: "delta_se", label: "Standard error", form: short}, {key: "ppl", label: "Perplexity", form: fixed(4)},
    {key: "bits", label: "Bits", form: short}, {key: "changed_units", label: "Units changed", form: count}, {key: "failure", label: "Failure", wide: true}], rows, {caption: "Ways of choosing side by side"});
  return part("ablation", "Ablation", best.length ? figure("Ways of choosing against the best uniform run", "Left of zero is better than one algorithm everywhere; whiskers are 1.96 paired standard errors. Circles are uniform runs, diamonds choose per unit. The 24 of least loss, without chance and seeds.", best.map(row => shown(row.subject) + ": " + signed(delta(row))).join("; "),
    forest(best.map(row => ({label: row.subject, value: delta(row), error: row.delta_se, chosen: row.kind !== "uniform", words: shown(row.subject) + ": " + signed(delta(row)) + " +- " + short(row.delta_se)})), "loss minus that of the best uniform run"), null) : null, all);
}

/* ---- evaluation ---- */

function quantile(sorted, q) {
  const at = q * (sorted.length - 1), low = Math.floor(at);
  return sorted[low] + (at - low) * ((sorted[low + 1] === undefined ? sorted[low] : sorted[low + 1]) - sorted[low]);
}
/* Makes a token between the words around it, which may be absent. */
function excerpt(before, token, after) {
  return el("span", {class: "excerpt"}, shown(before), el("mark", {}, shown(token)), shown(after));
}

/* KL of single tokens of the test: quantiles, mean by position, and the worst tokens in their text. */
function tokensOf(run) {
  const quantiles = rowsOf(run.quantiles), positions = rowsOf(run.positions), worst = rowsOf(run.worst), range = row => row.first_position === row.last_position ? String(row.first_position) : row.first_position + " to " + row.last_position;
  if (!quantiles.length) return none(isEncoder(run) ? "An encoder predicts no tokens, so there is no loss by token." : "The store has no loss by token of this result: it keeps it of the final evaluation of a run with one result, not of ablations and lists of budgets, and not of an earlier calm. calm eval --detail and --worst N measure it.");
  const steps = quantiles.map(row => ({label: row.share === 1 ? "greatest" : "at most, of " + fixed(1)(100 * row.share) + " % of the tokens", kl: row.kl}));
  const children = [figure("KL by position in the window", "Mean over the predicted tokens of a range of places; ranges double. High at the left: the first tokens, which see little context, suffer most; rising to the right: the error builds up with the context.",
    positions.map(row => range(row) + ": " + short(row.kl)).join("; "), lines([{label: "position", points: positions.map((row, i) => [i, row.kl])}], {x: "position (first of its range)", y: "KL per token", names: positions.map(row => row.first_position)}),
    table([{key: range, label: "Positions"}, {key: "tokens", label: "Tokens", form: count}, {key: "kl", label: "KL", form: short}], positions, {caption: "KL by position"})),
    el("h3", {}, "KL of single tokens"), read("Nats. If the largest is hundreds of times the median, a few predictions dominate the mean."),
    table([{key: "label", label: "Quantile over tokens"}, {key: "kl", label: "KL", form: short}], steps, {caption: "Quantiles over tokens"})];
  if (worst.length) children.push(el("h3", {}, "The tokens that differ most"), read("Each token is marked in its text, with the first prediction of both models. nll is -log of the token's probability: where the result's is below the float model's, the difference does no harm."),
    table([{key: "kl", label: "KL", form: short, falling: true}, {key: "text", label: "Token in context", cell: row => excerpt(row.text_before, row.text, ""), wide: true}, {key: "best_float", label: "Float predicted", cell: row => excerpt("", row.best_float, "")}, {key: "best", label: "Result predicted", cell: row => excerpt("", row.best, "")}, {key: "nll_float", label: "nll, float", form: short}, {key: "nll", label: "nll, result", form: short},
      {key: "window", label: "Window", form: count}, {key: "position", label: "Position", form: count}], worst, {caption: "Tokens of greatest KL"}));
  return children;
}

function evaluationPart(run) {
  const r = run.run[0], rows = run.evaluations, windows = rowsOf(run.windows).filter(row => row.subject === r.result), children = [];
  if (!rows.length) return part("evaluation", "Evaluation", none("Nothing was evaluated in this run."));
  const loss = row => isNumber(row.kl) ? row.kl / row.tokens : isNumber(row.cosine) ? 1 - row.cosine : null;
  const values = windows.map(loss).filter(isNumber).sort((a, b) => a - b);
  if (values.length > 1) {
    const steps = [["least", 0], ["10 %", 0.1], ["25 %", 0.25], ["median", 0.5], ["75 %", 0.75], ["90 %", 0.9], ["greatest", 1]].map(([name, q]) => ({name: name, value: quantile(values, q)}));
    children.push(figure("Loss of each test window", "Windows by rising loss. A flat line: the error is spread evenly; a steep end: a few texts carry it.", steps.map(s => s.name + " " + short(s.value)).join(", "),
      lines([{label: "window", points: values.map((v, i) => [i + 1, v])}], {x: "windows by rising loss", y: isEncoder(run) ? "1 - cosine" : "KL per token", log: values[0] > 0 && values[values.length - 1] > 20 * values[0]}),
      table([{key: "name", label: "Quantile over windows"}, {key: "value", label: "Loss", form: short}], steps, {caption: "Quantiles over windows"})));
    children.push(el("details", {}, el("summary", {}, "The windows of greatest loss"), table([{key: "window", label: "Window", form: count}, {key: loss, label: "Loss", form: short}, {key: "tokens", label: "Tokens", form: count}, {key: row => isNumber(row.nll) ? Math.exp(row.nll / row.tokens) : null, label: "Perplexity", form: short}], windows.slice().sort((a, b) => loss(b) - loss(a)), {caption: "Test windows by falling loss"})));
  } else children.push(none("The store has no windows of a test of this result, so there are no quantiles."));
  children.push(...[].concat(tokensOf(run)));
  children.push(table([{key: "role", label: "Role"}, {key: "subject", label: "Subject"}, {key: lossOf, label: isEncoder(run) ? "1 - cosine" : "KL", form: short}, {key: "ppl", label: "Perplexity", form: fixed(4)}, {key: row => 100 * row.top1, label: "Top-1 %", form: fixed(2)}, {key: "spearman", label: "Rank correlation", form: fixed(4)}, {key: "tokens", label: "Tokens", form: count}, {key: "windows", label: "Windows", form: count}, {key: "text", label: "Text"}], rows, {caption: "All evaluations of the run"}));
  return part("evaluation", "Evaluation", read("Guard windows chose between plans, test windows decided nothing; KL is in nats per predicted token."), children);
}

/* ---- where the time went ---- */

function timePart(run) {
  const rows = rowsOf(run.stages), sum = key => rows.reduce((all, row) => all + (row[key] || 0), 0), foreseen = rows.some(row => isNumber(row.forecast_seconds)), all = sum("seconds");
  if (!(all > 0)) return part("time", "Time", none("The store has no times of this run: it was stopped, or an earlier calm made it."));
  const columns = [{key: "stage", label: "Stage"}, {key: "seconds", label: "Wall clock, s", form: fixed(2), falling: true}, {key: "cpu_seconds", label: "CPU, s", form: fixed(2), falling: true}, {key: row => 100 * row.seconds / all, label: "% of wall clock", form: fixed(1), falling: true}];
  if (foreseen) columns.push({key: "forecast_seconds", label: "Forecast, s", form: fixed(2), falling: true});
  return part("time", "Time", read("Of the run's last attempt: " + fixed(1)(all) + " s by the clock, " + fixed(1)(sum("cpu_seconds")) + " s of CPU in all threads" + (foreseen ? ", " + fixed(1)(sum("forecast_seconds")) + " s by the forecast" : "") + ". A stage with little more CPU than wall clock ran on one thread."),
    table(columns, rows, {caption: "Time by stage"}));
}

/* ---- how to repeat it ---- */

function repeatPart(run) {
  const r = run.run[0], model = run.model[0] || {}, text = run.calibration[0] || {}, word = path => /^[\w.\/-]+$/.test(path) ? path : "'" + String(path).replace(/'/g, "'\\''") + "'";
  const commands = [r.command, "calm report " + r.run + " --store " + word(data.store), "calm inspect " + word(data.store) + " show " + r.run].filter(Boolean);
  const digests = [{name: "model (configuration and weights)", sha256: model.digest}, {name: "calibration text", sha256: text.text_digest}, {name: "calibration tokens", sha256: text.tokens_digest}, {name: "run (model, calibration, recipe, version)", sha256: r.key}, ...run.artifacts.map(a => ({name: a.path, sha256: a.sha256, bytes: a.bytes}))].filter(d => d.sha256);
  return part("repeat", "How to repeat it", read("The same inputs, recipe and kernels give the same bytes; calm verify compares a run with the digests of its lock."),
    el("h3", {}, "Commands"), commands.map(command => copyable(shown(command), "Command")),
    el("h3", {}, "Digests"), digests.length ? table([{key: "name", label: "What"}, {key: "sha256", label: "SHA-256"}, {key: "bytes", label: "Bytes", form: count}], digests, {caption: "Content of inputs and outputs"}) : none("The store has no digests of this run."),
    el("h3", {}, "Environment"), facts([["calm", r.version], ...run.environment.map(e => [e.name, e.value])]),
    el("details", {}, el("summary", {}, "Recipe, resolved"), copyable(JSON.stringify(run.recipe, null, 2), "Recipe")));
}

/* ---- two runs ---- */

function effectOf(row) {
  const a = row.first, b = row.second;
  if (!isNumber(a) || !isNumber(b)) return null;
  if (/^(delta_)?log_/.test(row.metric)) return Math.abs(b - a);
  return a > 0 && b > 0 ? Math.abs(Math.log(b / a)) : Math.abs(b - a);
}
function differencePart(diff, first, second) {
  const scores = diff.scores.map(row => Object.assign({effect: effectOf(row)}, row)), figures = [];
  const changed = new Map();
  for (const row of scores) { const key = row.block + " " + row.job; changed.set(key, Math.max(changed.get(key) || 0, row.effect || 0)); }
  const choices = diff.choices.map(row => Object.assign({effect: changed.get(row.block + " " + row.job)}, row)), sides = [{key: "first", label: "Run " + first.run[0].run}, {key: "second", label: "Run " + second.run[0].run}];
  for (const row of diff.evaluations)
    for (const [key, label] of [["kl", "KL"], ["ppl", "perplexity"], ["top1", "top-1"], ["cosine", "cosine"]])
      if (isNumber(row[key + "_first"]) && isNumber(row[key + "_second"]))
        figures.push({what: row.role + " " + row.subject + ", " + label, first: row[key + "_first"], second: row[key + "_second"], difference: row[key + "_second"] - row[key + "_first"], same: row.same_text ? "yes" : "no", effect: effectOf({first: row[key + "_first"], second: row[key + "_second"]})});
  const number = sides.map(s => Object.assign({form: short}, s)), effect = {key: "effect", label: "Effect", form: short};
  const list = (title, words, columns, rows, sort) => [el("h3", {}, title), rows.length ? [read(words), table(columns, rows, {caption: title, sort: sort})] : none("No difference.")];
  return part("difference", "What differs", read("Run " + first.run[0].run + " against run " + second.run[0].run + ", the largest effects first. An effect is |log(second / first)|, of scores that are logarithms already |second - first|: 0.69 is a factor of two."),
    list("Figures", "Evaluations that both runs have; on different texts they cannot be compared.", [{key: "what", label: "What"}, ...number, {key: "difference", label: "Difference", form: signed}, effect, {key: "same", label: "Same text"}], figures, "-effect"),
    list("Choices", "Units with different candidates, by the largest change of a score.", [{key: "block", label: "Block", form: count}, {key: "job", label: "Job"}, ...sides, effect, {key: "unit", label: "Unit"}], choices, "-effect"),
    list("Scores of what was chosen", "The same score of both choices.", [{key: "block", label: "Block", form: count}, {key: "job", label: "Job"}, {key: "metric", label: "Score"}, ...number, {key: "difference", label: "Difference", form: signed}, effect], scores, "-effect"),
    list("Recipe", "Values by their JSON pointer.", [{key: "pointer", label: "Value"}, ...sides], diff.recipe), list("Run and calibration", "Facts of the runs.", [{key: "name", label: "What"}, ...sides], diff.run.concat(diff.calibration)),
    list("Environment", "Program, libraries, machine.", [{key: "name", label: "What"}, ...sides], diff.environment));
}

/* ---- the page ---- */

/* Has a part any content? */
function holds(part) { return !!part.querySelector("figure, table, dl, pre, .cards"); }
function show(run) {
  const m = unpack(run.matrix), main = document.getElementById("main"), parts = [];
  plots.length = tables.length = 0;
  figureNumber = 0;
  if (data.diff) parts.push(differencePart(data.diff, data.runs[0], data.runs[1]));
  parts.push(summaryPart(run), guardPart(run), matrixPart(run, m), activationsPart(run), bitsPart(run, m), expertsPart(run), evaluationPart(run), ablationPart(run), learnedPart(run), timePart(run), repeatPart(run));
  main.replaceChildren(...parts);
  document.getElementById("contents").replaceChildren(el("ul", {}, parts.filter(holds).map(p => el("li", {}, el("a", {href: "#" + p.id}, p.querySelector("h2").textContent)))));
  for (const plot of plots) plot.redraw();
}
function head(run) {
  const r = run.run[0], choose = data.runs.length > 1 ? el("p", {class: "controls"}, el("label", {}, "The parts below are of ", el("select", {id: "which-run", change: event => { show(data.runs[event.target.value]); head(data.runs[event.target.value]); document.getElementById("which-run").value = event.target.value; }},
    data.runs.map((other, i) => el("option", {value: i, selected: other === run}, "run " + other.run[0].run + ", " + shown(other.run[0].model) + (other.recipe && typeof other.recipe.scheme === "string" ? ", " + shown(other.recipe.scheme) : "")))))) : null;
  document.getElementById("top").replaceChildren(el("h1", {}, (data.runs.length > 1 ? "Runs " + data.runs.map(other => other.run[0].run).join(", ").replace(/, ([^,]*)$/, " and $1") + "; parts of run " : "Run ") + r.run + ": " + shown(r.model)),
    el("p", {class: "quiet"}, el("span", {class: "status " + (r.status === "finished" ? "good" : "bad")}, shown(r.status)), " ", [r.started, r.version && "calm " + shown(r.version)].filter(Boolean).join(", ")), choose || "");
}
function begin() {
  if (!data.runs.length) {
    document.getElementById("top").replaceChildren(el("h1", {}, "A store without runs"));
    document.getElementById("main").replaceChildren(el("section", {id: "empty"}, el("p", {}, "The store ", el("code", {}, shown(data.store)), " has no runs yet. calm quantize makes the first.")));
  } else {
    head(data.runs[0]);
    show(data.runs[0]);
  }
  document.getElementById("foot").replaceChildren(el("p", {}, "Written by calm " + shown(data.calm) + " from " + shown(data.store) + ". All figures are in this page as JSON (calm report --json prints the same); nothing is fetched."));
  listenToPrinter();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => plots.forEach(plot => plot.redraw()), 80); });
  document.addEventListener("toggle", () => plots.forEach(plot => plot.redraw()), true);
}
begin();
