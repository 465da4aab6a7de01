#!/bin/sh
# Measures KL of GGUF files of given sizes, for which --size chooses the types of matrices and tables; gguf_types.sh measures
# llama-quantize's types.  CSV on the standard output.
#
#   gguf_sizes.sh FOLDER-OF-PROGRAMS [BYTES...]      build/release; BYTES: those of calm's files in docs/evidence/gguf_types.csv
#
# Environment variables: WINDOWS=196: test windows of 512 tokens.  ALGORITHMS=mkq-full.  SPLIT_V=1: v is a separate job.  The first
# size takes about three minutes of CPU, each other one half a minute.
set -eu

PATH=${1:?usage: gguf_sizes.sh FOLDER-OF-PROGRAMS [BYTES...]}:$PATH
shift
home=${CALM_HOME:-$(cd "$(dirname "$0")/../.." && pwd)}
export CALM_HOME=$home
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(awk -F, '$2 == "calm" { print $3 }' "$home/docs/evidence/gguf_types.csv")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# shellcheck source=tests/bench/loss.sh
. "$home/tests/bench/loss.sh"

echo "size,bytes,table,kl"
for size in "$@"; do
    calm quantize --model qwen --format gguf --size "${size}B" ${SPLIT_V:+--split-v} --algorithms "${ALGORITHMS:-mkq-full}" --guard-samples 0 --no-eval \
        --output "$work/$size" --store "$work/calm.db" --quiet --json >"$work/run.json"
    table=$(tr ',{}' '\n\n\n' <"$work/run.json" | sed -n 's/^ *"tables": *"embedding and head \([a-z0-9_]*\).*"$/\1/p')
    kl=$(loss "$work/$size/model.gguf" qwen)
    echo "$size,$(wc -c <"$work/$size/model.gguf"),$table,$kl"
done
