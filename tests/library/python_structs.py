"""Checks that the structs of the wheel have the members of calm.h: names, order and sizes.

    python_structs.py CALM_H LIBRARY PACKAGE-FOLDER

The wheel's ctypes structures repeat calm.h by hand: when one lacks a member the library writes beyond its end."""

import ctypes as c
import os
import re
import sys
import types

header, library, folder = sys.argv[1:]
os.environ["CALM_LIBRARY"] = library
# The package without its __init__.py, which needs numpy.
sys.modules["calm_ptq"] = types.ModuleType("calm_ptq")
sys.modules["calm_ptq"].__path__ = [folder]
from calm_ptq import _library  # noqa: E402

STRUCTS = {"calm_outcome": "Outcome", "calm_measure_request": "MeasureRequest", "calm_figures": "Figures",
           "calm_task_figures": "TaskFigures", "calm_scheme": "Scheme", "calm_stats": "Stats", "calm_linear": "Linear",
           "calm_job": "Job", "calm_qjob": "QuantizedJob", "calm_scores": "Scores"}
SIZES = {"size_t": 8, "int64_t": 8, "double": 8, "float": 4, "int": 4, "bool": 1, "calm_act_rule": 4, "calm_dtype": 4}


def members(text, name):
    """[(name, bytes)] of a struct of calm.h."""
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (name, name), text, re.S).group(1)
    found = []
    for line in re.sub(r"/\*.*?\*/", "", body, flags=re.S).split(";"):
        if not line.strip():
            continue
        kind, declared = re.match(r"\s*(?:const\s+)?(\w+)\s+(.*)", line, re.S).groups()
        for one in declared.split(","):
            pointer, member, array = re.match(r"\s*(?:const\s+)?(\**)(\w+)\s*(\[\w+\])?", one).groups()
            size = 8 if pointer else SIZES[kind] if kind in SIZES else c.sizeof(getattr(_library, STRUCTS[kind]))
            found.append((member, size * (len(_library.METRICS) if array else 1)))
    return found


text = open(header, encoding="utf-8").read()
failed = 0
for name, mirror in STRUCTS.items():
    ours = [(row[0].rstrip("_"), c.sizeof(row[1])) for row in getattr(_library, mirror)._fields_]
    expected = members(text, name)
    failed += ours != expected
    print(f"{mirror}: {len(ours)} members" if ours == expected else f"{mirror}: {ours}, calm.h has {expected}")
sys.exit(failed > 0)
