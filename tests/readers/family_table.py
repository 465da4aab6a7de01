"""Makes the table of families in docs/families.md from the reference fixtures.

    family_table.py PROGRAMS WORK [--vllm PYTHON] [--columns "W4 read back" ...] [--only FAMILY...] [--write FILE]
                    [--also CELLS.json...]

PROGRAMS: the build folder.  WORK: a folder for output files.  Fixtures are those of $CALM_FIXTURES/families (default
../shared/fixtures).  Columns for each fixture that calm reads:

  logits, hidden   largest difference from transformers' (tests/golden/test_model_fixtures.c), as a share of the largest value
  router           the same experts for every token
  W4 read back     calm quantize, 4 bits in groups of 8; transformers with compressed-tensors loads it, and its logits
                   differ from calm's by this share of the largest, at the median token (field_families.py);
                   "dequantized": it reads experts only in one tensor, so it reads the output of calm dequantize
  check            calm check finds nothing
  GGUF             llama.cpp loads the float model's file; logits differ from transformers' by this share of their
                   standard deviation (gguf_reader.py), or why there is none; for encoders of their hidden states
  vLLM             its CPU build loads checkpoints quantized from the fixture with config.classic.json; "runs": and computes
                   calm's loss (decoders) or hidden states (encoders) (vllm_loads.py).  "runs, experts float": it has no
                   kernel for experts, which stay float; "runs, up and gate float": it does not read the first linear
                   of GTE's MLP with 4 bits, because it halves weight_shape too;
                   "no class": vLLM has no class of the family, and its fallback to transformers fails

"-": not run.  WORK/cells.json keeps cells, so that a stopped run continues; --write keeps cells
of FILE that were not run.  --also: cells of runs over larger fixtures of the same names (make_families.py --params), for GGUF if
every fourth block differs, and for vLLM, whose CPU attention needs heads of 32 or more.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Routed experts, and vLLM's messages if it has no kernel for them.
EXPERTS = r"re:.*\.experts\..*"
NO_EXPERTS = re.compile(r"MoE backend|MoE.*(support|kernel)")
# Linears that stay float so that vLLM runs a family's checkpoint, and the cell's words for that.
FLOAT = {"gte": (r"re:.*\.up_gate_proj", "up and gate float")}
# Published names of architectures for which transformers 5 writes a name that vLLM does not have.
PUBLISHED = {"PhimoeForCausalLM": "PhiMoEForCausalLM"}
# Messages of vLLM, and the cell's words for them.
REASONS = {r'scoring_func == "softmax"': "no kernel for its router",
           r"no kernel for MoE": "no kernel for its experts"}
COLUMNS = ["logits", "hidden", "router", "W4 read back", "check", "GGUF", "vLLM"]


def run(words, seconds=300, **more):
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, **more)
    except subprocess.TimeoutExpired:
        return 124, f"no end within {seconds} s"
    return done.returncode, done.stdout + done.stderr


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "nothing said"


def short(text, limit=90):
    text = re.sub(r"^calm: |^gguf: |/\S+/(?=[^/\s]+)", "", text.replace("|", "/"))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def outputs(opts):
    """Returns the golden test's result for each fixture; None if calm does not know the family."""
    code, text = run([f"{opts.programs}/tests/test_model_fixtures"], 900, env={**os.environ, "CK_FORK": "no"})
    if code:
        sys.exit(last_line(text))
    after = text[text.rindex("ok qwen3_yarn") :]
    rows = {name: None for name in re.findall(r"^not known: (\S+)", after, re.M)}
    for name, logits, hidden, router in re.findall(r"^ok (\S+), output (\S+), hidden (\S+), router (\S+)", after, re.M):
        rows[name] = {"logits": logits, "hidden": hidden, "router": router}
    rows.pop("qwen3_yarn", None)
    return rows


