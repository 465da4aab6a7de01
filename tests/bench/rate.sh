#!/bin/sh
# Measures file bytes and KL of the bundled model in compressed-tensors, GPTQ and MLX, by calm's algorithms and by rounding to nearest;
# gguf_types.sh and gguf_sizes.sh measure GGUF.  CSV on the standard output; rate.py draws it.
#
#   rate.sh FOLDER-OF-PROGRAMS [FORMAT:SCHEME...]      build/release; default: those of docs/evidence/rate.csv
#
# Environment variables: WINDOWS=196: test windows of 512 tokens.  ALGORITHMS="mkq-full rtn"; each takes about two minutes of CPU.
# MODEL=DIRECTORY: another model; for an encoder the loss is 1 - cosine of the pooled embeddings of WINDOWS sentences.  OPTIONS: more
# options of calm quantize.
set -eu

PATH=${1:?usage: rate.sh FOLDER-OF-PROGRAMS [FORMAT:SCHEME...]}:$PATH
shift
[ $# -gt 0 ] || set -- compressed-tensors:w2a16_g64 compressed-tensors:w3a16_g128 compressed-tensors:w4a16_g128 \
    compressed-tensors:w4a16_g64 compressed-tensors:w4a16_g32 compressed-tensors:mxfp4a16 compressed-tensors:nvfp4a16 \
    compressed-tensors:fp8_blocka16 compressed-tensors:fp8 mlx:w2a16_g64_asym mlx:w3a16_g64_asym mlx:w4a16_g64 mlx:w4a16_g64_asym
model=${MODEL:-qwen}
home=${CALM_HOME:-$(cd "$(dirname "$0")/../.." && pwd)}
export CALM_HOME=$home
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# shellcheck source=tests/bench/loss.sh
. "$home/tests/bench/loss.sh"

echo "format,scheme,how,bytes,tensors,kl"
for pair in "$@"; do
    format=${pair%%:*} scheme=${pair#*:}
    for how in ${ALGORITHMS:-mkq-full rtn}; do
        # shellcheck disable=SC2086
        calm quantize --model "$model" --format "$format" --scheme "$scheme" --algorithms "$how" --guard-samples 0 --no-eval --quiet \
            --force --output "$work/out" --store "$work/calm.db" ${OPTIONS:-} >/dev/null
        kl=$(loss "$work/out" "$model")
        echo "$format,$scheme,$how,$(python3 "$home/tests/bench/checkpoint_bytes.py" "$work/out"),$kl"
    done
done
