#!/bin/sh
# Checks that calm reads the bundled model as other tools quantize it: `calm check` finds nothing, `calm eval` reads it, and
# `calm dequantize` writes floats with the same KL, to the last digit, if inputs are not quantized.
#
#   check_foreign.sh FOLDER-OF-PROGRAMS [TOOL...]      llama-quantize, llm-compressor, mlx-lm (default: all three)
#
# peers.sh finds the tools.  A SKIP line names a missing tool; exit status 77 if all are missing.
set -eu

PATH=$1:$1/tests:$PATH
shift
[ $# -gt 0 ] || set -- llama-quantize llm-compressor mlx-lm
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peers.sh"
. "$here/../number.sh"
ran=0

kl() {    # kl MODEL: KL on the first test window
    try calm eval --model "$1" --reference qwen --samples 1 --json --quiet
    number kl "$work/said"
}

judge() {    # judge TOOL NAME PATH same|other; other: inputs are quantized, so the floats lose less
    try calm check "$3"
    said=$(tail -n 1 "$work/said")
    case $said in
        *": nothing found") ;;
        *) cat "$work/said"; echo "$1 $2: calm check finds something"; exit 1 ;;
    esac
    rm -rf "$work/floats"
    try calm dequantize "$3" --dtype f32 --output "$work/floats" --quiet
    cp -n "$model"/tokenizer* "$work/floats"
    ours=$(kl "$3")
    floats=$(kl "$work/floats")
    awk -v name="$1 $2" -v ours="$ours" -v floats="$floats" -v how="$4" 'BEGIN {
        printf "%s: nothing found, KL %s, as floats %s\n", name, ours, floats
        # A garbled model has far more: a uniform prediction about 5.  BF16 is the model itself: 0.
        exit !(ours != "" && ours < 2 && floats != "" && floats < 2 && (how == "other" || ours == floats))
    }' || { echo "$1 $2: not what the tool has written"; exit 1; }
    ran=$((ran + 1))
}

llama() {
    has_llama_cpp || return 0
    try write_gguf "$model" float "$work/float" f32
    for type in Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K_S Q3_K_M Q3_K_L Q4_K_S Q4_K_M Q5_K_S Q5_K_M Q6_K IQ4_NL IQ4_XS MXFP4_MOE \
        F16 BF16; do
        try "$CALM_LLAMA_CPP/llama-quantize" "$work/float/model.gguf" "$work/peer.gguf" $type 1
        cp "$model"/tokenizer* "$work"
        judge llama-quantize $type "$work/peer.gguf" same
    done
}

compressor() {
    has "$lc" llmcompressor || return 0
    weights='W4A16 W8A16 W4A16_ASYM NVFP4A16 MXFP4A16'
    inputs='W8A8 FP8_DYNAMIC FP8_BLOCK NVFP4 MXFP4'
    # shellcheck disable=SC2086
    write_foreign $weights $inputs
    for scheme in $weights $inputs; do
        cp "$model"/tokenizer* "$work/ct/$scheme"    # the model's save_pretrained does not write them
        case " $weights " in *" $scheme "*) how=same ;; *) how=other ;; esac
        judge llm-compressor "$scheme" "$work/ct/$scheme" $how
    done
}

mlx() {
    has "$mlx" mlx_lm || return 0
    for bits in 2 3 4 8; do
        rm -rf "$work/mlx"
        try "$mlx" -m mlx_lm convert --hf-path "$model" --mlx-path "$work/mlx" -q --q-bits $bits --q-group-size 64
        judge mlx-lm "$bits bits" "$work/mlx" same
    done
}

for tool in "$@"; do
    case $tool in
        llama-quantize) llama ;;
        llm-compressor) compressor ;;
        mlx-lm) mlx ;;
        *) echo "no tool $tool: llama-quantize, llm-compressor or mlx-lm"; exit 2 ;;
    esac
done
[ $ran -gt 0 ] || exit 77
