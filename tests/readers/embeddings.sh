#!/bin/sh
# Compares sentence embeddings with those of sentence-transformers, for EmbeddingGemma-300M ($CALM_EMBEDDINGGEMMA, a directory from
# ../shared/tools/real_models.py embeddinggemma; else skipped) and for quantized checkpoints of it.
#
#   embeddings.sh FOLDERS-OF-PROGRAMS
#
# Needs a Python with sentence-transformers ($CALM_PYTHON, else python3).  $CALM_SENTENCES: number of sentences (20).
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
model=${CALM_EMBEDDINGGEMMA:-}
[ -f "$model/model.safetensors" ] || { echo "SKIP: no EmbeddingGemma (CALM_EMBEDDINGGEMMA names its folder)"; exit 77; }
"$python" -c 'import sentence_transformers' 2>/dev/null || { echo "SKIP: no Python with sentence-transformers (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
text=$CALM_HOME/recipes/text/wikitext2-test.txt
awk -v n="${CALM_SENTENCES:-20}" 'NF > 2 && length($0) < 1200 && k++ < n { sub(/^ +/, ""); sub(/ +$/, ""); print }' "$text" >"$work/text.txt"

embed_sentences "$model" "$work/text.txt" >"$work/float"
"$python" "$here/embeddings.py" "$model" "$work/text.txt" "$work/float" 2>/dev/null

# With 4-bit weights calm and sentence-transformers must compute the same.  With quantized activations an
# input on the edge of two codes may take either, every token sees it, and after 24 blocks both differ from each other as much as
# from the float model (cosine 0.99): that bound shows only that the file is read.
check() {    # check SCHEME LIMIT
    calm quantize --model "$model" --scheme "$1" --algorithms rtn --samples 8 --guard-samples 0 --no-eval --quiet \
        --output "$work/$1" --store "$work/calm.db" >/dev/null
    calm check "$work/$1"
    embed_sentences "$work/$1" "$work/text.txt" >"$work/$1.ours"
    "$python" "$here/embeddings.py" "$work/$1" "$work/text.txt" "$work/$1.ours" "$2" 2>/dev/null
}

check w4a16_g32 1e-5
check w8a8_symact 5e-2
