#!/bin/sh
# Checks that calm reads checkpoints published as FP8, MXFP4 and compressed-tensors with small floats as the floats that
# transformers reads, bit for bit: random models, and those of $CALM_FIXTURES in these formats.
#
#   published.sh FOLDER-OF-PROGRAMS        exit status 77 without a Python that has transformers
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
"$python" -c 'import torch, safetensors, transformers, accelerate, compressed_tensors
assert int(transformers.__version__.split(".")[0]) >= 5' 2>/dev/null || {
    echo "SKIP: $python has no transformers 5, accelerate and compressed-tensors (CALM_PYTHON names one that has them)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fixtures=${CALM_FIXTURES:-$here/../../../shared/fixtures}

make() {    # make MODEL NAME KIND...
    model=$1 to=$work/$2
    shift 2
    "$python" "$here/make_published.py" "$model" "$to" "$@" 2>"$work/log" || { cat "$work/log"; exit 1; }
    for kind; do
        [ ! -d "$to/$kind" ] || set -- "$@" "$to/$kind" "$to/$kind.plain"
        shift
    done
    pairs="$pairs $*"
}

pairs=
make random:gpt_oss gpt_oss mxfp4
make random:qwen3 qwen3 fp8-block fp8-block-bf16 fp8-ue8m0 fp8-tensor ct-tensor ct-channel ct-channel-f32 ct-block ct-mxfp4 ct-nvfp4
for name in mixtral ministral3 wrapper_mistral3; do
    [ ! -d "$fixtures/families/$name" ] || make "$fixtures/families/$name" "$name" fp8-block fp8-tensor
done
for name in deepseek_v2 deepseek_v3 glm4_moe_lite; do
    [ ! -d "$fixtures/families/$name" ] || make "$fixtures/families/$name" "$name" fp8-block
done
[ ! -d "$fixtures/families/gpt_oss" ] || make "$fixtures/families/gpt_oss" fixture_gpt_oss mxfp4
# Fixtures that have published formats already.
for config in "$fixtures"/*/*/config.json; do
    dir=$(dirname "$config")
    grep -q '"quant_method": *"\(fp8\|mxfp4\)"' "$config" || continue
    mkdir -p "$work/given/$(basename "$dir")"
    pairs="$pairs $dir $work/given/$(basename "$dir")/plain"
done
set -- $pairs
while [ $# -gt 0 ]; do
    calm dequantize "$1" -o "$2" --quiet
    cp "$1"/tokenizer* "$2" 2>/dev/null || true
    shift 2
done
"$python" "$here/published.py" $pairs 2>"$work/log" || { tail -n 3 "$work/log"; exit 1; }
