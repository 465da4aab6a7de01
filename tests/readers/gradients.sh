#!/bin/sh
# Compares gradients of latent attention, delta nets, short convolutions, sinks and Gemma 4 with torch's: every parameter of the
# reference checkpoints (torch_gradients.py), by the program that compares the gradients of the fixtures.
#
#   gradients.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) without fixtures ($CALM_FIXTURES), or where there is no Python with torch and transformers
# ($CALM_PYTHON, else python3).
set -eu

PATH=$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
families=${CALM_FIXTURES:-$here/../../../shared/fixtures}/families
[ -d "$families" ] || { echo "SKIP: no $families (CALM_FIXTURES names reference fixtures)"; exit 77; }
"$python" -c 'import torch, transformers' 2>/dev/null ||
    { echo "SKIP: no Python with torch and transformers (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
"$python" "$here/torch_gradients.py" "$families" "$work" deepseek_v2 deepseek_v3 glm4_moe_lite qwen3_5_text \
    qwen3_5_moe_text qwen3_next wrapper_qwen3_5 wrapper_qwen3_5_moe lfm2 lfm2_moe gpt_oss gemma4_moe_text 2>"$work/said" ||
    { cat "$work/said"; exit 1; }
[ -d "$work/models" ] || { echo "SKIP: $families has none of the families that learn (CALM_FIXTURES names reference fixtures)"; exit 77; }
CALM_FIXTURES=$work test_gradient_fixtures
