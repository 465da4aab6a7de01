"""libcalm through ctypes: the types of calm.h, and contexts whose failures are exceptions."""

from __future__ import annotations

import ctypes as c
import logging
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from calm_ptq._keywords import spoken

Progress = Callable[[str, int, int], None]

STATUSES = ("OK", "EARG", "EIO", "ENOSPC", "ENOTFOUND", "EEXIST", "EBUSY", "EFORMAT", "EUNSUPPORTED", "ENUMERIC",
            "ENOMEM", "EMISMATCH", "EINTERRUPTED")
STAGES = ("pull", "weigh", "calibrate", "quantize", "score", "probe", "choose", "learn", "assemble",
          "evaluate")
METRICS = ("cka", "cka_debiased", "cka_token", "cka_drop", "rel_mse", "log_rel_mse", "cosine", "rel_mae")

_log = logging.getLogger("calm_ptq")


class CalmError(Exception):
    """A failure with calm's message; `status` is the name of the status: "ENOTFOUND"."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status


def _fields(*rows: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Makes ctypes fields from rows of a struct: a type, and names separated by blanks."""
    return [(name, kind) for kind, names in rows for name in names.split()]


def members(struct: c.Structure) -> dict[str, Any]:
    """Returns the members of a struct by name."""
    return {row[0]: getattr(struct, row[0]) for row in struct._fields_}


class Outcome(c.Structure):
    _fields_ = _fields((c.c_int64, "run"), (c.c_char_p, "store output lock result verdict"),
                       (c.c_double, "bits_per_weight"), (c.c_int64, "bytes_before bytes_after"),
                       (c.c_double, "ppl_float ppl kl top1 cosine error spearman"), (c.c_size_t, "n_cached n_changed"),
                       (c.c_double, "seconds"))


class MeasureRequest(c.Structure):
    _fields_ = _fields((c.c_char_p, "model reference text"), (c.c_size_t, "seqlen samples"), (c.c_bool, "no_special"))


class Figures(c.Structure):
    _fields_ = _fields((c.c_size_t, "n_windows n_tokens"), (c.c_double, "nll ppl kl top1 top5"),
                       (c.c_double, "error cosine cosine_min spearman"))


class TaskFigures(c.Structure):
    _fields_ = _fields((c.c_size_t, "n_tasks"), (c.c_double, "acc acc_norm acc_se acc_norm_se reference_acc same"))


class Scheme(c.Structure):
    _fields_ = _fields((c.c_int, "bits"), (c.c_size_t, "group"), (c.c_bool, "symmetric"), (c.c_int, "act_bits"),
                       (c.c_bool, "act_asymmetric"), (c.c_int, "act_rule scale_dtype family mix group_else"),
                       (c.c_bool, "act_order"))


class Stats(c.Structure):
    _fields_ = _fields((c.c_size_t, "rows"), (c.POINTER(c.c_double), "gram"), (c.POINTER(c.c_float), "absmax"),
                       (c.POINTER(c.c_double), "sum sumsq sumabs"), (c.POINTER(c.c_float), "samples"),
                       (c.c_size_t, "n_samples"), (c.POINTER(c.c_double), "cross"))


class Linear(c.Structure):
    # "in" and "global" cannot be names of attributes
    _fields_ = _fields((c.c_char_p, "name"), (c.c_size_t, "out in_"), (c.POINTER(c.c_float), "w"), (c.c_bool, "bias"))


class Job(c.Structure):
    _fields_ = _fields((c.c_char_p, "name"), (c.POINTER(Linear), "linears"), (c.c_size_t, "n_linears"),
                       (c.POINTER(Stats), "stats"), (Scheme, "scheme"), (c.c_bool, "can_absorb"),
                       (c.POINTER(c.c_uint32), "absorb_group"), (c.c_size_t, "n_absorb_groups"))


class QuantizedJob(c.Structure):
    _fields_ = _fields((c.c_size_t, "out in_ n_groups group"), (Scheme, "scheme"), (c.POINTER(c.c_uint8), "codes"),
                       (c.POINTER(c.c_float), "scales"), (c.POINTER(c.c_uint8), "zeros"),
                       (c.POINTER(c.c_float), "in_scale bias_delta"), (c.c_double, "damp"),
                       (c.POINTER(c.c_float), "mins"), (c.c_float, "global_ act_global"),
                       (c.POINTER(c.c_uint32), "order"))


class Scores(c.Structure):
    _fields_ = [("value", c.c_double * len(METRICS)), ("n_rows", c.c_size_t), ("n_dropped", c.c_size_t),
                ("constant", c.c_bool)]


_LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
_EVENT = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_size_t, c.c_size_t)


def _load() -> c.CDLL:
    path = os.environ.get("CALM_LIBRARY") or str(Path(__file__).parent / "lib" / "libcalm.so.0")
    library = c.CDLL(path)
    library.calm_error_text.restype = c.c_char_p
    library.calm_version.restype = c.c_char_p
    for name in ("calm_stop", "calm_interrupt", "calm_qjob_effective"):
        getattr(library, name).restype = None
    return library


library = _load()


class Context:
    """A context of calm: results of calls live until the end of the `with` block."""

    def __init__(self, threads: int = 0, progress: Optional[Progress] = None) -> None:
        self._close = getattr(progress, "close", None)    # of a bar
        self.pointer = c.c_void_p()
        if library.calm_start(c.byref(self.pointer)):
            raise CalmError("ENOMEM", "out of memory")

        def log(_: Any, level: int, line: bytes) -> None:
            _log.log((logging.DEBUG, logging.INFO, logging.WARNING)[level], "%s", spoken(line.decode(errors="replace")))

        def event(_: Any, stage: int, done: int, total: int) -> None:
            try:
                if progress:
                    progress(STAGES[stage], done, total)
            except BaseException as error:    # which would be lost on its way through C
                self._raised = error
                library.calm_interrupt(self.pointer)

        self._raised: Optional[BaseException] = None
        self._done: Optional[threading.Event] = None    # of the last call
        self._callbacks = _LOG(log), _EVENT(event)    # as long as calm may call them
        self.call("calm_set_log", self._callbacks[0], None)
        if progress:
            self.call("calm_set_events", self._callbacks[1], None)
        if threads:
            self.call("calm_set_threads", c.c_int(threads))

    def __enter__(self) -> Context:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._done:
            self._done.wait()
        if self._close:
            self._close()
        library.calm_stop(c.byref(self.pointer))

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status; raises CalmError with its message after a failure."""
        status = self._run(getattr(library, name), arguments)
        if self._raised:
            raise self._raised
        if status:
            message: bytes = library.calm_error_text(self.pointer)
            raise CalmError(STATUSES[status], spoken(message.decode(errors="replace")))

    def _run(self, function: Any, arguments: tuple[Any, ...]) -> int:
        """Runs a call in another thread: Ctrl-C and a notebook's stop reach only the main thread, and not while it runs C."""
        if threading.current_thread() is not threading.main_thread():
            return int(function(self.pointer, *arguments))
        values: list[int] = []
        done = self._done = threading.Event()    # Thread.join() of Python 3.11 takes an interrupted wait for the end

        def work() -> None:
            try:
                values.append(function(self.pointer, *arguments))
            except BaseException as error:
                self._raised = error
            finally:
                done.set()

        try:
            threading.Thread(target=work).start()
        except RuntimeError:    # the system gives no more threads: __exit__ would wait for one that never ran
            done.set()
            raise
        while not done.is_set():
            try:
                done.wait()
            except KeyboardInterrupt as error:
                self._raised = error
                library.calm_interrupt(self.pointer)
        return values[0] if values else 0
