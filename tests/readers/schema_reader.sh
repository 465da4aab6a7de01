#!/bin/sh
# Checks that calm judges recipes as Python's jsonschema does with recipes/recipe.schema.json (schema_reader.py), and that this
# file is the output of `calm recipe schema`.
#
#   schema_reader.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with jsonschema ($CALM_PYTHON, else python3).  Python is for checking only.
set -eu

PATH=$1:$PATH
here=$(cd "$(dirname "$0")" && pwd)
python=${CALM_PYTHON:-python3}
calm recipe schema | cmp - "$here/../../recipes/recipe.schema.json" || {
    echo "recipes/recipe.schema.json is not what 'calm recipe schema' prints: write it anew"; exit 1; }
"$python" -c 'import jsonschema' 2>/dev/null || { echo "SKIP: no Python with jsonschema (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$here/../..
for recipe in "$root"/recipes/*.json; do
    case $recipe in *.schema.json) ;; *) set -- "$@" "$recipe" ;; esac
done
shift
"$python" "$here/schema_reader.py" "$root/recipes/recipe.schema.json" "$work" "$@" "$here"/../data/recipes/*.json \
    "$here"/../data/recipes/bad/*.json "$here"/../data/recipes/names/*.json
