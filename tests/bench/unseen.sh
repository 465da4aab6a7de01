#!/bin/sh
# Measures how much figures depend on the calibration text.  The default calibration text was part of the bundled model's
# training, so activations on it differ from those on other texts.  Calibrates on texts that the model has and has not
# seen in training, measures on other parts of the test text and on foreign domains, and prints CSV
# (docs/evidence/unseen.csv).
#
#   tests/bench/unseen.sh FOLDER [SCHEME ...] >unseen.csv
#
#   FOLDER      holds texts, stores and checkpoints; candidates in a store are not computed again
#   SCHEME      w4a16_g128 w3a16_g128 by default
#
# Environment variables:
#   SEEDS       seeds of the calibration windows, "1 2 3 4 5" by default
#   ALGORITHMS  runs of each scheme, a comma list of algorithms each; "rtn gptq mkq-full" by default
#   CALIBRATION some of the calibration texts below; all by default
#   SAMPLES     calibration windows, 128 by default (a third of the test text has 219)
#   EVAL        test windows of each text, 100 by default
#   FOREIGN     some of the foreign texts below, "" for none; by default all that the system has
#   CALM        the program; build/release/calm by default
#
# Calibration texts: `validation` (seen in training), `test-third` (the first third of the test text, unseen), `c-sources` (of
# this repository), `licences` and `manuals` (of the system, if it has them; raw).  Test texts: `test-rest` (the
# other two thirds), and the second halves of the foreign texts, whose first halves calibrate.
#
# Columns: KL to the float model, its standard deviation over seeds (rows "mean"), its quantiles over tokens, perplexity,
# the float model's, top-1 agreement, bits per weight, and the bytes of the checkpoint's tensors.
set -eu
[ $# -ge 1 ] || { sed -n '2,27s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
shift
[ $# -gt 0 ] || set -- w4a16_g128 w3a16_g128
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm}
[ -x "$calm" ] || { echo "unseen.sh: no $calm; ./calm builds it" >&2; exit 2; }
seeds=${SEEDS:-1 2 3 4 5}
texts=$folder/texts
mkdir -p "$texts"
LC_ALL=C
export LC_ALL

# ---- texts, cut at ends of lines ----

cut_text()    # cut_text NAME PARTS FILE: NAME-1 .. NAME-PARTS
{
    part=1
    while [ "$part" -le "$2" ]; do
        split -n "l/$part/$2" "$3" >"$texts/$1-$part.txt"
        part=$((part + 1))
    done
}

cp "$CALM_HOME/recipes/text/wikitext2-valid.txt" "$texts/validation.txt"
cut_text test 3 "$CALM_HOME/recipes/text/wikitext2-test.txt"
mv "$texts/test-1.txt" "$texts/test-third.txt"
cat "$texts/test-2.txt" "$texts/test-3.txt" >"$texts/test-rest.txt"
find "$CALM_HOME/ptq" "$CALM_HOME/algorithms" "$CALM_HOME/cka" "$CALM_HOME/store" "$CALM_HOME/cli" -name '*.c' |
    sort | head -n 200 | xargs cat >"$texts/c.txt"
cut_text c-sources 2 "$texts/c.txt"
foreign=c-sources
if [ -d /usr/share/common-licenses ]; then
    # Some files are links to others: takes each file once.
    find /usr/share/common-licenses -type f | sort | xargs cat >"$texts/l.txt"
    cut_text licences 2 "$texts/l.txt"
    foreign="$foreign licences"
fi
if ls /usr/share/man/man1/*.gz >/dev/null 2>&1; then
    find /usr/share/man/man1 -name '*.gz' -type f | sort | head -n 200 | xargs gzip -cd >"$texts/m.txt"
    cut_text manuals 2 "$texts/m.txt"
    foreign="$foreign manuals"
fi
foreign=${FOREIGN-$foreign}

# ---- runs ----

. "$CALM_HOME/tests/number.sh"

# Prints the KL at a quantile.
quantile()    # quantile NAME FILE
{
    tr ',{}' '\n\n\n' <"$2" | sed -n "/\"$1\"/,/kl/s/^ *\"kl\": *\([0-9.e+-]*\).*/\1/p" | head -n 1
}

