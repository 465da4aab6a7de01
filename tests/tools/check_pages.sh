#!/bin/sh
# Checks that names in the repository's pages exist:  check_pages.sh [ROOT]
#
#   links     the file of every relative link
#   paths     every `path` below a folder of the tree, and every `name.c`, `name.h`
#   names     every `calm_name` is a word of a source file
#   evidence  every docs/evidence/NAME.csv is a `NAME` of the README there
#   README    at most 8192 bytes, and the command that .ci/run takes from it
#
# Prints one line per finding; exit status 1 when there is one.
set -eu
cd "${1:-$(dirname "$0")/../..}"
export LC_ALL=C
found=$(mktemp)
files=$(mktemp)
trap 'rm -f "$found" "$files"' EXIT
pages=$(find . -maxdepth 1 -name '*.md'; find docs recipes -name '*.md' 2> /dev/null || true)
find calm* .ci CMakeLists.txt CMakePresets.json packages.txt prepare.sh ptq algorithms cka store cli python recipes docs tests -type f \
    > "$files" 2> /dev/null || true

for page in $pages; do
    # relative links, without anchors
    grep -oE '\]\([^) ]+\)' "$page" | sed -e 's/^](//' -e 's/)$//' -e 's/#.*//' | grep -vE '^$|^[a-z]+:' | sort -u |
        while read -r link; do
            [ -e "$(dirname "$page")/$link" ] || echo "$page: link to $link: no such file"
        done

    # `words` outside of code blocks; the changelog may name old things
    [ "$page" != ./CHANGELOG.md ] || continue
    awk '/^ *```/ { code = !code; next } !code' "$page" | grep -oE '`[^` ]+`' | tr -d '`' | sort -u |
        while read -r word; do
            case $word in
                *[\<\>{}\$*]*) ;;    # a pattern or a placeholder
                ptq/*.?* | cli/*.?* | store/*.?* | algorithms/*.?* | cka/*.?* | tests/*.?* | recipes/*.?* | docs/*.?*)
                    [ -e "$word" ] || echo "$page: \`$word\`: no such file" ;;
                */*) ;;
                ?*.c | ?*.h | ?*.def)
                    grep -qE "(^|/)$word\$" "$files" || echo "$page: \`$word\`: no file of that name" ;;
                calm_[a-z]*)
                    grep -E '\.(c|h|def|json|sql|txt|py)$' "$files" | xargs grep -qw -- "$word" ||
                        echo "$page: \`$word\`: no source has that word" ;;
            esac
        done
done > "$found"

for table in docs/evidence/*.csv; do
    [ -e "$table" ] || continue
    name=$(basename "$table" .csv)
    grep -q "\`$name\`" docs/evidence/README.md 2> /dev/null || echo "$table: docs/evidence/README.md does not say how it was made" >> "$found"
done
[ "$(wc -c < README.md)" -le 8192 ] || echo "README.md: $(wc -c < README.md) bytes, at most 8192" >> "$found"
head -20 README.md | grep -q '^\./calm quantize' || echo "README.md: the first command is not in the first 20 lines" >> "$found"
cat "$found"
[ ! -s "$found" ]
