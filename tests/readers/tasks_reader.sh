#!/bin/sh
# Checks that `calm eval --tasks` gives every choice transformers' log-probability (tasks_reader.py), for the
# float model and, if compressed-tensors is installed, for a quantized one.  Models with quantized activations do not compare: a
# difference in the last bit moves a value on an edge to another code, and changes everything after it.
#
#   tasks_reader.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with these packages ($CALM_PYTHON, else python3).  Python is for
# checking only.
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
tasks=$here/../data/tasks.jsonl
python=${CALM_PYTHON:-python3}
"$python" -c 'import torch, transformers' 2>/dev/null || { echo "SKIP: no Python with torch and transformers (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

check() {    # check MODEL FOLDER
    calm eval --model "$1" --tasks "$tasks" --quiet --json >"$work/result"
    "$python" "$here/tasks_reader.py" "$2" "$tasks" "$work/result" 2>"$work/noise" || { cat "$work/noise"; exit 1; }
}

check qwen "$CALM_HOME/recipes/models/qwen-demo"
if "$python" -c 'import compressed_tensors' 2>/dev/null; then
    calm quantize --model qwen --scheme w4a16_g128 --algorithms rtn --samples 8 --seqlen 128 --guard-samples 0 --no-eval \
        --quiet --output "$work/w4" --store "$work/calm.db" >/dev/null
    check "$work/w4" "$work/w4"
else
    echo "SKIP: a part: no Python with compressed-tensors to read a quantized model with (CALM_PYTHON names one that has them)"
fi
