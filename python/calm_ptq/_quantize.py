"""quantize(): its keywords are the options of calm quantize, which _quantize.pyi lists."""

from __future__ import annotations

import ctypes as c
import os
from typing import Any, Mapping, Optional

from calm_ptq import _library
from calm_ptq._library import Context
from calm_ptq._outcome import Outcome, Path
from calm_ptq._progress import Shown, shown


def _words(value: Any) -> list[str]:
    """Returns a value as words of a command line; a list becomes a word per item, a list of numbers one word."""
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, (int, float)) for item in value):
            return [",".join(str(item) for item in value)]
        return [word for item in value for word in _words(item)]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items()]
    return [os.fspath(value) if isinstance(value, os.PathLike) else str(value)]


def quantize(model: Optional[Path] = None, output: Optional[Path] = None, *, recipe: Optional[Path] = None,
             lock: Optional[Path] = None, threads: int = 0, progress: Shown = None, **values: Any) -> Outcome:
    """Quantize a checkpoint.

    model, output   directory or known name; directory to write
    recipe          a recipe file, or the name of a shipped recipe; other arguments replace its values
    lock            file for the digests of inputs and outputs
    progress        True: a bar in the notebook or the terminal; or a function of stage, done and total, which any
                    thread may call
    values          any key of a recipe by the name of its flag: bits=4, algorithms=["gptq", "rtn"], eval_samples=16,
                    pin={"*.down": "gptq"}
    """
    given = {"model": model, "output": output, **values}
    with Context(threads, shown(progress)) as context:
        spec, out = c.c_void_p(), _library.Outcome()
        context.call("calm_spec_new", c.byref(spec))
        for key, value in given.items():
            for word in [] if value is None else _words(value):
                context.call("calm_spec_set", spec, key.replace("_", "-").encode(), os.fsencode(word))
        if recipe is not None:
            context.call("calm_spec_load", spec, os.fsencode(recipe))
        context.call("calm_quantize", spec, None if lock is None else os.fsencode(lock), c.byref(out))
        figures = _library.members(out)
        for name, value in figures.items():
            figures[name] = os.fsdecode(value) if isinstance(value, bytes) else value
        return Outcome(**figures)
