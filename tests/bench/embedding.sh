#!/bin/sh
# Measures what quantizing costs an embedding model: the cosine of sentence embeddings to those of the float model (with pooling and
# dense layers of modules.json), over sentences that calibration did not use.  Prints a row of CSV after each measurement.
#
#   tests/bench/embedding.sh MODEL FOLDER [SCHEME ...] >rows.csv
#
#   MODEL      directory of a sentence-transformers model (EmbeddingGemma-300M, all-MiniLM-L6-v2)
#   FOLDER     holds stores and checkpoints; a row whose figures are there is not measured again
#   SCHEME     w4a16_g128 w8a8 w4a4_g128 by default
#
# Environment variables:
#   METHODS    some of rtn gptq calm rotated learned tuned peer-rtn peer-gptq; without rotated, tuned and peers by default.
#              calm is the default choice, rotated adds `--rotate inputs`, learned `--learn blocks`, tuned `--learn kl`,
#              peer-* is llm-compressor
#   PEER       a Python with llmcompressor, for peer-*
#   SENTENCES  number of test sentences of WikiText-2, 5 to 30 words each; 2000 by default
#   SAMPLES    number of validation sentences for calibration, 512 by default; another number becomes part of the row's method
#              ("tuned-of-256")
#   STEPS      learning steps per block, 200 by default; another number becomes part of the row's method ("learned-50")
#   THREADS    0, all cores, by default; figures do not depend on it
#   BUILD      folder of calm, build/release by default
set -eu
[ $# -ge 2 ] || { sed -n '2,20s/^# \{0,1\}//p' "$0" >&2; exit 2; }
model=$1 folder=$2
shift 2
[ $# -gt 0 ] || set -- w4a16_g128 w8a8 w4a4_g128
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${BUILD:-$CALM_HOME/build/release}/calm
threads=${THREADS:-0} sentences=${SENTENCES:-2000}
mkdir -p "$folder"

# cut TEXT: sentences, one per line
cut_sentences() {
    sed 's/ \. /.\n/g' "$CALM_HOME/recipes/text/$1" | awk 'NF >= 5 && NF <= 30 && !/=/'
}

options_of() {
    case $1 in
    rtn | gptq) echo "--algorithms $1" ;;
    calm) ;;
    rotated) echo "--rotate inputs" ;;
    learned) echo "--learn blocks --learn-steps ${STEPS:-200}" ;;
    tuned) echo "--learn kl" ;;
    *) echo "embedding.sh: no method \"$1\"" >&2; exit 2 ;;
    esac
}

# peer SCHEME METHOD OUT: llm-compressor on the same sentences
peer() {
    case $1 in
    w8a8) integers=8a8 ;;
    w4a16_g128) integers=4g128 ;;
    w4a4_g128) integers=4g128a4 ;;
    *) echo "embedding.sh: no scheme \"$1\" of llm-compressor; expected w8a8, w4a16_g128, w4a4_g128" >&2; exit 2 ;;
    esac
    "${PEER:?the Python of an environment with llmcompressor}" "$CALM_HOME/tests/bench/peer_llm_compressor.py" "$model" \
        "$folder/calib.txt" "$3" "${2#peer-}" "$integers" "${SAMPLES:-512}" &&
        cp -r "$model"/modules.json "$model"/*_Pooling "$model"/tokenizer* "$3" &&
        find "$model" -maxdepth 1 -name '*_Dense' -exec cp -r {} "$3" \;
}

# quantize SCHEME METHOD OUT
quantize() {
    case $2 in peer-*) peer "$@"; return ;; esac
    # shellcheck disable=SC2046
    "$calm" quantize --model "$model" --scheme "$1" --calib "$folder/calib.txt" --samples "${SAMPLES:-512}" --seqlen 128 \
        $(options_of "$2") --guard-samples 0 --no-eval --quiet --force --threads "$threads" --output "$3" --store "$folder/$1.db"
}

figure() {
    sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$2" | head -n 1
}

cut_sentences wikitext2-valid.txt >"$folder/calib.txt"
cut_sentences wikitext2-test.txt >"$folder/test.txt"
echo "scheme,method,sentences,one_minus_cosine,least_cosine,error,spearman"
for scheme; do
    for method in ${METHODS:-rtn gptq calm learned}; do
        row=$method
        case $method in learned) row=learned${STEPS:+-$STEPS} ;; esac
        row=$row${SAMPLES:+-of-$SAMPLES}
        out=$folder/$scheme-$row
        if [ ! -s "$out.json" ]; then
            quantize "$scheme" "$method" "$out" >"$out.report" 2>&1 || { cat "$out.report" >&2; exit 1; }
            "$calm" eval --model "$out" --reference "$model" --text "$folder/test.txt" --samples "$sentences" --seqlen 128 --json --quiet \
                --threads "$threads" >"$out.json.part"
            mv "$out.json.part" "$out.json"
        fi
        cosine=$(figure cosine "$out.json")
        echo "$scheme,$row,$(figure sentences "$out.json"),$(echo "$cosine" | awk '{ printf "%.5f", 1 - $1 }'),$(figure cosine_min "$out.json"),$(figure error "$out.json"),$(figure spearman "$out.json")"
    done
done
