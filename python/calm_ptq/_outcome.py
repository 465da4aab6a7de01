"""The result of a run, shown in a terminal, a notebook or a page."""

from __future__ import annotations

import html
import math
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path as _File
from typing import Iterator, Optional, Union

from calm_ptq._library import CalmError

Path = Union[str, "os.PathLike[str]"]


def program() -> str:
    """Returns the program of this package, or $CALM_PROGRAM."""
    return os.environ.get("CALM_PROGRAM") or str(_File(__file__).parent / "bin" / "calm")


def figure(value: float) -> str:
    """Formats a number with four digits, as calm's tables do."""
    return "" if math.isnan(value) else f"{value:.4f}" if 1e-4 <= abs(value) < 1e4 or value == 0 else f"{value:.3e}"


def table(title: str, rows: list[tuple[str, str]]) -> str:
    """Makes an HTML table of rows of two cells, escaped, under a title; leaves out rows without a value."""
    cells = "".join(f'<tr><th style="text-align:left">{html.escape(name)}</th><td>{html.escape(value)}</td></tr>'
                    for name, value in rows if value)
    return f"<table><caption style=\"text-align:left\">{html.escape(title)}</caption>{cells}</table>"


@dataclass(frozen=True)
class Report:
    """A page that calm report wrote."""

    path: str

    def _repr_html_(self) -> str:
        return f'<a href="{html.escape(self.path)}" target="_blank">{html.escape(self.path)}</a>'


@dataclass(frozen=True)
class Outcome:
    """The result of a run; figures that were not measured are NaN."""

    run: int                      # number in the store
    store: str
    output: Optional[str]         # directory of the checkpoint
    lock: Optional[str]
    result: str                   # "hybrid", or the algorithm that is everywhere
    verdict: Optional[str]
    bits_per_weight: float
    bytes_before: int
    bytes_after: int
    ppl_float: float
    ppl: float
    kl: float
    top1: float
    cosine: float
    error: float
    spearman: float
    n_cached: int                 # candidates that were in the store already
    n_changed: int
    seconds: float

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "result", self.result
        yield "verdict", self.verdict or ""
        yield "bits per weight", figure(self.bits_per_weight)
        if self.bytes_after:
            yield "size", f"{self.bytes_before / 1e6:.1f} -> {self.bytes_after / 1e6:.1f} MB"
        if not math.isnan(self.ppl):
            yield "perplexity", f"{figure(self.ppl_float)} -> {figure(self.ppl)}"
        yield "KL divergence", figure(self.kl)
        yield "cosine to float", figure(self.cosine)
        yield "checkpoint", self.output or ""
        yield "store", f"{self.store}, run {self.run}"
        yield "seconds", f"{self.seconds:.1f}"

    def __str__(self) -> str:
        return "\n".join(f"{name:<16} {value}" for name, value in self._rows() if value)

    def _repr_html_(self) -> str:
        return table(f"calm run {self.run}", list(self._rows()))

    def __rich_repr__(self) -> Iterator[tuple[str, str]]:
        for name, value in self._rows():
            if value:
                yield name.replace(" ", "_"), value

    def report(self, path: Optional[Path] = None, *, force: bool = True) -> Report:
        """Writes the page that explains the run (calm report), by default report.html next to the store."""
        to = os.fspath(path) if path is not None else os.path.join(os.path.dirname(self.store), "report.html")
        command = [program(), "report", str(self.run), "--store", self.store, "--output", to, "--quiet"]
        try:
            done = subprocess.run(command + ["--force"] * force, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  check=False)
        except OSError as error:
            raise CalmError("EIO", f"{command[0]}: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().removeprefix("calm: ")
            raise CalmError("EARG" if done.returncode == 2 else "EIO", said)
        return Report(to)
