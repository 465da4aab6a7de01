"""Post-training quantization of language models: calm as a Python package.

    quantize(model, output, bits=4)      a checkpoint, a store with the evidence; .report() writes the page about it
    evaluate(output, reference=model)    perplexity, KL divergence, agreement; accuracy on tasks
    read_store(store)                    tables of a store, as NumPy arrays
    quantize_matrix(w, x)                one matrix

A failure is a CalmError with calm's sentence.  Notes and warnings go to the logger "calm_ptq".
"""

from __future__ import annotations

import contextlib
import ctypes as c
import math
import os
import sqlite3
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calm_ptq import _library
from calm_ptq._library import METRICS, CalmError, Context, library
from calm_ptq._outcome import Outcome, Path, Report, figure, table
from calm_ptq._progress import Progress, ProgressBar, Shown, shown
from calm_ptq._quantize import quantize

__all__ = ["CalmError", "Evaluation", "Matrix", "Outcome", "Progress", "ProgressBar", "Report", "Store", "TaskAnswers",
           "__version__", "answer", "evaluate", "quantize", "quantize_matrix", "read_store", "version"]

Floats = NDArray[np.float32]


def version() -> str:
    """Returns the version of the library: "0.1.0"."""
    text: bytes = library.calm_version()
    return text.decode()


__version__ = version()


def _bytes(path: Optional[Path]) -> Optional[bytes]:
    return None if path is None else os.fsencode(path)


# ---- evaluation ----


@dataclass(frozen=True)
class Evaluation:
    """Means over a text: the last four for encoders, the others for decoders.  A figure that was not measured is NaN."""

    n_windows: int
    n_tokens: int
    nll: float
    ppl: float
    kl: float
    top1: float
    top5: float
    error: float
    cosine: float
    cosine_min: float
    spearman: float

    def _repr_html_(self) -> str:
        rows = [(name, figure(float(value))) for name, value in vars(self).items()]
        return table(f"{self.n_windows} windows, {self.n_tokens} tokens", rows[2:])


@dataclass(frozen=True)
class TaskAnswers:
    """Accuracy on multiple-choice tasks, with standard errors; `same`: share of tasks that model and reference answer alike."""

    n_tasks: int
    acc: float
    acc_norm: float
    acc_se: float
    acc_norm_se: float
    reference_acc: float
    same: float


def _measure(name: str, out: c.Structure, context: Context, model: Path, reference: Optional[Path],
             text: Optional[Path], seqlen: int, samples: int, special: bool) -> dict[str, Any]:
    request = _library.MeasureRequest(_bytes(model), _bytes(reference), _bytes(text), seqlen, samples, not special)
    context.call(name, c.byref(request), c.byref(out))
    return _library.members(out)


def evaluate(model: Path, *, reference: Optional[Path] = None, text: Optional[Path] = None, seqlen: int = 0,
             samples: int = 0, special: bool = True, threads: int = 0,
             progress: Shown = None) -> Evaluation:
    """Evaluates a checkpoint on a text (by default the bundled WikiText-2 test); samples 0: the whole text."""
    with Context(threads, shown(progress)) as context:
        return Evaluation(**_measure("calm_measure_model", _library.Figures(), context, model, reference, text, seqlen,
                                     samples, special))


def answer(model: Path, tasks: Path, *, reference: Optional[Path] = None, samples: int = 0, special: bool = True,
           threads: int = 0) -> TaskAnswers:
    """Evaluates a model on multiple-choice tasks: JSON lines {"context", "choices", "answer"}."""
    with Context(threads) as context:
        return TaskAnswers(**_measure("calm_answer", _library.TaskFigures(), context, model, reference, tasks, 0,
                                      samples, special))


# ---- stores ----

STORE_VERSION = 9
Columns = dict[str, NDArray[Any]]


def _column(values: list[Any]) -> NDArray[Any]:
    """Returns a column as integers, floats (NULL: NaN), or objects."""
    kinds = {type(value) for value in values}
    if values and kinds <= {int}:
        return np.array(values, dtype=np.int64)
    if kinds & {int, float} and kinds <= {int, float, type(None)}:
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
    column: NDArray[Any] = np.empty(len(values), dtype=object)
    column[:] = values
    return column


# Numbers that report views hold as texts with a few digits; v_scores has all digits.
ROUNDED = ("one_minus_cka", "one_minus_cka_token", "rel_mse", "log_rel_mse", "bits", "activation_max", "crest")


