#!/bin/sh
# Measures how time and memory grow: GPTQ at W4 g128 on models with the proportions of Qwen3-0.6B (mixtures: Qwen3-30B-A3B), random
# weights, one thread; each row changes one size.  growth.py fits lines and exponents to the table.
#
#   tests/bench/growth.sh FOLDER > growth.csv
#
#   FOLDER    gets models, stores and checkpoints; the script removes each after its row
#
# Environment variables:
#   FACTORS   "layers tokens width experts pool" by default; "window" varies the length of a fixed number of windows
#   WINDOWS   calibration windows, 8 by default (learning needs 10)
#   OPTIONS   more options of calm quantize, such as "--learn blocks --learn-steps 50"
#   CALM, MAKE  the program and make_checkpoint; build/release/... by default
#
# CSV: the size that grows, its value, user + system seconds, peak resident MiB, peak MiB of the store during the run.
# CPU seconds do not count other programs; kernels that share a core with other work are slower all the same.
# One model has the smallest value of layers, tokens and pool: 4 blocks of width 256, 512 tokens per window.
# Mixtures have width 1024, because groups of 128 divide their experts' 384 channels.
set -eu
[ $# -eq 1 ] || { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
. "$(dirname "$0")/timed.sh"

# All entries cost the same: GPTQ, and GPTQ with other damping.
pool() {
    list=gptq i=1
    while [ $i -lt "$1" ]; do
        list="$list,absmax+gptq(damp=0.0$((i + 1)))"
        i=$((i + 1))
    done
    echo "$list"
}

clean() { rm -rf "$folder/out" "$folder/out.lock.json" "$folder/s.db"*; }

measure() {    # measure FACTOR VALUE SHAPE BLOCKS WIDTH EXPERTS WINDOWS ENTRIES LENGTH: a row
    rm -rf "$folder/model"
    "$make" --shape "$3" --blocks "$4" --hidden "$5" --experts "$6" --vocab 4096 --output "$folder/model" >&2
    clean
    # shellcheck disable=SC2086 # several options
    /usr/bin/time -o "$folder/time" -f '%U %S %M' "$calm" quantize --model "$folder/model" --bits 4 --guard-samples 0 \
        --no-eval --quiet --threads 1 --samples "$7" --seqlen "$9" --score-samples 2 --algorithms "$(pool "$8")" \
        ${OPTIONS:-} --output "$folder/out" --store "$folder/s.db" >"$folder/said" 2>&1 &
    run=$!
    most=0
    while kill -0 $run 2>/dev/null; do
        now=$(du -sk "$folder/s.db.blobs" 2>/dev/null | cut -f 1 || true)
        [ "${now:-0}" -le $most ] || most=$now
        sleep 0.2
    done
    wait $run || { echo "growth.sh: $1 $2 failed:" >&2; tail -n 5 "$folder/said" >&2; exit 1; }
    awk -v row="$1,$2" -v most=$most '{ printf "%s,%.2f,%.1f,%.1f\n", row, $1 + $2, $3 / 1024, most / 1024 }' "$folder/time"
    clean
    rm -rf "$folder/model"
}

n=${WINDOWS:-8}
echo factor,value,cpu_seconds,peak_mib,store_mib
for factor in ${FACTORS:-layers tokens width experts pool}; do
    case $factor in
    layers) for i in 4 8 16 32; do measure layers $i qwen3-0.6b $i 256 0 "$n" 1 512; done ;;
    tokens) for i in 1 2 4 8; do measure tokens $((i * n * 512)) qwen3-0.6b 4 256 0 $((i * n)) 1 512; done ;;
    window) for i in 256 512 1024 2048; do measure window $i qwen3-0.6b 4 256 0 "$n" 1 $i; done ;;
    width) for i in 128 256 512 1024; do measure width $i qwen3-0.6b 2 $i 0 "$n" 1 512; done ;;
    experts) for i in 8 16 32 64; do measure experts $i qwen3-30b-a3b 1 1024 $i "$n" 1 512; done ;;
    pool) for i in 1 2 4 8; do measure pool $i qwen3-0.6b 4 256 0 "$n" $i 512; done ;;
    *) echo "growth.sh: no factor $factor" >&2; exit 2 ;;
    esac
done
