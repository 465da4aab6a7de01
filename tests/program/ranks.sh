#!/bin/sh
# Runs of several ranks on this machine: they give the same bytes as one process; and what happens when ranks differ or die.
#
#   ranks.sh FOLDERS-OF-PROGRAMS PART
#
# PART: two, more, learn, kill, delay, slurm, refuse.  Skipped (exit status 77) without mpirun, or when calm was built
# without MPI; delay also without root, network namespaces or TUN devices; slurm without root, munged, slurmctld or slurmd.
set -u

[ $# -eq 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
PATH=$1:$PATH
export PATH
command -v mpirun >/dev/null 2>&1 || { echo "SKIP: no mpirun (apt-get install openmpi-bin libopenmpi-dev, cmake -DCALM_MPI=ON)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work" || exit 2
unset OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE SLURM_PROCID SLURM_STEP_NUM_TASKS
# There may be more ranks than cores, it runs as root, and the only network is this machine's; ranks that wait give the
# core away.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
    OMPI_MCA_mpi_yield_when_idle OMPI_MCA_hwloc_base_binding_policy
failed=0

fail() {
    echo "ranks.sh: $*"
    failed=1
}

# The demo model, briefly; then a model of experts, in which blocks wait for routed tokens.
brief='--model qwen --samples 6 --seqlen 128 --guard-samples 2 --eval-samples 2 --threads 1'
small="$brief --scheme w4a16_g64 --algorithms rtn,gptq,mkq"
light="$brief --scheme w8a8 --algorithms rtn,smoothquant,gptq --effort light"
units="$brief --scheme w4a16_g64 --algorithms rtn,gptq --unit block"
weighed="$brief --scheme w3a16_g64 --algorithms gptq --weight gradient"
blind="$brief --scheme w4a16_g64 --algorithms rtn --score-samples 0"
prefix="$brief --scheme w4a16_g64 --algorithms rtn --prefix quantized"
experts='--model moe --calib text.txt --scheme w8a8 --algorithms rtn,gptq,smoothquant,smoothquant-gptq --samples 16 --seqlen 64
 --guard-samples 0 --no-eval --threads 1'
# More windows than a batch of the evaluation holds (24,576 rows), so that they are divided.  Guard, learned result and
# file are measured by all ranks together.
wide='--model tiny --scheme w4a16_g32 --algorithms rtn,gptq --samples 40 --seqlen 64 --guard-samples 450 --eval-samples 450
 --learn blocks --learn-steps 50 --threads 1'

# An encoder: sentences are divided too, even fewer than a batch holds.
sentences='--model bert --calib text.txt --scheme w4a16_g32 --algorithms rtn,gptq --samples 24 --seqlen 64 --guard-samples 5
 --eval-samples 11 --threads 1'

# Blocks that are learned; the options of a model are appended.
learned='--calib text.txt --algorithms rtn --seqlen 64 --guard-samples 4 --no-eval --keep-hybrid --learn-steps 50 --threads 1'

# run RANKS DIR OPTIONS...: 0 ranks: without mpirun
run() {
    ranks=$1 dir=$2
    shift 2
    set -- calm quantize "$@" --output "$dir/out" --store "$dir/calm.db"
    [ "$ranks" = 0 ] || set -- $between mpirun $transport -n "$ranks" "$@"
    "$@" >"$dir.said" 2>&1
}
transport= between=

mpi_is_built() {
    mpirun -n 2 calm quantize --model qwen --blocks 0-99 --output none --store none.db >probe.said 2>&1
    ! grep -q 'built without MPI' probe.said
}
mpi_is_built || { echo "SKIP: $(grep -o 'this calm was built without MPI' probe.said) (cmake -DCALM_MPI=ON)"; exit 77; }

# rows: every row that has a key, with all that results depend on, and so without ids, times and names of folders
rows() {
    store_sql "$1/calm.db" "
SELECT 'candidate', c.key, j.name, a.name, a.chain, c.scheme, quote(c.failure), quote(c.blob), c.blob_bytes,
  quote(c.bits_per_weight), quote(c.damp), c.score_rows, c.dropped_rows
  FROM candidate c JOIN job j ON j.id = c.job_id JOIN algorithm a ON a.id = c.algorithm_id ORDER BY c.key;
SELECT 'score', c.key, s.unit, s.metric, quote(s.value) FROM score s JOIN candidate c ON c.id = s.candidate_id
  ORDER BY 2, 3, 4;
SELECT 'activation', hook, (SELECT key FROM calibration k WHERE k.id = calibration_id), point, block, channels, count, zeros, n_tokens, n_massive, quote(mean), quote(std),
  quote(mean_abs), quote(rms), quote(min), quote(max), quote(max_abs), quote(q25), quote(q50), quote(q75), quote(q90),
  quote(q99), quote(q999), quote(peak_median), quote(ratio_median), quote(ratio_max), quote(ratio_mean),
  quote(ratio_std), quote(crest_median), quote(crest_max), histogram_first, histogram FROM activation ORDER BY 2, 3;
SELECT 'peak', a.hook || (SELECT key FROM calibration k WHERE k.id = a.calibration_id), p.rank, quote(p.value), p.window, p.token, p.channel, quote(p.text)
  FROM activation_peak p JOIN activation a ON a.id = p.activation_id ORDER BY 2, 3;
SELECT 'context', window, token, quote(text_before), quote(text_after) FROM token_context ORDER BY 2, 3;
SELECT 'expert', j.name, e.tokens FROM expert e JOIN job j ON j.id = e.job_id ORDER BY 2;
SELECT 'evaluation', key, subject, n_windows, tokens, quote(nll), quote(ppl), quote(kl), pairs, quote(error),
  quote(cosine), quote(cosine_min), quote(spearman) FROM evaluation ORDER BY key;
SELECT 'window', e.key, w.number, quote(w.nll), quote(w.kl), quote(w.error), quote(w.cosine) FROM evaluation_window w
  JOIN evaluation e ON e.id = w.evaluation_id ORDER BY 2, 3;
SELECT 'compared', v.run_id, v.role, v.subject, e.key, quote(v.delta_kl),
  quote(v.delta_one_minus_cosine), quote(v.delta_se) FROM run_evaluation v
  JOIN evaluation e ON e.id = v.evaluation_id ORDER BY 2, 3, 4;
SELECT 'choice', j.name, c.key, h.unit, h.reason, quote(h.advice) FROM choice h JOIN job j ON j.id = h.job_id
  LEFT JOIN candidate c ON c.id = h.candidate_id ORDER BY 2;
SELECT 'learned', d.key, quote(d.kept), d.blob, quote(d.loss_before), quote(d.loss_after), d.changed, c.key, s.key
  FROM learned d JOIN learned_candidate l ON l.learned_id = d.id JOIN candidate c ON c.id = l.candidate_id
  JOIN candidate s ON s.id = l.start_id ORDER BY 2, 8;
SELECT 'considered', c.key FROM run_candidate r JOIN candidate c ON c.id = r.candidate_id ORDER BY 2;
SELECT 'run', key, status, result, reason, quote(bits_per_weight), bytes_before, bytes_after FROM run"
}

# same A B: files and rows
same() {
    diff -r "$1/out" "$2/out" >/dev/null || fail "$2: other files than $1: $(diff -rq "$1/out" "$2/out" | head -n 3)"
    rows "$1" >"$1.rows"
    rows "$2" >"$2.rows"
    [ "$(wc -l <"$1.rows")" -gt 20 ] || fail "$1: no rows to compare"
    cmp -s "$1.rows" "$2.rows" ||
        fail "$2: other rows than $1: $(diff "$1.rows" "$2.rows" | cut -c1-300 | head -n 4)"
}

# check RANKS DIR AS OPTIONS...: run on these ranks, and compare with the run of one process in AS
check() {
    ranks=$1 dir=$2 as=$3
    shift 3
    run "$ranks" "$dir" "$@" || fail "$dir: $(tail -n 5 "$dir.said")"
    same "$as" "$dir"
}

# tied DIR AS OPTIONS...: copy a store and change it so that the guard's first windows cannot decide: rtn is behind the
# hybrid by less than an error.  Finish the run on one process in AS, and check that it measured more windows.  Real
# windows depend on the model, so the store gets other values: the hybrid has rtn in one kind of job only, one of two
# windows speaks more for rtn and one less, and all speak against gptq.
tied() {
    copy=$1 as=$2
    shift 2
    run 0 "$as" "$@" || fail "$as: $(tail -n 5 "$as.said")"
    store_sql --change "$as/calm.db" "UPDATE score SET value = 1e-9 WHERE candidate_id IN (SELECT c.id FROM candidate c
        JOIN algorithm a ON a.id = c.algorithm_id JOIN job j ON j.id = c.job_id WHERE a.name = 'rtn' AND j.role = 'o')"
    run 0 "$as" "$@" --force || fail "$as: $(tail -n 5 "$as.said")"
    # The factor on the hybrid's loss; for an encoder the loss is 1 - cosine.
    for said in 'rtn CASE number WHEN 0 THEN 1.3 WHEN 1 THEN 0.9 ELSE 1 END' 'gptq 3'; do
        evaluation="(SELECT v.evaluation_id FROM run_evaluation v WHERE v.run_id = 2 AND v.role = 'guard' AND v.subject ="
        hybrid="FROM evaluation_window h WHERE h.number = evaluation_window.number AND h.evaluation_id = $evaluation 'hybrid')"
        evaluation="$evaluation '${said%% *}')"
        store_sql --change "$as/calm.db" "UPDATE evaluation_window SET kl = (SELECT h.kl * (${said#* }) $hybrid),
            cosine = (SELECT 1 - (1 - h.cosine) * (${said#* }) $hybrid) WHERE evaluation_id = $evaluation;
            UPDATE evaluation SET (kl, cosine) = (SELECT sum(w.kl) / sum(w.tokens), avg(w.cosine) FROM evaluation_window w
            WHERE w.evaluation_id = evaluation.id) WHERE id = $evaluation"
    done
    cp -r "$as" "$copy"
    run 0 "$as" "$@" --force || fail "$as: $(tail -n 5 "$as.said")"
    grep -q ' more than the first .*, which could not decide' "$as.said" || fail "$as: no tie: $(cat "$as.said")"
}

# divided DIR: fail unless a rank said that windows are divided
divided() {
    grep -q '^calm: windows to measure are divided among ' "$1.said" || fail "$1: one rank measured alone"
}

texts() {
    make_checkpoint --shape tiny-qwen3-moe --output moe >/dev/null
    make_checkpoint --shape tiny-bert --output bert >/dev/null
    head -c 40000 "${CALM_HOME:?}/recipes/text/wikitext2-valid.txt" >text.txt
}

blobs() {
    find "$1/calm.db.blobs" -type f | wc -l
}

part_two() {
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output tiny >/dev/null
    texts
    tail -c 40000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" >other.txt
    few="--model tiny --scheme w4a16_g32 --algorithms rtn --samples 4 --seqlen 64 --guard-samples 0 --no-eval --threads 1"
    several="$brief --scheme w4a16_g64 --algorithms rtn,gptq --calib text.txt --calib other.txt"
    # The runs that those of several ranks are compared with later, on the core that one rank leaves free.
    { run 0 wide $wide && run 0 few $few && run 0 bert1 $sentences && run 0 several $several; } &
    alone=$!
    run 0 one $small || fail "$(tail -n 5 one.said)"
    wait $alone || fail "$(tail -n 5 wide.said few.said bert1.said several.said 2>&1)"
    check 2 two one $small
    # Only rank 0 prints.
    [ "$(grep -c 'test text' two.said)" = 1 ] || fail "two: the report is there $(grep -c 'test text' two.said) times"
    grep -qE '^ +rank +machine .* idle %$' two.said || fail "two: the report does not say how long ranks were idle"
    # Everything is in the store now.
    run 0 one $small --force || fail "$(tail -n 5 one.said)"
    check 2 two one $small --force
    check 2 wide2 wide $wide
    divided wide2
    # More ranks than blocks, and what each of them did.
    check 3 few3 few $few --json
    grep -q '^calm: warning: 3 ranks for 2 blocks: 1 of the ranks have nothing to compute$' few3.said ||
        fail "few3: $(cat few3.said)"
    [ "$(grep -cE '"idle_seconds": [0-9]' few3.said)" = 3 ] || fail "few3: $(grep -A 40 '"ranks"' few3.said)"
    [ "$(grep -c '"blocks": 1,$' few3.said)" = 2 ] || fail "few3: $(grep -A 40 '"ranks"' few3.said)"
    store_sql few3/calm.db "SELECT value FROM environment WHERE name = 'ranks'" |
        grep -qE '^3, idle [0-9.]+ %, [0-9.]+ %, [0-9.]+ % of [0-9.]+ s$' || fail "few3: the store has no idle times"
    check 2 bert2 bert1 $sentences
    divided bert2
    # Two texts, each of which is also described by itself.
    check 2 several2 several $several
    [ "$(grep -c '^activation' several.rows)" -gt "$(grep -c '^activation' one.rows)" ] ||
        fail "several: no rows of each text alone"
    # Codes that were dropped: each rank computes those of its blocks again; the recipe that is written says so.
    [ "$(blobs two)" = "$(blobs one)" ] || fail "two: $(blobs two) blobs, and one $(blobs one)"
    rows two | grep -E "^(candidate|score)" >before.rows
    run 2 two $small --keep-candidates --force || fail "$(tail -n 5 two.said)"
    rows two | grep -E "^(candidate|score)" >after.rows
    [ -s before.rows ] && cmp -s before.rows after.rows || fail "two: other rows with codes that were dropped"
    [ "$(blobs two)" = "$(store_sql two/calm.db 'SELECT count(DISTINCT blob) FROM candidate')" ] ||
        fail "two: $(blobs two) blobs with --keep-candidates"
}

part_more() {
    run 0 one $small || fail "$(tail -n 5 one.said)"
    check 1 n1 one $small
    check 4 n4 one $small
    # Blocks are divided by what is left to compute in them.
    run 0 left $small --blocks 1-2 || fail "$(tail -n 5 left.said)"
    run 3 left $small --force || fail "$(tail -n 5 left.said)"
    diff -r one/out left/out >/dev/null || fail "left: other files than one"
    transport='--mca btl tcp,self'
    check 2 tcp one $small
    transport=
    # Smoothing that is left out where the crest is small; scores of whole blocks.
    run 0 light $light || fail "$(tail -n 5 light.said)"
    check 3 light3 light $light
    run 0 units $units || fail "$(tail -n 5 units.said)"
    check 3 units3 units $units
    # Rows weighted by gradients: every rank computes its own.
    run 0 weighed $weighed || fail "$(tail -n 5 weighed.said)"
    check 3 weighed3 weighed $weighed
    # Candidates that need only weights: no rows are sent.
    run 0 blind $blind || fail "$(tail -n 5 blind.said)"
    check 2 blind2 blind $blind
    # Probes of tables need a model in memory, which only rank 0 has: they are longer than a batch, and not divided.
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output tables >/dev/null
    sized="--model tables --format gguf --size 500KB --algorithms rtn --samples 56 --seqlen 2048 --probe-samples 14
 --guard-samples 2 --no-eval --threads 1"
    run 0 sized $sized || fail "$(tail -n 5 sized.said)"
    check 2 sized2 sized $sized
    # Two runs on one store: the second waits and says for which one, then finds everything in the store.
    mpirun -n 2 calm quantize $small --output both/a --store both/calm.db --quiet >a.said 2>&1 &
    first=$!
    wait_for both 1 $first
    mpirun -n 2 calm quantize $small --output both/b --store both/calm.db >b.said 2>&1 || fail "b: $(tail -n 5 b.said)"
    wait $first || fail "a: $(tail -n 5 a.said)"
    grep -q 'both/calm.db: waiting for .*, which is writing to this store' b.said || fail "b: it did not wait"
    for out in a b; do
        diff -r one/out both/$out >/dev/null || fail "both/$out: other files than one"
    done
    # A quantized prefix, which cannot be divided.
    run 0 prefix $prefix || fail "$(tail -n 5 prefix.said)"
    check 2 prefix2 prefix $prefix
    grep -q "each block needs what the one before became: rank 0 computes all" prefix2.said ||
        fail "prefix2: does not say so: $(cat prefix2.said)"
    texts
    run 0 moe1 $experts || fail "$(tail -n 5 moe1.said)"
    check 2 moe2 moe1 $experts
    check 4 moe4 moe1 $experts
    # Sentences with 8-bit activations, scored by probes and learned, on more ranks than the guard has sentences.
    active="--model bert --calib text.txt --scheme w8a8_asymact --scheme w4a16_g32 --algorithms rtn,smoothquant --budget 6
 --samples 24 --seqlen 64 --guard-samples 3 --probe-samples 2 --eval-samples 7 --learn blocks --learn-steps 50 --threads 1"
    run 0 active $active || fail "$(tail -n 5 active.said)"
    check 4 active4 active $active
    divided active4
    # Ties: the additional windows are divided like the first ones.
    ended="--scheme w4a16_g32 --algorithms rtn,gptq --seqlen 64 --no-eval --threads 1"
    tied btie3 btie --model bert --calib text.txt --samples 24 --guard-samples 5 $ended
    check 3 btie3 btie --model bert --calib text.txt --samples 24 --guard-samples 5 $ended --force
    divided btie3
    tied tie2 tie --model tables --samples 8 --guard-samples 400 $ended
    check 2 tie2 tie --model tables --samples 8 --guard-samples 400 $ended --force
    divided tie2
    # Experts multiply the rows of a whole batch at once.
    many="--model moe --scheme w4a16_g8 --algorithms rtn --samples 8 --seqlen 64 --guard-samples 450 --eval-samples 850
 --threads 1"
    run 0 many $many || fail "$(tail -n 5 many.said)"
    check 3 many3 many $many
    divided many3
}

part_learn() {
    texts
    make_checkpoint --shape tiny-qwen3 --output dense >/dev/null
    # Learning that does not begin at the first block, with 8-bit activations, and tuning after it.
    inner="--model dense --scheme w4a8_g32 --samples 24 --blocks 1-2 --learn both $learned"
    run 0 inner $inner || fail "$(tail -n 5 inner.said)"
    check 2 inner2 inner $inner
    check 4 inner4 inner $inner
    grep -q '^calm: blocks are learned one after the other, by rank 0; passes .* 3 other ranks$' inner4.said ||
        fail "inner4: $(cat inner4.said)"
    grep -q '^calm: tuning takes one step after the other' inner4.said || fail "inner4: $(cat inner4.said)"
    # The least memory in which the run fits: hidden rows are in a file.
    file="--model dense --scheme w4a16_g32 --samples 400 --learn blocks $learned"
    run 0 file $file || fail "$(tail -n 5 file.said)"
    least=40
    until run 3 file3 $file --memory ${least}MB; do
        least=$((least + 1))
        [ $least -lt 90 ] || fail "$(tail -n 5 file3.said)"
    done
    same file file3
    grep -q 'hidden rows in a file' file3.said || fail "file3: $(grep memory: file3.said)"
    # Experts multiply the rows of all windows at once: the passes are not divided.
    mixed="--model moe --scheme w4a16_g8 --samples 24 --learn blocks $learned"
    run 0 mixed $mixed || fail "$(tail -n 5 mixed.said)"
    check 3 mixed3 mixed $mixed
    bert="--model bert --scheme w4a16_g32 --samples 24 --learn blocks $learned"
    run 0 bert1 $bert || fail "$(tail -n 5 bert1.said)"
    check 2 bert2 bert1 $bert
    # Ranks that die while they learn: the next run continues from the blocks that are there.
    long="--model dense --scheme w4a16_g32 --samples 48 --learn blocks $learned --learn-steps 1000"
    run 0 long $long || fail "$(tail -n 5 long.said)"
    for rank in 0 1; do
        kill_at $rank l$rank 'block 0 learned' 'the pass of .* windows' $long
        check $((3 * rank)) l$rank long $long
    done
}

# rank_pid PID RANK: print the process of that rank, among the calm that mpirun started below process PID
rank_pid() {
    for pid in $(pgrep -P "$1" -x calm); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$2" && echo "$pid"
    done
}

# wait_for DIR N PID: wait until the run PID in DIR has stored N candidates, or has ended
wait_for() {
    for _ in $(seq 600); do
        n=$(store_sql "$1/calm.db" 'SELECT count(*) FROM candidate' 2>/dev/null || echo 0)
        [ "${n:-0}" -lt "$2" ] || return 0
        kill -0 "$3" 2>/dev/null || return 0
        sleep 0.05
    done
}

# kill_at RANK DIR SAID PLACE OPTIONS...: kill one of two ranks once the run has printed SAID; it must have worked on
# PLACE then
kill_at() {
    rank=$1 dir=$2 said=$3 place=$4
    shift 4
    mpirun -n 2 calm quantize "$@" --output $dir/out --store $dir/calm.db >$dir.said 2>&1 &
    job=$!
    until grep -qs "^calm: $said" $dir.said || ! kill -0 $job; do sleep 0.02; done
    kill -9 "$(rank_pid $job $rank)" || fail "$dir: ended too early"
    wait $job && fail "$dir: ended with status 0"
    grep -qE "^calm: rank $rank .* ended while it worked on ($place|what follows)" $dir.said || fail "$dir: $(cat $dir.said)"
}

part_kill() {
    # A busy machine kills a rank late: a longer evaluation leaves it the time.
    small="$small --eval-samples 32"
    run 0 one $small || fail "$(tail -n 5 one.said)"
    late=
    # How many candidates there are when a rank is killed: 0 when the run has just begun, 72 are all.
    for at in 0 1 3 5 8 11 14 18 22 26 30 35 40 45 50 55 60 64 68 71; do
        for rank in 0 1; do
            dir=k$at-$rank
            mpirun -n 2 calm quantize $small --output $dir/out --store $dir/calm.db --quiet >$dir.said 2>&1 &
            job=$!
            victim=
            while [ -z "$victim" ] && kill -0 $job; do
                victim=$(rank_pid $job $rank)
            done
            wait_for $dir $at $job
            began=$(date +%s)
            kill -9 "$victim" || fail "$dir: ended too early"
            wait $job
            status=$?
            [ $(($(date +%s) - began)) -le 10 ] || fail "$dir: took $(($(date +%s) - began)) s to end"
            [ $status -ne 0 ] || fail "$dir: ended with status 0"
            # The rank was killed when the result was already there: there is nothing to resume.
            [ ! -e $dir/out ] || { late="$late $dir"; continue; }
            # At the very start a rank is not connected yet: then only mpirun says it.
            [ $at = 0 ] || grep -q "^calm: rank $rank (process $victim on .*) ended while it worked on .*; " $dir.said ||
                fail "$dir: $(cat $dir.said)"
            if [ $rank = 0 ]; then ranks=3; else ranks=0; fi
            check $ranks $dir one $small
        done
    done
    [ "$(echo $late | wc -w)" -le 4 ] || fail "killed too late to resume: $late"
    # Ranks that die while they measure together.
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output tiny >/dev/null
    run 0 wide $wide || fail "$(tail -n 5 wide.said)"
    for rank in 0 1; do
        kill_at $rank m$rank 'windows to measure' 'the evaluation of windows' $wide
        check $((2 * rank)) m$rank wide $wide
    done
    # A rank that stands still for a while is not dead.
    mpirun -n 2 calm quantize $small --output stop/out --store stop/calm.db --quiet >stop.said 2>&1 &
    job=$!
    wait_for stop 5 $job
    victim=$(rank_pid $job 1)
    kill -STOP "$victim"; sleep 5; kill -CONT "$victim"
    wait $job || fail "stop: $(cat stop.said)"
    same one stop
}

part_delay() {
    # The kernel's own delay if it has one, else that of the process that joins the machines.
    if unshare -n tc qdisc add dev lo root netem delay 1ms 2>/dev/null; then
        echo "ranks.sh: the delay is netem's"
        delay=0 slow='tc qdisc add dev link root netem delay 50ms 2ms'
    else
        delay=50 slow=true
    fi
    cat >enter <<'EOF'
#!/bin/sh
# mpirun runs this in place of ssh, which the second machine does not have.
shift
exec nsenter -t "$DELAY_LINK_FAR" -n -u sh -c "$*"
EOF
    cat >slowly <<EOF
#!/bin/sh
echo "\$DELAY_LINK_FAR" >link.pid
$slow && nsenter -t "\$DELAY_LINK_FAR" -n -u $slow && exec "\$@"
EOF
    chmod +x enter slowly
    delay_link $delay ./slowly true 2>link.said
    case $? in
        0) ;;
        77) echo "SKIP: $(cat link.said)"; exit 77 ;;
        *) fail "$(cat link.said)"; return ;;
    esac
    between="delay_link $delay ./slowly"
    transport="--mca plm_rsh_agent $work/enter --mca btl tcp,self --mca btl_tcp_if_include link
 --mca oob_tcp_if_include link --host near:1,far:3"
    run 0 one $small || fail "$(tail -n 5 one.said)"
    check 2 far2 one $small
    grep -q '^calm: rank 1 (on far): ' far2.said || fail "far2: $(cat far2.said)"
    # The hidden rows of at least one block of six have gone over the link.
    carried far2 1000000
    check 4 far4 one $small
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output tiny >/dev/null
    run 0 wide $wide || fail "$(tail -n 5 wide.said)"
    check 2 far-wide wide $wide
    divided far-wide
    texts
    run 0 moe1 $experts || fail "$(tail -n 5 moe1.said)"
    check 3 far-moe moe1 $experts
    # A machine that is lost: nothing comes over the link any more, and no connection is closed.  Without these settings
    # mpirun would wait for it eight minutes longer than calm.
    $between mpirun $transport --mca oob_tcp_keepalive_time 6 --mca oob_tcp_keepalive_intvl 2 \
        --mca oob_tcp_keepalive_probes 3 -n 2 calm quantize $small --output gone/out --store gone/calm.db --quiet >gone.said 2>&1 &
    job=$!
    wait_for gone 5 $job
    kill -USR1 "$(cat link.pid)"
    began=$(date +%s)
    wait $job && fail "gone: ended with status 0"
    [ $(($(date +%s) - began)) -le 20 ] || fail "gone: took $(($(date +%s) - began)) s to end"
    grep -q '^calm: rank 1 (process [0-9]* on far) ended while it worked on .*; ' gone.said || fail "gone: $(cat gone.said)"
    check 0 gone one $small
    # mpirun's process on the lost machine would wait for a while.
    for pid in $(pgrep -x orted); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "DELAY_LINK_FAR=$(cat link.pid)" && kill -9 "$pid"
    done
}

# slurm_begin: start a cluster of two nodes on this machine, of two slurmd, one slurmctld, and munged for their
# credentials
slurm_begin() {
    for program in munged slurmctld slurmd srun sbatch; do
        command -v $program >/dev/null || { echo "SKIP: no $program (apt-get install slurmd slurmctld munge)"; exit 77; }
    done
    [ "$(id -u)" = 0 ] || { echo "SKIP: slurmd -N needs root (run the tests as root)"; exit 77; }
    mkdir state tmp-n1 tmp-n2
    head -c 128 /dev/urandom >munge.key
    chmod 400 munge.key
    chmod 711 .
    munged --force --foreground --key-file "$work/munge.key" --socket "$work/munge.socket" --pid-file "$work/munge.pid" \
        --log-file "$work/munge.log" --seed-file "$work/munge.seed" >munged.said 2>&1 &
    daemons=$!
    # A requeued job begins when its credentials have expired: after 2 minutes, unless cred_expire is set.
    cat >slurm.conf <<EOF
ClusterName=calm
SlurmctldHost=$(hostname)
SlurmctldPort=27817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket,cred_expire=5
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
NodeName=n1 NodeHostname=$(hostname) Port=27818 CPUs=4
NodeName=n2 NodeHostname=$(hostname) Port=27819 CPUs=4
PartitionName=main Nodes=n1,n2 Default=YES State=UP OverSubscribe=FORCE:4
EOF
    SLURM_CONF=$work/slurm.conf
    export SLURM_CONF
    until [ -e munge.socket ] || ! kill -0 $daemons; do sleep 0.1; done
    slurmctld -D >slurmctld.said 2>&1 &
    daemons="$daemons $!"
    for node in n1 n2; do
        slurmd -D -N $node >slurmd-$node.said 2>&1 &
        daemons="$daemons $!"
    done
    trap 'kill $daemons; wait; rm -rf "$work"' EXIT
    for _ in $(seq 100); do
        [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return 0
        sleep 0.2
    done
    fail "two nodes do not come up: $(sinfo -N 2>&1; tail -n 5 slurmctld.log slurmd-*.log)"
    exit 1
}

# submit DIR: submit a job of two ranks; its number is in $job
submit() {
    cat >"$1.sh" <<EOF
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=$work/$1.said
cd $work || exit 1
srun --mpi=pmix --kill-on-bad-exit=1 calm quantize $(echo $small) --output $1/out --store $1/calm.db
EOF
    job=$(sbatch --parsable "$1.sh")
}

# job_state JOB: PENDING, RUNNING, COMPLETED ...
job_state() {
    scontrol show job "$1" 2>/dev/null | sed -n 's/^ *JobState=\([A-Z_]*\).*/\1/p'
}

part_slurm() {
    slurm_begin
    run 0 one $small || fail "$(tail -n 5 one.said)"
    launch="srun --mpi=pmix -N 2 -n 2"
    $launch calm quantize $small --output run/out --store run/calm.db >run.said 2>&1 || fail "run: $(tail -n 5 run.said)"
    same one run
    grep -q '^ *1 .* [0-9.]* *$' run.said || fail "run: no row of rank 1: $(tail -n 12 run.said)"
    # Killed: calm says its sentence, and the next run gives the same bytes.
    $launch calm quantize $small --output dead/out --store dead/calm.db --quiet >dead.said 2>&1 &
    step=$!
    wait_for dead 5 $step
    for pid in $(pgrep -x calm); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "SLURM_CONF=$SLURM_CONF" || continue
        tr '\0' '\n' <"/proc/$pid/environ" | grep -qx SLURM_PROCID=1 && kill -9 "$pid"
    done
    wait $step && fail "dead: ended with status 0"
    grep -q 'calm: rank 1 (process [0-9]* on .*) ended while it worked on .*; ' dead.said || fail "dead: $(cat dead.said)"
    check 0 dead one $small
    # Cancelled: the same command continues.
    submit cancelled
    wait_for cancelled 5 $$
    scancel "$job"
    for _ in $(seq 100); do
        [ "$(job_state "$job")" != CANCELLED ] || [ -n "$(squeue -h -j "$job" 2>/dev/null)" ] || break
        sleep 0.1
    done
    [ "$(job_state "$job")" = CANCELLED ] || fail "cancelled: $(job_state "$job")"
    [ ! -e cancelled/out ] || fail "cancelled: it was over before"
    submit cancelled
    finish cancelled
    # Requeued: the job continues without a command.
    submit requeued
    wait_for requeued 5 $$
    scontrol requeue "$job"
    finish requeued
    [ "$(scontrol show job "$job" | grep -c ' Restarts=1 ')" = 1 ] || fail "requeued: $(scontrol show job "$job")"
    # An array of ablations, each with its own store.
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output tiny >/dev/null
    cat >array.sh <<EOF
#!/bin/bash
#SBATCH --array=0-1 --ntasks=1 --output=$work/array-%a.said
cd $work || exit 1
schemes=(w4a16_g32 w8a16_g32)
scheme=\${schemes[\$SLURM_ARRAY_TASK_ID]}
calm ablate --model tiny --scheme "\$scheme" --algorithms rtn,gptq --samples 4 --seqlen 64 --eval-samples 2 --no-probes \
    --threads 1 --store "array-\$scheme.db"
EOF
    sbatch --wait array.sh >/dev/null || fail "array: $(tail -n 5 array-0.said array-1.said)"
    for scheme in w4a16_g32 w8a16_g32; do
        [ "$(store_sql array-$scheme.db 'SELECT DISTINCT scheme FROM candidate')" = $scheme ] ||
            fail "array: $scheme: $(cat array-*.said)"
    done
}

# finish DIR: the job ends with success and the bytes of one process, and had something to continue from
finish() {
    for _ in $(seq 600); do
        case $(job_state "$job") in COMPLETED | FAILED | CANCELLED | NODE_FAIL) break ;; esac
        sleep 0.2
    done
    [ "$(job_state "$job")" = COMPLETED ] || fail "$1: $(job_state "$job"): $(tail -n 5 "$1.said")"
    grep -qE '[1-9][0-9]* of [0-9]+ candidates are in .* already' "$1.said" || fail "$1: it began anew: $(cat "$1.said")"
    same one "$1"
}

# carried DIR BYTES: fail unless this many bytes have gone to the other machine
carried() {
    n=$(sed -n 's/^delay_link: [0-9]* packets and \([0-9]*\) bytes to far, .*/\1/p' "$1.said")
    [ "${n:-0}" -ge "$2" ] || fail "$1: $n bytes went over the link"
}

# refused STATUS PATTERN WORDS...: WORDS follow mpirun -n 1; what all ranks share is in $small
refused() {
    status=$1 pattern=$2
    shift 2
    mpirun "$@" >refused.said 2>&1
    found=$?
    [ $found = "$status" ] || fail "$pattern: status $found, expected $status"
    [ "$(grep -c '^calm' refused.said)" = 1 ] && grep -qE "$pattern" refused.said || fail "$pattern: $(cat refused.said)"
}

# patch_last_byte: change the last weight a little
patch_last_byte() {
    head -c -1 "$1" >patched
    printf '\001' >>patched
    mv patched "$1"
}

part_refuse() {
    quantize="calm quantize $small --output r/out --store r/calm.db --quiet"
    mkdir a b
    cp "$(command -v calm)" ./other && printf x >>other
    refused 1 '^calm: rank 1 .* differ in the program: ' -n 1 $quantize : -n 1 ./other ${quantize#calm }
    refused 1 '^calm: rank 1 .* differ in the recipe: ' -n 1 $quantize : -n 1 $quantize --guard-samples 3
    refused 1 '^calm: rank 1 .* differ in the CPU kernels: Haswell, Nehalem;|^calm: rank 1 .* differ in the CPU kernels: ' \
        -n 1 -x OPENBLAS_CORETYPE=Nehalem $quantize : -n 1 -x OPENBLAS_CORETYPE=Haswell $quantize
    refused 1 '^calm: rank 1 .*: /nowhere: ' -n 1 $quantize : -n 1 $quantize --model /nowhere
    refused 2 '^calm: --blocks 0-99: ' -n 2 $quantize --blocks 0-99
    refused 2 '^calm quantize: unknown option --nonsense' -n 2 $quantize --nonsense
    # The same name on another machine, for another folder.
    refused 1 '^calm: rank 1 .* is not the folder that rank 0 has' \
        -n 1 --wdir "$work/a" $quantize : -n 1 --wdir "$work/b" $quantize
    refused 1 '^calm eval does not divide its work' -n 2 calm eval --model qwen
    # Other contents under the same names.
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output a/m >/dev/null
    make_checkpoint --shape tiny-qwen3 --blocks 2 --output b/m >/dev/null
    printf 'One text.' >a/text.txt
    printf 'Another.' >b/text.txt
    named="calm quantize --model m --scheme w4a16_g32 --algorithms rtn --samples 1 --seqlen 64 --guard-samples 0 --no-eval
 --threads 1 --output $work/r/out --store $work/r/calm.db --quiet"
    for file in a/text.txt b/text.txt; do
        head -c 20000 "${CALM_HOME:?}/recipes/text/wikitext2-valid.txt" >>$file
    done
    refused 1 '^calm: rank 1 .* differ in the calibration: ' \
        -n 1 --wdir "$work/a" $named --calib text.txt : -n 1 --wdir "$work/b" $named --calib text.txt
    patch_last_byte b/m/model.safetensors
    refused 1 '^calm: rank 1 .* differ in the model: ' -n 1 --wdir "$work/a" $named : -n 1 --wdir "$work/b" $named
    # Ranks on one of several cores.
    if [ "$(nproc)" -ge 2 ] && taskset -c 0 true 2>/dev/null; then
        mpirun -n 2 taskset -c 0 ${named% --quiet} --model a/m --output s/out --store s/calm.db >tight.said 2>&1
        grep -q '^calm: warning: 2 ranks (0, 1) with 2 threads on .* may use 1 of its ' tight.said ||
            fail "tight: $(cat tight.said)"
    fi
    [ ! -e r/calm.db ] || fail "a refused run has made a store"
}

case $2 in
    two | more | learn | kill | delay | slurm | refuse) "part_$2" ;;
    *) echo "ranks.sh: no part $2" >&2; exit 2 ;;
esac
exit $failed
