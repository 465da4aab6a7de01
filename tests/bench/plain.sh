#!/bin/sh
# Compares calm's plain rounding to GGUF types with llama-quantize's, one thread each, in turn, on a model with the shapes, the 28
# blocks and the vocabulary of Qwen3-0.6B (random weights, bfloat16).
#
#   CALM_LLAMA_CPP=PROGRAMS tests/bench/plain.sh FOLDER > plain.csv
#
#   FOLDER          holds model and files, about 4 GB
#
# Environment variables:
#   CALM_LLAMA_CPP  folder of llama-quantize (tests/readers/build_llama_cpp.sh prints it)
#   TYPES           names of types, "Q4_0 Q4_K_M Q6_K Q8_0" by default
#   ROUNDS          number of rounds, 2 by default
#   BUILD           build with calm, make_checkpoint and write_format, build/release by default
#
# CSV: type, name, user and system seconds, peak MiB, bytes of the file.  System seconds read and write files, and differ between
# runs by more than user seconds.
set -eu
[ $# -eq 1 ] && [ -n "${CALM_LLAMA_CPP:-}" ] || { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
build=${BUILD:-$CALM_HOME/build/release}
for program in "$build/calm" "$build/tests/make_checkpoint" "$build/tests/write_format" "$CALM_LLAMA_CPP/llama-quantize" /usr/bin/time; do
    [ -x "$program" ] || { echo "plain.sh: no $program" >&2; exit 2; }
done
cd "$folder"
[ -d model ] || "$build/tests/make_checkpoint" --shape qwen3-0.6b --blocks 28 --vocab 151936 --output model >&2
[ -f float/model.gguf ] || "$build/tests/write_format" model float gguf float >&2

# measure TYPE NAME FILE COMMAND...: a row of COMMAND, which writes FILE.
measure() {
    type=$1 name=$2 file=$3
    shift 3
    rm -rf calm calm.db calm.db.blobs llama.gguf
    /usr/bin/time -f '%U %S %M' -o time.txt "$@" >log.txt 2>&1 || { cat log.txt >&2; exit 1; }
    awk -v OFS=, -v type="$type" -v name="$name" -v bytes="$(wc -c <"$file")" \
        '{ print type, name, $1, $2, int($3 / 1024), bytes }' time.txt
}

echo type,name,user,system,peak_mib,bytes
round=0
while [ "$round" -lt "${ROUNDS:-2}" ]; do
    for type in ${TYPES:-Q4_0 Q4_K_M Q6_K Q8_0}; do
        measure "$type" calm calm/model.gguf "$build/calm" quantize --model model --format gguf --gguf-type "$type" --algorithms rtn \
            --guard-samples 0 --score-samples 0 --no-eval --quiet --store calm.db --output calm --threads 1
        measure "$type" llama-quantize llama.gguf "$CALM_LLAMA_CPP/llama-quantize" float/model.gguf llama.gguf "$type" 1
    done
    round=$((round + 1))
done
