"""A progress bar for notebooks and terminals, without other packages."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from typing import Any, Callable, Optional, TextIO, Union

Progress = Callable[[str, int, int], None]
Shown = Union[Progress, bool, None]    # True: a ProgressBar

WIDTH = 24


def _in_notebook() -> bool:
    """Can the front end replace its output?  IPython in a terminal cannot."""
    shell = sys.modules.get("IPython")
    at = shell.get_ipython() if shell else None
    return at is not None and hasattr(at, "kernel")


class ProgressBar:
    """Shows the current stage of a run; pass it, or True, as `progress`.

    It replaces one output line in a notebook, one line of standard error in a terminal; elsewhere it shows nothing.  Any
    thread may call it; it shows at most one state per `interval` seconds."""

    def __init__(self, interval: float = 0.2, file: Optional[TextIO] = None) -> None:
        self._file = file if file is not None else sys.stderr
        self._interval = interval
        self._lock = threading.Lock()
        self._next = 0.0
        self._shown: Any = None    # the output of a notebook
        self._wide = 0
        self._notebook = file is None and _in_notebook()
        self.stages: list[str] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            new = not self.stages or self.stages[-1] != stage
            if new:
                self.stages.append(stage)
            now = time.monotonic()
            if new or now >= self._next or (total and done >= total):
                self._next = now + self._interval
                self._show(self.line(stage, done, total))

    @staticmethod
    def line(stage: str, done: int, total: int) -> str:
        """Returns "quantize   [######------] 12/24"; without a total only the number."""
        if not total:
            return f"{stage:<10} {done}"
        full = WIDTH * min(done, total) // total
        return f"{stage:<10} [{'#' * full}{'-' * (WIDTH - full)}] {done}/{total}"

    def _show(self, line: str) -> None:
        if self._notebook:
            display: Any = importlib.import_module("IPython.display")    # which is there in a notebook alone
            shown = display.Pretty(line)
            if self._shown is None:
                self._shown = display.display(shown, display_id=True)
            else:
                self._shown.update(shown)
        elif self._file.isatty():
            self._file.write("\r" + line.ljust(self._wide))
            self._file.flush()
            self._wide = len(line)

    def close(self) -> None:
        """Clears the terminal's line; a notebook keeps the last state."""
        with self._lock:
            if self._wide:
                self._file.write("\r" + " " * self._wide + "\r")
                self._file.flush()
                self._wide = 0


def shown(progress: Shown) -> Optional[Progress]:
    """Returns the function to call: a new bar for True, None for False."""
    if isinstance(progress, bool):
        return ProgressBar() if progress else None
    return progress
