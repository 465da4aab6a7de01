#!/bin/sh
# Compares sentence embeddings by calm, onnxruntime and ctranslate2: sentences per second and CPU time per sentence, by
# length, batch and threads.  Sentences of a batch have one length, so no program pads; loading does not count.  The programs
# take turns in each row of the table, so that they meet the same noise; on a busy machine compare CPU time.
#
#   tests/bench/embed_peers.sh FOLDER MODEL CHECKPOINT...    CSV on the standard output
#
#   FOLDER       gets exports of MODEL and token files
#   MODEL        directory of a float encoder
#   CHECKPOINT   directories of MODEL quantized by calm; the table shows their names
#
# Environment variables:
#   LENGTHS, BATCHES, THREADS   "16 64 128 512", "1 8 64", "1 2" by default
#   PEERS        some of onnxruntime-float32 onnxruntime-int8 ctranslate2-float32 ctranslate2-int8; by default those whose
#                export works
#   TOKENS       least number of tokens of a run (8192)
#   ROUNDS       runs of each program (1)
#   PEERS_PYTHON a Python with onnxruntime, ctranslate2, onnx, transformers, torch; python3 by default
#   BUILD        folder of calm, build/release by default
#   TEXT         file of sentences; adds a table with the cosine to calm's float embeddings
#   PAIRS        file of lines "words TAB words TAB score", as in the package gensim (test/test_data/wordsim353.tsv,
#                simlex999.txt); adds the rank correlation of cosines and scores
set -eu
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
[ $# -ge 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 model=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
CALM_HOME=$(cd "$here/../.." && pwd -P)
export CALM_HOME HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive
calm=${BUILD:-$CALM_HOME/build/release}/calm python=${PEERS_PYTHON:-python3} least=${TOKENS:-8192}
mkdir -p "$folder"
# shellcheck source=tests/number.sh
. "$CALM_HOME/tests/number.sh"

peer() {
    "$python" "$here/embed_peers.py" "$@" 2>>"$folder/said"
}

# Ids below 1000 are often special tokens.
tokens_of() {    # tokens_of LENGTH SENTENCES
    awk -v length_="$1" -v n="$2" 'BEGIN { srand(1); for (i = 0; i < n; i++) { printf "{\"ids\": [101"
        for (t = 2; t < length_; t++) printf ", %d", 1000 + int(29000 * rand()); print ", 102]}" } }'
}

[ -f "$folder/model.txt" ] || peer export "$model" "$folder"
if [ -z "${PEERS+set}" ]; then
    PEERS=
    [ ! -f "$folder/int8.onnx" ] || PEERS="onnxruntime-float32 onnxruntime-int8"
    [ ! -d "$folder/ct2" ] || PEERS="$PEERS ctranslate2-float32 ctranslate2-int8"
fi

calm_row() {    # calm_row DIRECTORY: sentences per second, CPU seconds per sentence
    "$calm" embed --model "$1" --tokens "$folder/tokens" --batch "$batch" --threads "$threads" --output "$folder/out.npy" --quiet \
        --json >"$folder/out.json"
    awk -v n="$(number sentences "$folder/out.json")" -v rate="$(number sentences_per_second "$folder/out.json")" \
        -v cpu="$(number cpu_seconds "$folder/out.json")" 'BEGIN { printf "%.2f,%.6f\n", rate, cpu / n }'
}

echo "model,length,batch,threads,subject,sentences_per_second,cpu_ms_per_sentence"
row() {    # row SUBJECT RATE,SECONDS
    echo "$(basename "$model"),$length,$batch,$threads,$1,$2" | awk -F , -v OFS=, '{ $7 = sprintf("%.3f", 1000 * $7) } 1'
}
for length in ${LENGTHS:-16 64 128 512}; do
    for batch in ${BATCHES:-1 8 64}; do
        n=$((batch * ((least + length * batch - 1) / (length * batch))))
        tokens_of "$length" "$n" >"$folder/tokens"
        for threads in ${THREADS:-1 2}; do
            for _ in $(seq "${ROUNDS:-1}"); do
                row "calm float" "$(calm_row "$model")"
                for checkpoint; do
                    row "calm $(basename "$checkpoint")" "$(calm_row "$checkpoint")"
                done
                for name in $PEERS; do
                    row "$name" "$(peer time "$folder" "$name" "$folder/tokens" "$batch" "$threads")"
                done
            done
        done
    done
done

# Writes the embeddings of every program for one token file to $folder/SUBJECT.npy; calm's first.
embed_all() {    # embed_all TOKENS
    for dir in "$model" "$@"; do
        [ "$dir" = "$1" ] || "$calm" embed --model "$dir" --tokens "$1" --output "$folder/calm-$(basename "$dir").npy" --quiet
    done
    for name in $PEERS; do
        peer embed "$folder" "$name" "$1" "$folder/$name.npy"
    done
}

each_subject() {
    for dir in "$model" "$@"; do
        echo "calm-$(basename "$dir")"
    done
    for name in $PEERS; do
        echo "$name"
    done
}

if [ -n "${TEXT:-}" ]; then
    "$python" "$here/embed_peers.py" tokens "$model" "$TEXT" "$folder/text.jsonl"
    embed_all "$folder/text.jsonl" "$@"
    echo "model,subject,mean_cosine,least_cosine"
    each_subject "$@" | while read -r subject; do
        echo "$(basename "$model"),$subject,$(peer compare "$folder/calm-$(basename "$model").npy" "$folder/$subject.npy")"
    done
fi
if [ -n "${PAIRS:-}" ]; then
    grep -v '^#' "$PAIRS" | awk -F '\t' '{ print $1; print $2 }' >"$folder/pairs.txt"
    grep -v '^#' "$PAIRS" | awk -F '\t' '{ print $3 }' >"$folder/scores.txt"
    "$python" "$here/embed_peers.py" tokens "$model" "$folder/pairs.txt" "$folder/pairs.jsonl"
    embed_all "$folder/pairs.jsonl" "$@"
    echo "model,subject,spearman"
    each_subject "$@" | while read -r subject; do
        echo "$(basename "$model"),$subject,$(peer spearman "$folder/$subject.npy" "$folder/scores.txt")"
    done
fi
