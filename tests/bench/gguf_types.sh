#!/bin/sh
# Measures KL and file bytes of GGUF types: llama-quantize with an importance matrix of the calibration text next to calm with the
# same types per tensor, both by calm eval.  CSV on the standard output.
#
#   CALM_LLAMA_CPP=... gguf_types.sh FOLDER-OF-PROGRAMS [TYPE...]      build/release; types: Q4_0 Q4_K_M Q3_K_M Q2_K IQ4_XS
#
# Environment variables: CALM_LLAMA_CPP: llama.cpp's programs (tests/readers/build_llama_cpp.sh); without it only calm's rows.
# WINDOWS=196: test windows of 512 tokens.  ALGORITHMS=mkq-full.  MODEL=qwen: or the directory of another model.  SAMPLES=128:
# calibration windows.  A type takes calm about a minute of CPU on the bundled model, an evaluation half a minute.
set -eu

PATH=${1:?usage: gguf_types.sh FOLDER-OF-PROGRAMS [TYPE...]}:$1/tests:$PATH
shift
[ $# -gt 0 ] || set -- Q4_0 Q4_K_M Q3_K_M Q2_K IQ4_XS
peer=${CALM_LLAMA_CPP:-}
home=${CALM_HOME:-$(cd "$(dirname "$0")/../.." && pwd)}
export CALM_HOME=$home
model=${MODEL:-qwen} samples=${SAMPLES:-128}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# shellcheck source=tests/bench/loss.sh
. "$home/tests/bench/loss.sh"

if [ -n "$peer" ]; then
    folder=$model
    [ "$model" != qwen ] || folder=$home/recipes/models/qwen-demo
    write_format "$folder" "$work/float" gguf float >"$work/said" || { cat "$work/said"; exit 1; }
    "$peer/llama-imatrix" -m "$work/float/model.gguf" -f "$home/recipes/text/wikitext2-valid.txt" -c 512 --chunks "$samples" \
        -o "$work/imatrix.gguf" >"$work/said" 2>&1 || { tail -n 5 "$work/said"; exit 1; }
fi
echo "type,tool,bytes,kl"
for type in "$@"; do
    if [ -n "$peer" ]; then
        "$peer/llama-quantize" --imatrix "$work/imatrix.gguf" "$work/float/model.gguf" "$work/peer.gguf" "$type" >"$work/said" 2>&1 ||
            { tail -n 5 "$work/said"; exit 1; }
        kl=$(loss "$work/peer.gguf" "$model")
        echo "$type,llama-quantize,$(wc -c <"$work/peer.gguf"),$kl"
    fi
    calm quantize --model "$model" --samples "$samples" --format gguf --gguf-type "$type" --algorithms "${ALGORITHMS:-mkq-full}" --guard-samples 0 --no-eval \
        --output "$work/$type" --store "$work/calm.db" --quiet >/dev/null
    kl=$(loss "$work/$type/model.gguf" "$model")
    echo "$type,calm,$(wc -c <"$work/$type/model.gguf"),$kl"
done
