#!/bin/sh
# Measures, by calm eval, file bytes and KL of the bundled model quantized by other tools: llama-quantize without an
# importance matrix, mlx-lm's affine rounding, llm-compressor's rounding to nearest and GPTQ.  CSV on the standard output; rate.py
# draws it.  auto_round.sh measures auto-round, gguf_types.sh llama-quantize with an importance matrix.
#
#   rate_peers.sh FOLDER-OF-PROGRAMS [TOOL...]     build/release; llama-quantize, mlx-lm, llm-compressor (default: all three)
#
# Environment variables:
#   CALM_LLAMA_CPP                        llama.cpp's programs (tests/readers/build_llama_cpp.sh)
#   MLX_LM_PYTHON, LLM_COMPRESSOR_PYTHON  Pythons with mlx-lm (pip install mlx[cpu] mlx-lm) and with llmcompressor
#   WINDOWS=196                           test windows of 512 tokens
#   LLM_COMPRESSOR                        runs of llm-compressor, HOW:SCHEME each
#   MODEL=DIRECTORY                       another model
#
# All runs take about an hour and a half of CPU.  Bytes of llm-compressor's files count floats as two bytes, because it computes and
# writes in float32 here.
set -eu

PATH=${1:?usage: rate_peers.sh FOLDER-OF-PROGRAMS [TOOL...]}:$1/tests:$PATH
shift
[ $# -gt 0 ] || set -- llama-quantize mlx-lm llm-compressor
here=$(cd "$(dirname "$0")" && pwd)
home=${CALM_HOME:-$(cd "$here/../.." && pwd)}
export CALM_HOME=$home HF_HUB_OFFLINE=1
model=${MODEL:-$home/recipes/models/qwen-demo}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# shellcheck source=tests/bench/loss.sh
. "$here/loss.sh"

row() {    # row TOOL FORMAT SCHEME BYTES,TENSORS FILE
    kl=$(loss "$5" "$model")
    echo "$1,$2,$3,$4,$kl"
}

try() {    # try COMMAND...
    "$@" >"$work/said" 2>&1 || { tail -n 5 "$work/said"; exit 1; }
}

llama() {
    try write_format "$model" "$work/float" gguf float
    for type in Q4_0 Q4_K_M Q3_K_M Q2_K IQ4_XS; do
        try "$CALM_LLAMA_CPP/llama-quantize" "$work/float/model.gguf" "$work/peer.gguf" "$type"
        row "llama-quantize" gguf "$type" "$(wc -c <"$work/peer.gguf")," "$work/peer.gguf"
    done
}

mlx() {
    for bits in 2 3 4; do
        rm -rf "$work/mlx"
        try "$MLX_LM_PYTHON" -m mlx_lm convert --hf-path "$model" --mlx-path "$work/mlx" -q --q-bits $bits --q-group-size 64
        row mlx-lm mlx "w${bits}a16_g64_asym" "$(python3 "$here/checkpoint_bytes.py" "$work/mlx")" "$work/mlx"
    done
}

compressor() {
    for pair in ${LLM_COMPRESSOR:-rtn:4g128 gptq:4g128 rtn:3g128 gptq:3g128 rtn:NVFP4A16 rtn:MXFP4A16 rtn:FP8_DYNAMIC}; do
        rm -rf "$work/lc"
        try "$LLM_COMPRESSOR_PYTHON" "$here/peer_llm_compressor.py" "$model" "$home/recipes/text/wikitext2-valid.txt" "$work/lc" \
            "${pair%%:*}" "${pair#*:}"
        cp "$model"/*token* "$model"/vocab* "$work/lc" 2>/dev/null || true
        row "llm-compressor ${pair%%:*}" compressed-tensors "${pair#*:}" "$(python3 "$here/checkpoint_bytes.py" "$work/lc" "$model")" "$work/lc"
    done
}

echo "tool,format,scheme,bytes,tensors,kl"
for tool in "$@"; do
    case $tool in
    llama-quantize) llama ;;
    mlx-lm) mlx ;;
    llm-compressor) compressor ;;
    *) echo "rate_peers.sh: $tool: expected llama-quantize, mlx-lm, llm-compressor" >&2; exit 2 ;;
    esac
done
