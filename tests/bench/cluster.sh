#!/bin/sh
# Compares the estimate of `calm bench cluster` with measured runs by mpirun on this machine: a model with
# Qwen3-0.6B's layer shapes (random weights, vocabulary 4,096), RTN and GPTQ at W4 g128, one thread per rank.  The run on
# one rank comes first; the replay uses its CPU seconds.
#
#   tests/bench/cluster.sh FOLDER
#
#   FOLDER    holds model, stores and checkpoints
#
# Environment variables:
#   RANKS     numbers of ranks, "2 4" by default; more ranks than cores share the cores
#   BLOCKS    number of blocks of the model, 6 by default
#   CORES     number of cores for the ranks, all by default
#   BUILD     folder of calm with MPI and tests/make_checkpoint; build/mpi by default
#
# CSV, each figure predicted, measured, and their ratio (predicted / measured):
#   alone   seconds of the run on a machine without other work.  The measurement corrects for other work: while ranks wait
#           for a core although the run uses fewer cores than it could, the clock runs slower (Linux's schedstat, five
#           times a second).
#   cpu     CPU seconds of all ranks;  most: CPU seconds of the busiest rank.
# then the wall-clock seconds of the run, and the load average before it.
set -eu
[ $# -eq 1 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
build=${BUILD:-$CALM_HOME/build/mpi}
blocks=${BLOCKS:-6}
all_cores=${CORES:-$(nproc)}
for program in "$build/calm" "$build/tests/make_checkpoint" /usr/bin/time "$(command -v mpirun || echo mpirun)"; do
    [ -x "$program" ] || { echo "cluster.sh: no $program" >&2; exit 2; }
done
# Allows more ranks than cores, and root; waiting ranks yield the core.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_mpi_yield_when_idle OMPI_MCA_hwloc_base_binding_policy
model=$folder/model-$blocks
[ -d "$model" ] || "$build/tests/make_checkpoint" --shape qwen3-0.6b --blocks "$blocks" --vocab 4096 --output "$model" >&2
# Without a guard; the test text has two batches of windows.
options="--model $model --bits 4 --algorithms rtn,gptq --samples 8 --seqlen 256 --guard-samples 0 --eval-samples 48
 --threads 1"

# Runs calm as a rank with its times, and records its process id for the clock.
cat >"$folder/rank.sh" <<'EOF'
out=$1.$OMPI_COMM_WORLD_RANK
shift
/usr/bin/time -o "$out.time" -f '%e %U %S' "$@" &
time=$!
pid=
while [ -z "$pid" ] && kill -0 $time 2>/dev/null; do pid=$(pgrep -P $time) || sleep 0.05; done
echo "$pid" >"$out.pid"
wait $time
EOF

# Computes the seconds of the ranks' work without other work on this machine.  A line has the time, then for each
# rank's main thread the nanoseconds that it had a core and that it waited for one.
watch_ranks() {
    while [ ! -e "$folder/ended" ]; do
        date +%s.%N | tr '\n' ' '
        for pid in "$folder"/rank.*.pid; do
            [ -s "$pid" ] && cut -d' ' -f1,2 "/proc/$(cat "$pid")/schedstat" 2>/dev/null
        done | awk '{ ran += $1; waited += $2; n++ } END { print n + 0, ran / 1e9, waited / 1e9 }'
        sleep 0.2
    done | awk -v cores="$all_cores" '
        # Ranks that begin or end change the sums: ignore waiting then.
        NR > 1 && $2 == n && n > 0 {
            ran = $3 - had; wanted = ran + $4 - waited; passed = $1 - at; can = cores * passed
            seconds += wanted > 0.01 * passed && ran > 0 ? ran / (wanted < can ? wanted : can) * passed : passed
        }
        NR > 1 && $2 != n { seconds += $1 - at }
        { at = $1; n = $2; had = $3; waited = $4 }
        END { print seconds }'
}

# run RANKS: writes corrected seconds, CPU seconds of all and of the busiest rank, and wall seconds to $folder/measured
run() {
    rm -rf "$folder/out" "$folder/out.lock.json" "$folder"/s.db* "$folder"/rank.*.* "$folder/ended"
    watch_ranks >"$folder/alone" &
    watcher=$!
    # shellcheck disable=SC2086    # a list of words
    mpirun -n "$1" sh "$folder/rank.sh" "$folder/rank" "$build/calm" quantize $options --output "$folder/out" \
        --store "$folder/s.db" --quiet >"$folder/said" 2>&1 || failed=$?
    : >"$folder/ended"
    wait $watcher
    if [ -n "$failed" ]; then
        echo "cluster.sh: the run on $1 ranks failed:" >&2
        tail -n 5 "$folder/said" >&2
        exit 1
    fi
    cat "$folder/alone" "$folder"/rank.*.time | awk '
        NR == 1 { alone = $1 }
        NR > 1 { cpu = $2 + $3; all += cpu; if (cpu > most) most = cpu; if ($1 > wall) wall = $1 }
        END { print alone, all, most, wall }' >"$folder/measured"
}
failed=

# estimate RANKS OPTIONS...: writes estimates of the first three figures to $folder/predicted
estimate() {
    ranks=$1
    shift
    # shellcheck disable=SC2086    # a list of words
    "$build/calm" bench cluster $options --bandwidth 100 --ranks "$ranks" --ranks-per-node "$ranks" \
        --cores-per-node "$all_cores" --json "$@" >"$folder/bench.json"
    for key in seconds work_seconds most_work_seconds; do
        sed -n "s/^ *\"$key\": \([0-9.e+]*\),\{0,1\}\$/\1/p" "$folder/bench.json"
    done | tr '\n' ' ' >"$folder/predicted"
    echo >>"$folder/predicted"
}

print_row() {
    awk -v ranks="$1" -v load="$2" '{ for (i = 1; i <= NF; i++) n[NR, i] = $i }
        END {
            printf "%s", ranks
            for (i = 1; i <= 3; i++) printf ",%.1f,%.1f,%.2f", n[1, i], n[2, i], n[1, i] / n[2, i]
            printf ",%.1f,%s\n", n[2, 4], load
        }' "$folder/predicted" "$folder/measured"
}

echo ranks,alone_predicted,alone,ratio,cpu_predicted,cpu,ratio,most_predicted,most,ratio,seconds,load
load=$(cut -d' ' -f1 /proc/loadavg)
estimate 1
run 1
print_row "1 (forecast)" "$load"
seconds=$(cut -d' ' -f2 "$folder/measured")
for ranks in ${RANKS:-2 4}; do
    load=$(cut -d' ' -f1 /proc/loadavg)
    estimate "$ranks" --seconds "$seconds"
    run "$ranks"
    print_row "$ranks" "$load"
done
