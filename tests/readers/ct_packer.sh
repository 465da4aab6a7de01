#!/bin/sh
# Checks that compressed-tensors' compressors give the same bytes as calm: every tensor of a linear, for every scheme
# (ct_packer.py).
#
#   ct_packer.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with compressed-tensors ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
"$python" -c 'import compressed_tensors, torch, safetensors' 2>/dev/null || { echo "SKIP: no Python with compressed-tensors (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
folders=
for schemes in w4a16_g128 w3a16_g64 w2a16_g64 w8a16 w8a8 w4a4_g128 fp8 fp8a16 fp8_tensor fp8_block fp8_blocka16 mxfp4 mxfp4a16 nvfp4 nvfp4a16 \
    nvfp4a16,w8a8,float,fp8,mxfp4a16,w4a16_g64; do
    write_format "$CALM_HOME/recipes/models/qwen-demo" "$work/$schemes" compressed-tensors "$schemes" >"$work/said" ||
        { cat "$work/said"; exit 1; }
    folders="$folders $work/$schemes"
done
# shellcheck disable=SC2086
"$python" "$here/ct_packer.py" $folders
