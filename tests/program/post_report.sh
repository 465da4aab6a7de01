#!/bin/sh
# The jobs of docs/in-ci.md for GitHub and GitLab.  Their steps are taken from the page and run here, except those that
# install something; a server of this test takes the place of both forges.
#
#   post_report.sh FOLDERS-OF-PROGRAMS
set -eu
PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
for program in python3 curl jq git; do
    command -v "$program" >/dev/null || { echo "SKIP: no $program (apt-get install $program)"; exit 77; }
done
python3 -c 'import yaml' 2>/dev/null || { echo 'SKIP: no PyYAML (apt-get install python3-yaml)'; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"
# What the jobs need in a repository: a recipe and its lock.
head -c 30000 "$CALM_HOME/recipes/text/wikitext2-valid.txt" >text.txt
calm recipe init --model qwen --bits 4 --algorithms rtn,gptq --samples 4 --seqlen 64 --score-samples 2 --guard-samples 2 --calib text.txt \
    --eval-text text.txt --eval-samples 2 -o qwen.json >log
calm quantize --recipe qwen.json -o first --store first.db --quiet >log
git init -q . && git config user.email t@example.org && git config user.name t && git add qwen.json qwen.lock.json text.txt && git commit -qm recipe
CALM=$(command -v calm) exec python3 "$here/post_report.py" "$CALM_HOME" "$work"
