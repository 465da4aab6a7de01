"""Tests calm_ptq with a library of the build: results, reports, progress, keywords, the example notebook.

    python_api.py LIBRARY PROGRAM PACKAGE-FOLDER [NOTEBOOK]

Exit status 77: without numpy, or with NOTEBOOK without nbclient and ipykernel."""

import ast
import io
import json
import math
import os
import re
import signal
import sys
import tempfile
import threading

library, program, folder = (os.path.abspath(path) for path in sys.argv[1:4])
notebook = os.path.abspath(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[4] else None
try:
    import numpy    # noqa: F401

    if notebook:
        import ipykernel    # noqa: F401
        import nbclient
        import nbformat
except ImportError as error:
    print(f"SKIP: {error} (the Python that runs the tests needs it)")
    sys.exit(77)
os.environ.update(CALM_LIBRARY=library, CALM_PROGRAM=program,
                  PYTHONPATH=folder + os.pathsep + os.environ.get("PYTHONPATH", ""))
sys.path.insert(0, folder)
import calm_ptq    # noqa: E402
from calm_ptq import _library, _progress    # noqa: E402
from fails import fails    # noqa: E402

SMALL = dict(bits=4, algorithms=["rtn", "gptq"], samples=4, seqlen=32, score_samples=1, guard_samples=2, eval_samples=2)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def results():
    shown = []
    came = calm_ptq.quantize(model="qwen", output="out", store="s.db", progress=lambda *state: shown.append(state), **SMALL)
    assert shown and all(len(state) == 3 for state in shown) and 4 < came.bits_per_weight < 4.5, came
    # All forms of the report have the same figures, and none of what was not measured.
    text, page, rich = str(came), came._repr_html_(), dict(came.__rich_repr__())
    for figure in (f"{came.ppl:.4f}", f"{came.kl:.4f}" if came.kl >= 1e-4 else f"{came.kl:.3e}", came.result, "out"):
        assert figure in text and figure in page and any(figure in value for value in rich.values()), (figure, text, page)
    assert math.isnan(came.cosine) and "cosine" not in text and "cosine" not in page and "cosine_to_float" not in rich
    assert "Outcome(run=1" in repr(came)
    # Text from outside is escaped in HTML.
    import dataclasses
    hostile = dataclasses.replace(came, result="<script>x</script>", output='"><b>')
    assert "<script>" not in hostile._repr_html_() and "<b>" not in hostile._repr_html_()

    written = came.report()
    with open("report.html", encoding="utf-8") as stream:
        title = re.search("<title>(.*?)</title>", stream.read())
    assert written.path == "report.html" and title and title[1] == f"calm run {came.run}: qwen", (written, title)
    assert "report.html" in written._repr_html_()
    fails("EIO", "report.html", came.report, force=False)
    fails("EIO", "no run", dataclasses.replace(came, run=9).report, "nine.html")
    os.environ["CALM_PROGRAM"] = os.path.abspath("absent")
    fails("EIO", "absent", came.report)
    os.environ["CALM_PROGRAM"] = program

    figures = calm_ptq.evaluate("out", reference="qwen", seqlen=32, samples=2)
    assert f"{figures.ppl:.4f}" in figures._repr_html_() and "cosine" not in figures._repr_html_()


def keywords():
    # A list of numbers is a single value; a list of words is several values.
    came = calm_ptq.quantize("qwen", store="k.db", scheme=["w4a16_g128", "w3a16_g128"], budget=[3.3, 4.0], blocks=0,
                             **{key: value for key, value in SMALL.items() if key != "bits"})
    with calm_ptq.read_store("k.db") as store:
        recipe = json.loads(str(store.query("SELECT recipe FROM run")["recipe"][0]))
        for rows in store.choices(came.run), store.candidates(came.run):
            assert rows["rel_mse"].dtype == rows["bits"].dtype == float and (rows["one_minus_cka"] > 0).all(), rows
        assert recipe["budget"] == [3.3, 4.0] and recipe["schemes"] == ["w4a16_g128", "w3a16_g128"], (came, recipe)
    fails("EARG", '"eval_samples"', calm_ptq.quantize, "qwen", eval_sample=1)
    # Messages name the keywords, neither keys of a recipe nor options of the command line.
    fails("EARG", "`bits` 5: expected 2, 3, 4 or 8 (see `scheme` for", calm_ptq.quantize, "qwen", bits=5)
    fails("EARG", "`bits` 8 and `scheme` W4A16 are different", calm_ptq.quantize, "qwen", bits=8, scheme="W4A16")
    fails("EARG", "`bits`: expected a whole number, found", calm_ptq.quantize, "qwen", bits="four")
    fails("EARG", "`no_eval`: expected true or false", calm_ptq.quantize, "qwen", no_eval="maybe")
    fails("EARG", 'quantize has no keyword "bts"; did you mean "bits"?', calm_ptq.quantize, "qwen", bts=4)
    fails("EARG", "`format` awq cannot hold w8a16: ", calm_ptq.quantize, "qwen", bits=8, format="awq")
    # The stub is valid Python, and has the keywords of the function and those of the program.
    with open(os.path.join(folder, "calm_ptq", "_quantize.pyi"), encoding="utf-8") as stream:
        of = next(node for node in ast.parse(stream.read()).body if isinstance(node, ast.FunctionDef))
    names = [argument.arg for argument in of.args.args + of.args.kwonlyargs]
    assert len(names) == len(set(names)) > 40 and {"model", "output", "recipe", "lock", "threads", "progress", "bits",
                                                   "eval_samples", "kv_cache"} <= set(names), names
    assert "calibration windows" in ast.get_docstring(of)


def progress():
    terminal = Terminal()
    bar = calm_ptq.ProgressBar(interval=0, file=terminal)
    for done in range(3):
        bar("quantize", done, 2)
    bar("evaluate", 5, 0)
    said = terminal.getvalue()
    assert "\rquantize   [------------------------] 0/2" in said and "[########################] 2/2" in said, said
    assert "evaluate   5" in said and bar.stages == ["quantize", "evaluate"]
    bar.close()
    assert terminal.getvalue().endswith("\r")
    # A stream that is no terminal is not drawn on.  States come no faster than the interval, except new stages and the end.
    quiet = io.StringIO()
    calm_ptq.ProgressBar(file=quiet)("score", 1, 2)
    assert quiet.getvalue() == ""
    slow = Terminal()
    bar = calm_ptq.ProgressBar(interval=1e6, file=slow)
    for done in range(100):
        bar("score", done, 100)
    assert slow.getvalue().count("\r") == 1, slow.getvalue()
    bar("score", 100, 100)
    assert slow.getvalue().count("\r") == 2
    assert not _progress._in_notebook()


def interrupts():
    """An exception of a callback, or Ctrl-C, ends a run; the same call continues it to the bytes of "out" (by results())."""
    class Refusal(Exception):
        pass

    def refuse(stage, done, total):
        if stage == "quantize" and done:
            raise Refusal

    # The run waits in its callback until the main thread has passed the signal on: it could end before that.
    interrupt, interrupted = _library.library.calm_interrupt, threading.Event()

    def notice(context):
        interrupt(context)
        interrupted.set()

    def press(stage, done, total):
        if stage == "score" and done and not interrupted.is_set():
            _library.library.calm_interrupt = notice
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupted.wait(60)

    for progress, error in ((refuse, Refusal), (press, KeyboardInterrupt)):
        try:
            calm_ptq.quantize(model="qwen", output="ended", store="ended.db", progress=progress, **SMALL)
        except error:
            assert not os.path.exists("ended"), error
        else:
            raise AssertionError(f"no {error}")
    _library.library.calm_interrupt = interrupt
    calm_ptq.quantize(model="qwen", output="ended", store="ended.db", **SMALL)
    with open("out/model.safetensors", "rb") as whole, open("ended/model.safetensors", "rb") as ended:
        assert whole.read() == ended.read()
    # When the system cannot start a thread the call fails, and the context is closed.
    def start(_):
        raise RuntimeError("can't start new thread")

    real, threading.Thread.start = threading.Thread.start, start
    try:
        calm_ptq.quantize(model="qwen", output="none", store="none.db", **SMALL)
    except RuntimeError as error:
        assert "new thread" in str(error), error
    else:
        raise AssertionError("a call without a thread")
    finally:
        threading.Thread.start = real


def notebooks():
    with open(notebook, encoding="utf-8") as stream:
        book = nbformat.read(stream, 4)
    nbformat.validate(book)
    assert not any(cell.get("outputs") for cell in book.cells), "the notebook is kept without outputs"
    nbclient.NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": os.getcwd()}}).execute()
    outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
    pages = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    bars = [output for output in outputs if output["output_type"] == "display_data"]
    assert any("bits per weight" in page for page in pages) and any("report.html" in page for page in pages), pages
    assert len(bars) == 1 and "/" in bars[0]["data"]["text/plain"], bars    # one output, replaced as the run goes on
    assert os.path.getsize("report.html") > 0 and os.path.getsize("out/model.safetensors") > 0


with tempfile.TemporaryDirectory() as work:
    os.chdir(work)
    for part in [notebooks] if notebook else [progress, results, interrupts, keywords]:
        part()
        print(f"{part.__name__}: ok", flush=True)
    os.chdir("/")
