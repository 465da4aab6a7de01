#!/bin/sh
# Checks that every safetensors format holds the plan's weights, by a Python reader that shares nothing with calm
# (format_weights.py), on the bundled model and on tiny mixtures.
#
#   format_weights.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with numpy ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
"$python" -c 'import numpy' 2>/dev/null || { echo "SKIP: no Python with numpy (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
folders=

write() {    # write NAME MODEL FORMAT SCHEMES [SHARD-BYTES]
    write_format "$2" "$work/$1" "$3" "$4" ${5:+"$5"} >"$work/said" || { cat "$work/said"; exit 1; }
    folders="$folders $work/$1"
}

model=$CALM_HOME/recipes/models/qwen-demo
for format in compressed-tensors gptq mlx; do
    for scheme in w2a16_g64 w3a16_g32 w4a16_g128 w8a16 w4a16_g64_asym w8a16_asym; do
        write "$format-$scheme" "$model" $format $scheme
    done
    write "$format-mixed" "$model" $format w4a16_g128,w8a16,float,w3a16_g32_asym,w2a16_g64
    write "$format-sharded" "$model" $format w4a16_g128,w8a16 2000000
done
for schemes in w4a16_g128 w4a16 w4a16_g32_asym w4a16_g64,float,w4a16_g64_asym; do
    write "awq-$schemes" "$model" awq $schemes
done
write awq-sharded "$model" awq w4a16_g128 2000000
for scheme in fp8 fp8a16 fp8_tensor fp8_block fp8_blocka16 mxfp4 mxfp4a16 nvfp4 nvfp4a16; do
    write compressed-tensors-$scheme "$model" compressed-tensors $scheme
done
write compressed-tensors-floats "$model" compressed-tensors nvfp4a16,w8a8,float,fp8,mxfp4a16 2000000
write compressed-tensors-w8a8 "$model" compressed-tensors w8a8,w4a16_g128,float

write_families "$work/families" >/dev/null
for family in qwen2_moe qwen3_moe phi3; do
    for format in compressed-tensors gptq awq mlx; do
        write "$format-$family" "$work/families/$family" $format w4a16_g32
    done
done
# shellcheck disable=SC2086
"$python" "$here/format_weights.py" $folders