class Store:
    """A store, opened read-only; every table is a dict of NumPy arrays by column name, which pandas.DataFrame
    accepts.  docs/store.md describes the columns."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        if not os.path.isfile(self.path):
            raise CalmError("ENOTFOUND", f"{self.path}: there is no such store")
        uri = "file:" + "".join(f"%{byte:02x}" for byte in os.fsencode(os.path.abspath(self.path))) + "?mode=ro"
        try:
            self._db = sqlite3.connect(uri, uri=True)
            found = self._db.execute("PRAGMA user_version").fetchone()[0]
            views = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'v_runs'").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise CalmError("EFORMAT", f"{self.path}: not a store of calm: {error}") from None
        if not views:
            raise CalmError("EFORMAT", f"{self.path}: not a store of calm, it has no runs")
        if found != STORE_VERSION:
            newer = "a newer calm wrote it" if found > STORE_VERSION else "the next calm quantize into it migrates it"
            raise CalmError("EUNSUPPORTED",
                            f"{self.path}: a store of version {found}, expected {STORE_VERSION}; {newer}")

    def query(self, sql: str, *values: Any) -> Columns:
        """Returns the rows of a SELECT; `values` replace its question marks."""
        try:
            cursor = self._db.execute(sql, values)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise CalmError("EARG", f"{self.path}: {error}") from None
        names = [column[0] for column in cursor.description or []]
        return {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}

    def runs(self) -> Columns:
        """Returns a row per run, newest last."""
        return self.query("SELECT * FROM v_runs")

    def _of_run(self, view: str, run: int) -> Columns:
        if not self.query("SELECT 1 FROM run WHERE id = ?", run)["1"].size:
            raise CalmError("ENOTFOUND", f"{self.path}: there is no run {run}")
        rows = self.query(f"SELECT * FROM {view} WHERE run = ?", run)
        for name in set(ROUNDED) & set(rows):
            rows[name] = np.array([math.nan if text is None else float(text) for text in rows[name]], dtype=np.float64)
        return rows

    def choices(self, run: int) -> Columns:
        """Returns the choice of each job in a run; scores have three digits (query v_scores for all)."""
        return self._of_run("v_choices", run)

    def candidates(self, run: int) -> Columns:
        """Returns a row per job and candidate of a run."""
        return self._of_run("v_candidates", run)

    def close(self) -> None:
        """Closes the store and removes its -wal and -shm files, which only a connection that may write removes."""
        self._db.close()
        wal = self.path + "-wal"
        if os.path.isfile(wal) and os.path.getsize(wal) == 0 and os.access(self.path, os.W_OK):
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.path)) as last:
                last.execute("SELECT count(*) FROM sqlite_master")

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_store(path: Path) -> Store:
    """Opens a store for reading.  CalmError: there is no such file, it has another version, or it is no store."""
    return Store(path)


# ---- one matrix ----


@dataclass(frozen=True)
class Matrix:
    """A quantized matrix: (codes - zeros) * scales, per group of columns, approximates w * in_scale.  Schemes with minima
    (q4_k): codes * scales + mins.  Schemes with levels (nvfp4, iq4_nl): a code is an index of a level; use `weights`."""

    codes: NDArray[np.uint8]                  # [out, in]
    scales: Floats                            # [out, groups]
    zeros: Optional[NDArray[np.uint8]]        # [out, groups]; None: 2 ** (bits - 1)
    mins: Optional[Floats]                    # [out, groups] added; None: nothing
    in_scale: Optional[Floats]                # [in] the input is divided by it
    weights: Floats                           # [out, in] what represents w where the input is left as it is
    group: int                                # columns per scale
    scores: dict[str, float]                  # of x @ weights.T against x @ w.T; 0 is best but for log_rel_mse


def _copy(pointer: Any, *shape: int) -> Any:
    return np.ctypeslib.as_array(pointer, shape).copy() if pointer else None


def _pointer(array: Floats) -> Any:
    return array.ctypes.data_as(c.POINTER(c.c_float))


def quantize_matrix(w: ArrayLike, x: ArrayLike, *, algorithm: str = "gptq", scheme: str = "w4a16_g128",
                    threads: int = 0) -> Matrix:
    """Quantizes w [out, in] for inputs x [rows, in] by a named algorithm or a chain of parts."""
    weights = np.ascontiguousarray(w, dtype=np.float32)
    rows = np.ascontiguousarray(x, dtype=np.float32)
    if weights.ndim != 2 or rows.ndim != 2 or weights.shape[1] != rows.shape[1]:
        raise CalmError("EARG", f"expected w [out, in] and x [rows, in], found {weights.shape} and {rows.shape}")
    n_out, n_in = weights.shape
    with Context(threads) as context:
        stats, quantized, chain = _library.Stats(), _library.QuantizedJob(), c.c_void_p()
        linear = _library.Linear(b"w", n_out, n_in, _pointer(weights), False)
        job = _library.Job(name=b"w", linears=c.pointer(linear), n_linears=1, stats=c.pointer(stats), can_absorb=True)
        context.call("calm_stats_new", _pointer(rows), c.c_size_t(len(rows)), c.c_size_t(n_in), c.byref(stats))
        context.call("calm_scheme_parse", scheme.encode(), c.byref(job, _library.Job.scheme.offset))
        context.call("calm_algorithm_parse", algorithm.encode(), c.byref(chain))
        context.call("calm_algorithm_run", chain, c.byref(job), c.byref(quantized))
        effective = np.empty((n_out, n_in), dtype=np.float32)
        library.calm_qjob_effective(c.byref(quantized), _pointer(effective))
        reference, scores = c.c_void_p(), _library.Scores()
        y, z = rows @ weights.T, rows @ effective.T
        context.call("calm_score_prepare", _pointer(y), c.c_size_t(len(y)), c.c_size_t(n_out), c.byref(reference))
        context.call("calm_score", reference, _pointer(z), c.byref(scores))
        return Matrix(_copy(quantized.codes, n_out, n_in), _copy(quantized.scales, n_out, quantized.n_groups),
                      _copy(quantized.zeros, n_out, quantized.n_groups), _copy(quantized.mins, n_out, quantized.n_groups),
                      _copy(quantized.in_scale, n_in), effective, quantized.group, dict(zip(METRICS, scores.value)))
