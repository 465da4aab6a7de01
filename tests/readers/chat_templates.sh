#!/bin/sh
# Checks that chats have the text and ids of transformers' apply_chat_template: the templates of tests/data/chat_templates with the
# tokenizers of the fixtures, and, text only, those of a folder of NAME.jinja ($CALM_CHAT_TEMPLATES, such as llama.cpp's models/templates).
#
#   chat_templates.sh FOLDER-OF-PROGRAMS:FOLDER-OF-TOOLS
#
# Skipped (exit status 77) where there is no Python with transformers and jinja2 ($CALM_PYTHON, else python3).
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
fixtures=${CALM_FIXTURES:-$here/../../../shared/fixtures}
python=${CALM_PYTHON:-python3}
"$python" -c 'import jinja2, tokenizers, transformers' 2>/dev/null ||
    { echo "SKIP: no Python with transformers, tokenizers and jinja2 (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

"$python" "$here/chat_templates.py" "$work" "$here/../data/chat_templates" "$fixtures/tokenizers" \
    ${CALM_CHAT_TEMPLATES:+"$CALM_CHAT_TEMPLATES"} 2>"$work/noise" || { tail -n 20 "$work/noise"; exit 1; }
