#!/bin/sh
# Checks that `calm eval` begins every window with BOS as transformers does: on Gemma's fixtures, which need BOS, and on a version
# of the bundled model with a massive first token (tests/tools/make_twin --first-token).
#
#   bos.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with torch and transformers ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
fixtures=${CALM_FIXTURES:-$here/../../../shared/fixtures}
python=${CALM_PYTHON:-python3}
"$python" -c 'import torch, transformers, tokenizers' 2>/dev/null ||
    { echo "SKIP: no Python with torch, transformers and tokenizers (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
text=$work/text
head -c 40000 "$CALM_HOME/recipes/text/wikitext2-test.txt" >"$text"
seqlen=64
windows=16

make_twin --model "$CALM_HOME/recipes/models/qwen-demo" --output "$work/first_token" --first-token '<|endoftext|>' --seed 1
set -- "$work/first_token"
[ ! -d "$fixtures/models" ] || set -- "$@" "$fixtures/models/gemma2" "$fixtures/models/gemma3_text"
pairs=
for model; do
    report=$work/$(basename "$model").json
    calm eval --quiet --json --model "$model" --text "$text" --seqlen $seqlen --samples $windows >"$report"
    pairs="$pairs $model $report"
done
# shellcheck disable=SC2086
"$python" "$here/bos.py" "$text" $seqlen $windows $pairs 2>/dev/null