class Family:
    def __init__(self, opts, name):
        self.opts, self.name = opts, name
        self.source = os.path.join(opts.fixtures, name)
        self.out = os.path.join(opts.work, name)
        self.tokens = os.path.join(opts.work, "tokens.jsonl")

    def calm(self, *words):
        return run([f"{self.opts.programs}/calm", *words])

    def quantize(self, *words):
        code, text = self.calm("quantize", "--model", self.source, "--scheme", self.opts.scheme, "--algorithms", "rtn,gptq",
                               "--tokens", self.tokens, "--samples", "8", "--seqlen", "32", "--guard-samples", "0",
                               "--expert-tokens", "1", "--no-eval", "--quiet", "--force", "--output", self.out,
                               "--store", self.out + ".db", *words)  # fmt: skip
        return None if code == 0 else short(last_line(text))

    def read_back(self):
        refused = self.quantize()
        if refused:
            return refused
        code, text = self.calm("forward", "--model", self.out, "--tokens", self.tokens, "--output",
                               f"{self.out}/calm.safetensors", "--quiet")  # fmt: skip
        if code:
            return short(last_line(text))
        if "experts" in open(f"{self.source}/config.json", encoding="utf-8").read():
            self.calm("dequantize", self.out, "-o", self.out + ".float", "--dtype", "f32", "--force", "--quiet")
        _, text = run([sys.executable, f"{HERE}/field_families.py", self.tokens, self.out])
        os.remove(f"{self.out}/calm.safetensors")
        line = next((x for x in text.splitlines() if x.startswith(self.name + ":")), last_line(text))
        found = re.search(r"(same|DIFFERENT), (\S+) of the largest value, at worst (\S+)", line)
        if "NOT READ" in line and "missing_keys" in line and "experts" in line:
            return "not read: experts in one tensor alone"
        if "transformers does not read it" in line:
            return "not read: packed"
        if not found:
            return short(line.split(": ", 1)[-1])
        dequantized = " (dequantized)" if "; dequantized)" in line else ""
        return f"{found[2]}{'' if found[1] == 'same' else ' DIFFERENT'}{dequantized}"

    def check(self):
        if not os.path.isdir(self.out):
            return "-"
        code, text = self.calm("check", self.out)
        return "clean" if code == 0 else short(last_line(text))

    def gguf(self):
        folder = self.out + ".gguf"
        code, text = run([f"{self.opts.programs}/tests/write_gguf", self.source, "float", folder, "f32"],
                         env={**os.environ, "CK_FORK": "no"})  # fmt: skip
        if code:
            found = re.search(r"EUNSUPPORTED: (?:gguf: )?(.*)", text)
            if "calm does not write" in text:
                return "not written"
            return short(re.sub(r"^\S+/\S+: ", "", found[1]) if found else last_line(text))
        with open(f"{self.source}/config.json", encoding="utf-8") as stream:
            classes = json.load(stream)["architectures"]
        mode = "rows" if all(name.endswith(("Model", "ForMaskedLM")) for name in classes) else "logits"
        _, text = run([sys.executable, f"{HERE}/gguf_reader.py", mode, "1e9", self.source, folder])
        # transformers has no class for the text model alone: the script loads it and does not compare.
        if "Model type should be one of" in text:
            code, text = run([sys.executable, f"{HERE}/gguf_reader.py", "load", folder])
            return "loads" if code == 0 else short(last_line(text))
        found = re.search(r"differ by (\S+) of", text)
        return found[1] if found else short(last_line(text))

    def load_vllm(self):
        """Returns vLLM's result for the checkpoint: runs, loads, or its error."""
        ours = f"{self.out}.calm.safetensors"
        two = f"{self.out}.two.jsonl"
        with open(self.tokens, encoding="utf-8") as stream, open(two, "w", encoding="utf-8") as out:
            out.writelines(stream.readlines()[:2])
        code, text = self.calm("forward", "--model", self.out, "--tokens", two, "--output", ours, "--hidden", "--quiet")
        if code:
            return short(last_line(text))
        code, text = run([self.opts.vllm, f"{HERE}/vllm_loads.py", self.out, two, ours], 600)
        os.remove(ours)
        with open(self.out + ".vllm.log", "w", encoding="utf-8") as stream:
            stream.write(text)
        errors = re.findall(r"\w*Error: .*", text)
        if code == 0:
            return "runs"
        for said, cell in REASONS.items():
            if re.search(said, text):
                return cell
        found = re.search(r"^(loss .*|cosine .*)$", text, re.M)
        return ("loads" + (f": {found[1]}" if found else "") if re.search("^loaded", text, re.M)
                else short(errors[-1] if errors else last_line(text)))  # fmt: skip

    def published(self):
        """Returns the checkpoint with its config in the published form, which vLLM expects."""
        folder = self.out + ".source"
        classic = os.path.join(self.source, "config.classic.json")
        if not os.path.exists(classic):
            classic = os.path.join(self.source, "config.json")
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(self.source):
            path = os.path.join(folder, name)
            if not os.path.lexists(path) and not name.startswith("config."):
                os.symlink(os.path.join(self.source, name), path)
        with open(classic, encoding="utf-8") as stream:
            config = json.load(stream)
        config["architectures"] = [PUBLISHED.get(name, name) for name in config["architectures"]]
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as stream:
            json.dump(config, stream, indent=2)
        return folder

    def vllm(self):
        if not self.opts.vllm:
            return "-"
        self.source = self.published()
        pattern, words = FLOAT.get(self.name, (EXPERTS, "experts float"))
        refused = self.quantize()
        said = refused or self.load_vllm()
        if refused or not (self.name in FLOAT or NO_EXPERTS.search(said)):
            return said
        refused = self.quantize("--keep-float", pattern)
        said = refused or self.load_vllm()
        return f"{said}, {words}" if said in ("runs", "loads") else said


