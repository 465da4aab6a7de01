"""Tests an installed calm_ptq: python wheel.py FOLDER, in a virtual environment that has it."""

import math
import os
import shutil
import sqlite3
import subprocess
import sys

import numpy as np

import calm_ptq
from library.fails import fails


def program():
    path = shutil.which("calm")
    assert path and os.path.dirname(path) == os.path.dirname(sys.executable), path
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    assert said.split()[1] == calm_ptq.version(), said
    assert subprocess.run([path, "quantise"], capture_output=True).returncode == 2
    assert "qwen-w4" in subprocess.run([path, "recipe", "list"], capture_output=True, text=True, check=True).stdout
    # The README's first command, with few windows, and the page of its run.
    subprocess.run([path, "quantize", "--model", "qwen", "--bits", "4", "--samples", "16", "--eval-samples", "16", "--quiet"],
                   stdout=subprocess.DEVNULL, check=True)
    assert os.path.getsize("calm-out/qwen-w4a16_g128/model.safetensors") > 0
    subprocess.run([path, "report", "--quiet"], check=True)
    assert "<title>calm run 1: qwen</title>" in open("report.html", encoding="utf-8").read()


def runs():
    stages = []
    run = calm_ptq.quantize("qwen", "out", store="s.db", bits=4, algorithms=["rtn", "gptq"], samples=16, seqlen=128,
                            guard_samples=4, eval_samples=8, pin={"0.down": "gptq*"},
                            progress=lambda stage, done, total: stages.append(stage))
    assert os.path.getsize("out/model.safetensors") > 0 and run.output == "out" and run.run == 1, run
    assert 4 < run.bits_per_weight < 4.5 and run.bytes_after < run.bytes_before and math.isnan(run.cosine), run
    assert {"calibrate", "quantize", "score", "evaluate"} <= set(stages), set(stages)
    again = calm_ptq.quantize("qwen", "out", store="s.db", bits=4, algorithms=["rtn", "gptq"], samples=16, seqlen=128,
                              guard_samples=4, eval_samples=8, pin={"0.down": "gptq*"}, force=True)
    assert again.n_cached > 0 and again.ppl == run.ppl and again.kl == run.kl, (run, again)
    fails("EEXIST", "out", calm_ptq.quantize, "qwen", "out", store="s.db", no_eval=True)
    fails("ENOTFOUND", "qwenn", calm_ptq.quantize, "qwenn", "other", store="s.db")
    fails("EARG", "eval-samples", calm_ptq.quantize, "qwen", eval_sample=1)
    fails("EARG", "bits", calm_ptq.quantize, "qwen", bits=1)

    figures = calm_ptq.evaluate("out", reference="qwen", seqlen=128, samples=8)
    assert figures.n_windows == 8 and figures.ppl == run.ppl and abs(figures.kl - run.kl) < 1e-9, (figures, run)
    fails("ENOTFOUND", "nowhere", calm_ptq.evaluate, "./nowhere")
    with open("tasks.jsonl", "w") as file:
        file.write('{"context": "A dog is an", "choices": [" animal", " idea"], "answer": 0}\n' * 3)
    answers = calm_ptq.answer("out", "tasks.jsonl", reference="qwen")
    assert answers.n_tasks == 3 and answers.acc in (0.0, 1.0), answers


def stores():
    with calm_ptq.read_store("s.db") as store:
        listed = store.runs()
        assert len(listed["run"]) == 2 and listed["run"].dtype == np.int64, listed
        choices = store.choices(1)
        assert len(choices["job"]) == 24 and {str(name) for name in choices["algorithm"]} <= {"rtn", "gptq"}, choices
        assert len(store.candidates(1)["job"]) == 48
        assert store.query("SELECT max(value) AS most FROM v_scores WHERE metric = ?", "cka")["most"].dtype == np.float64
        fails("ENOTFOUND", "no run 9", store.choices, 9)
        fails("EARG", "no such table", store.query, "SELECT * FROM absent")
        fails("EARG", "readonly", store.query, "DELETE FROM run")
    assert not os.path.exists("s.db-wal") and not os.path.exists("s.db-shm")
    fails("ENOTFOUND", "none.db", calm_ptq.read_store, "none.db")
    with open("text.db", "w") as file:
        file.write("not a database, but longer than the hundred bytes that SQLite reads first of a file " * 3)
    fails("EFORMAT", "not a store", calm_ptq.read_store, "text.db")
    sqlite3.connect("empty.db").execute("CREATE TABLE t (a)")
    fails("EFORMAT", "no runs", calm_ptq.read_store, "empty.db")
    shutil.copy("s.db", "newer.db")
    newer = sqlite3.connect("newer.db")
    newer.execute("PRAGMA user_version = 99")
    newer.commit()
    newer.close()
    fails("EUNSUPPORTED", "version 99, expected", calm_ptq.read_store, "newer.db")


def wide(w, x):
    """Doubles the columns of w and x: 256 columns make a super-block."""
    return np.hstack([w, w]), np.hstack([x, x])


def matrices():
    draw = np.random.default_rng(0)
    w, x = draw.standard_normal((24, 128)), draw.standard_normal((256, 16)) @ draw.standard_normal((16, 128))
    x += 0.1 * draw.standard_normal(x.shape)    # correlated inputs: what GPTQ uses and rounding does not
    found = {name: calm_ptq.quantize_matrix(w, x, algorithm=name, scheme="w3a16_g64") for name in ("rtn", "gptq")}
    for one in found.values():
        assert one.codes.shape == w.shape and one.codes.max() < 8 and one.scales.shape == (24, 2), one
        zeros = np.float32(4) if one.zeros is None else np.repeat(one.zeros.astype(np.float32), one.group, axis=1)
        expected = (one.codes.astype(np.float32) - zeros) * np.repeat(one.scales, one.group, axis=1)
        assert one.in_scale is None and np.array_equal(expected, one.weights)
    assert found["gptq"].scores["rel_mse"] < found["rtn"].scores["rel_mse"], found
    one = calm_ptq.quantize_matrix(*wide(w, x), scheme="q4_k", algorithm="rtn")
    expected = one.codes.astype(np.float32) * np.repeat(one.scales, 32, axis=1) + np.repeat(one.mins, 32, axis=1)
    assert one.mins.min() < 0 and np.allclose(expected, one.weights, atol=1e-6), one
    fails("EARG", "expected w [out, in]", calm_ptq.quantize_matrix, w, x[:, :5])
    fails("EARG", "gptqq", calm_ptq.quantize_matrix, w, x, algorithm="gptqq")
    fails("ENUMERIC", "x[0, 0]", calm_ptq.quantize_matrix, w, np.full((8, 128), np.nan))


os.chdir(sys.argv[1])
for part in (program, runs, stores, matrices):
    part()
    print(f"{part.__name__}: ok")
