"""The command `calm` of the package: it becomes the program that is in bin/."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "calm"
    os.execv(program, ["calm", *sys.argv[1:]])