measure()    # measure CALIBRATION SEEN SCHEME ALGORITHMS SEED MEASURED-ON TEXT
{
    "$calm" eval --model "$folder/out" --reference qwen --text "$7" --samples "${EVAL:-100}" --detail --json --quiet \
        >"$folder/eval.json"
    echo "$1,$2,$3,$(echo "$4" | tr , +),$5,$6,$(number kl "$folder/eval.json"),,$(quantile p50 "$folder/eval.json"),$(quantile \
        p99 "$folder/eval.json"),$(quantile max "$folder/eval.json"),$(number ppl "$folder/eval.json"),$(number \
        reference_ppl "$folder/eval.json"),$(number top1 "$folder/eval.json"),$(number bits_per_weight \
        "$folder/run.json"),$(wc -c <"$folder/out/model.safetensors")"
}

calibrate()    # calibrate NAME SEEN TEXT SCHEME
{
    case " ${CALIBRATION:-$1} " in *" $1 "*) ;; *) return 0 ;; esac
    for pool in ${ALGORITHMS:-rtn gptq mkq-full}; do
        # With one algorithm a guard has nothing to decide.
        case $pool in *,*) guard= ;; *) guard="--guard-samples 0" ;; esac
        for seed in $seeds; do
            # shellcheck disable=SC2086  # options are words
            "$calm" quantize --model qwen --scheme "$4" --algorithms "$pool" --calib "$3" --samples "${SAMPLES:-128}" \
                --seed "$seed" --no-eval $guard --store "$folder/calm.db" --output "$folder/out" --force --json --quiet \
                >"$folder/run.json"
            measure "$1" "$2" "$4" "$pool" "$seed" test-rest "$texts/test-rest.txt"
            for domain in $foreign; do
                measure "$1" "$2" "$4" "$pool" "$seed" "$domain" "$texts/$domain-2.txt"
            done
        done
    done
}

for scheme in "$@"; do
    calibrate validation yes "$texts/validation.txt" "$scheme"
    calibrate test-third no "$texts/test-third.txt" "$scheme"
    for name in $foreign; do
        calibrate "$name" no "$texts/$name-1.txt" "$scheme"
    done
done >"$folder/rows.csv"

echo "calibration,seen,scheme,algorithms,seed,measured_on,kl,kl_sd,kl_p50,kl_p99,kl_max,ppl,ppl_float,top1,bits,bytes"
cat "$folder/rows.csv"
# Prints means over seeds, in the order of the rows, and the largest KL of any seed.
awk -F, '
    { group = $1 "," $2 "," $3 "," $4; key = group SUBSEP $6 }
    !(key in n) { order[++N] = key; head[key] = group; on[key] = $6 }
    { n[key]++; sum[key] += $7; square[key] += $7 * $7; p50[key] += $9; p99[key] += $10
      if ($11 > most[key]) most[key] = $11
      ppl[key] += $12; float[key] = $13; top[key] += $14; bits[key] = $15; bytes[key] += $16 }
    END {
        for (i = 1; i <= N; i++) {
            k = order[i]; m = sum[k] / n[k]
            v = n[k] > 1 ? (square[k] - n[k] * m * m) / (n[k] - 1) : 0
            printf "%s,mean,%s,%.6f,%s,%.6f,%.6f,%.4f,%.4f,%s,%.5f,%s,%.0f\n", head[k], on[k], m,
                   (n[k] > 1 ? sprintf("%.6f", sqrt(v > 0 ? v : 0)) : ""), p50[k] / n[k], p99[k] / n[k], most[k],
                   ppl[k] / n[k], float[k], top[k] / n[k], bits[k], bytes[k] / n[k]
        }
    }' "$folder/rows.csv"
