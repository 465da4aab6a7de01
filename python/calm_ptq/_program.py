"""The command `calm` of the package: replaces itself by the program in bin/."""

import os
import sys
from pathlib import Path


def main() -> None:
    program = Path(__file__).parent / "bin" / "calm"
    os.execv(program, ["calm", *sys.argv[1:]])
