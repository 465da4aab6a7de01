#!/bin/sh
# Checks that `calm generate` chooses the tokens of transformers' greedy generation: with the bundled model, float and quantized to
# 4 bits, from a text and as a chat, and with fixtures of each kind of cache.
#
#   generate.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with torch and transformers ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
fixtures=${CALM_FIXTURES:-$here/../../../shared/fixtures}
python=${CALM_PYTHON:-python3}
"$python" -c 'import torch, transformers, compressed_tensors' 2>/dev/null ||
    { echo "SKIP: no Python with torch, transformers and compressed_tensors (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
demo=$CALM_HOME/recipes/models/qwen-demo
calm quantize --quiet --model "$demo" --algorithms rtn --bits 4 --calib "$CALM_HOME/recipes/text/wikitext2-test.txt" --samples 2 \
    --store "$work/store.db" --output "$work/w4" >"$work/log"
set --
for model in "$demo" "$work/w4"; do
    name=$work/$(basename "$model")
    calm generate --quiet --json --ignore-eos --model "$model" --prompt 'The history of the city' >"$name.json"
    set -- "$@" "$model" 'The history of the city' "$name.json"
done
# Ids in every fixture's vocabulary, since the tokenizers know few words.
for name in models/gemma2 models/gemma3_text models/mistral families/gemma4_text families/gpt_oss families/deepseek_v3 \
    families/qwen3_next families/lfm2 families/granitemoehybrid families/cohere2; do
    [ -d "$fixtures/$name" ] || continue
    echo '{"ids": [5, 17, 3, 40, 11, 8, 25]}' >"$work/ids"
    calm generate --quiet --json --ignore-eos --max-tokens 40 --model "$fixtures/$name" --tokens "$work/ids" >"$work/$(basename "$name").json"
    set -- "$@" "$fixtures/$name" "" "$work/$(basename "$name").json"
done
"$python" "$here/generate.py" "$@" 2>/dev/null
