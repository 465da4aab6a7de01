#!/bin/sh
# Compares LoRA adapters merged by calm (`calm dequantize --adapter`) with those merged by PEFT.
#
#   adapter_reader.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with torch, transformers and peft ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
"$python" -c 'import torch, transformers, peft' 2>/dev/null ||
    { echo "SKIP: no Python with torch, transformers and peft (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
"$python" "$here/adapter_reader.py" make "$work" 2>/dev/null
for case in "$work"/*; do
    calm dequantize "$case/base" --adapter "$case/adapter" --output "$case/calm" --quiet >/dev/null
done
"$python" "$here/adapter_reader.py" compare "$work"