def write_tokens(path):
    with open(path, "w", encoding="utf-8") as stream:
        for line in range(8):
            ids = [3 + (line * 977 + i * i * 31 + i * 7) % 300 for i in range(32)]
            stream.write(json.dumps({"ids": ids}) + "\n")


def table(rows, cells):
    out = ["| family | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for name in sorted(rows):
        if rows[name]:
            row = {**rows[name], **cells.get(name, {})}
            out.append(f"| {name} | " + " | ".join(row.get(column, "-") for column in COLUMNS) + " |")
    return "\n".join(out) + "\n"


def add_cells(cells, others):
    """Adds cells of another run that say more: a number or "loads" instead of words or "-"."""
    for name, other in others.items():
        for column in ("GGUF", "vLLM"):
            said = other.get(column, "-")
            mine = cells.setdefault(name, {}).get(column, "-")
            if mine == "-" or (re.match(r"[\d.]+(e-\d+)?$|loads|runs", said) and not re.match(r"[\d.]", mine)):
                cells[name][column] = said


def written(path):
    """Reads the cells of the table in a page, by family and column."""
    with open(path, encoding="utf-8") as stream:
        lines = re.findall(r"^\| (\w+) \|(.*)\|$", stream.read(), re.M)
    return {name: dict(zip(COLUMNS, (cell.strip() for cell in row.split(" | "))))
            for name, row in lines if name != "family"}  # fmt: skip


def write(path, rows, cells):
    """Replaces the part between the two marks."""
    begin, end = "<!-- families -->\n", "<!-- /families -->\n"
    with open(path, encoding="utf-8") as stream:
        text = stream.read()
    missing = " ".join(sorted(name for name in rows if not rows[name]))
    head, rest = text.split(begin)
    others = f"Not read: {missing}." if missing else "".join(re.findall(r"^Not read: .*", rest, re.M)[:1])
    part = table(rows, cells) + (f"\n{others}\n" if others else "")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(head + begin + "\n" + part + "\n" + end + rest.split(end)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs")
    parser.add_argument("work")
    parser.add_argument("--vllm")
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--columns", nargs="*", default=COLUMNS)
    parser.add_argument("--scheme", default="w4a16_g8")
    parser.add_argument("--also", nargs="*", default=[])
    parser.add_argument("--write")
    opts = parser.parse_args()
    root = os.environ.get("CALM_FIXTURES", os.path.join(HERE, "../../../shared/fixtures"))
    opts.fixtures = os.path.join(os.path.abspath(root), "families")
    os.makedirs(opts.work, exist_ok=True)
    write_tokens(os.path.join(opts.work, "tokens.jsonl"))
    kept = os.path.join(opts.work, "cells.json")
    cells = json.load(open(kept, encoding="utf-8")) if os.path.exists(kept) else {}
    # Keeps the page's cells of columns that were not requested.
    compared = {"logits", "hidden", "router"} & set(opts.columns)
    page = written(opts.write) if opts.write else {}
    rows = outputs(opts) if compared or not page else page
    for name in sorted(rows):
        if not rows[name] or (opts.only and name not in opts.only):
            continue
        family, row = Family(opts, name), cells.setdefault(name, {})
        for column, step in {"W4 read back": family.read_back, "check": family.check, "GGUF": family.gguf,
                             "vLLM": family.vllm}.items():  # fmt: skip
            if column in opts.columns and (row.get(column, "-") == "-" or opts.only):
                row[column] = step()
        print(name, json.dumps(row), flush=True)
        with open(kept, "w", encoding="utf-8") as stream:
            json.dump(cells, stream, indent=1)
    for name, row in page.items():
        kept_cells = {c: v for c, v in row.items() if c not in compared}
        cells[name] = {**kept_cells, **{c: v for c, v in cells.get(name, {}).items() if v != "-"}}
    for path in opts.also:
        add_cells(cells, json.load(open(path, encoding="utf-8")))
    if opts.write:
        write(opts.write, rows, cells)
    print(table(rows, cells))


main()
