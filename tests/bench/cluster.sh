#!/bin/sh
# What `calm bench cluster` foresees of a run on several ranks of this machine, beside what mpirun takes: a model with
# Qwen3-0.6B's layer shapes (random weights, vocabulary 4,096), RTN and GPTQ at W4 g128, one thread a rank.  The run on
# one rank comes first: its CPU seconds are what the replay starts from.
#
#   tests/bench/cluster.sh FOLDER
#
#   FOLDER    model, stores and checkpoints
#   RANKS     in the environment: numbers of ranks, "2 4" by default; more than the machine's cores share them
#   BLOCKS    in the environment: blocks of the model, 6 by default
#   CORES     in the environment: cores that the ranks have, all by default
#   BUILD     in the environment: folder of calm with MPI and tests/make_checkpoint; build/mpi by default
#
# CSV, each figure predicted, measured, and their ratio:
#   wall    seconds of the run, its ranks sharing the cores.  Other work on the machine adds to what is measured.
#   own     seconds as if every rank had a core: measured are rank 0's less those in which it waited for one.
#   cpu     CPU seconds of all ranks;  most: of the rank with most.
# and last the load average before the run.
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
# More ranks than cores, as root; waiting ranks give the core away.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_mpi_yield_when_idle OMPI_MCA_hwloc_base_binding_policy
model=$folder/model-$blocks
[ -d "$model" ] || "$build/tests/make_checkpoint" --shape qwen3-0.6b --blocks "$blocks" --vocab 4096 --output "$model" >&2
# Without a guard; the test text is two batches of the evaluation.
options="--model $model --bits 4 --algorithms rtn,gptq --samples 8 --seqlen 256 --guard-samples 0 --eval-samples 48
 --threads 1"

# A rank: calm, with its times and what Linux says of its waiting for a core (nanoseconds, of the main thread).
cat >"$folder/rank.sh" <<'EOF'
out=$1.$OMPI_COMM_WORLD_RANK
shift
/usr/bin/time -o "$out.time" -f '%e %U %S' "$@" &
time=$!
pid=
while [ -z "$pid" ] && kill -0 $time 2>/dev/null; do pid=$(pgrep -P $time) || sleep 0.1; done
while cat "/proc/$pid/schedstat" >"$out.new" 2>/dev/null && [ -s "$out.new" ]; do
    mv "$out.new" "$out.waited"
    sleep 0.2
done
wait $time
EOF

# run RANKS: wall, own, cpu, most into $folder/measured
run() {
    rm -rf "$folder/out" "$folder/out.lock.json" "$folder"/s.db* "$folder"/rank.*.*
    # shellcheck disable=SC2086    # a list of words
    if ! mpirun -n "$1" sh "$folder/rank.sh" "$folder/rank" "$build/calm" quantize $options --output "$folder/out" \
        --store "$folder/s.db" --quiet >"$folder/said" 2>&1; then
        echo "cluster.sh: the run on $1 ranks failed:" >&2
        tail -n 5 "$folder/said" >&2
        exit 1
    fi
    cat "$folder/rank.0.time" "$folder/rank.0.waited" "$folder"/rank.*.time | awk '
        NR == 1 { wall = $1 }
        NR == 2 { own = wall - $2 / 1e9 }
        NR > 2 { cpu = $2 + $3; all += cpu; if (cpu > most) most = cpu }
        END { print wall, own, all, most }' >"$folder/measured"
}

# figure KEY RANKS CORES OPTIONS...: of the replay
figure() {
    key=$1 ranks=$2 cores=$3
    shift 3
    # shellcheck disable=SC2086    # a list of words
    "$build/calm" bench cluster $options --bandwidth 100 --ranks "$ranks" --ranks-per-node "$ranks" \
        --cores-per-node "$cores" --json "$@" | sed -n "s/^ *\"$key\": \([0-9.e+]*\),\{0,1\}\$/\1/p"
}

# foresee RANKS OPTIONS...: the same four figures into $folder/predicted
foresee() {
    n=$1
    shift
    echo "$(figure seconds "$n" "$all_cores" "$@")" "$(figure seconds "$n" "$n" "$@")" \
        "$(figure work_seconds "$n" "$n" "$@")" "$(figure most_work_seconds "$n" "$n" "$@")" >"$folder/predicted"
}

print_row() {
    awk -v ranks="$1" -v load="$2" '{ for (i = 1; i <= NF; i++) n[NR, i] = $i }
        END {
            printf "%s", ranks
            for (i = 1; i <= 4; i++) printf ",%.1f,%.1f,%.2f", n[1, i], n[2, i], n[1, i] / n[2, i]
            print "," load
        }' "$folder/predicted" "$folder/measured"
}

echo ranks,wall_predicted,wall,ratio,own_predicted,own,ratio,cpu_predicted,cpu,ratio,most_predicted,most,ratio,load
load=$(cut -d' ' -f1 /proc/loadavg)
foresee 1
run 1
print_row "1 (forecast)" "$load"
seconds=$(cut -d' ' -f3 "$folder/measured")
for ranks in ${RANKS:-2 4}; do
    load=$(cut -d' ' -f1 /proc/loadavg)
    foresee "$ranks" --seconds "$seconds"
    run "$ranks"
    print_row "$ranks" "$load"
done
