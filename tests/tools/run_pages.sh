#!/bin/sh
# Checks that every command of calm in a page runs:  run_pages.sh PROGRAMS PAGE
#
# Runs the ```sh blocks of the page in order with `sh -eu` in an empty folder.  A wrapper makes the
# runs small: few and short windows, few steps of learning.  A line that begins with calm outside of such a block is a finding.
# Exit status 1 if a command fails.
set -eu
[ $# -eq 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
PATH=$1:$PATH
page=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/bin" "$work/in"

awk '/^```/ { code = code == "" ? $0 : ""; next }
     code && code != "```sh" && /^ *calm / { print FILENAME ":" FNR ": a command outside of a block of sh: " $0; found = 1 }
     code == "```sh" { print > script }
     END { exit found }' script="$work/script" "$page" || exit 1
[ -s "$work/script" ] || { echo "$page: no block of sh"; exit 1; }

# Runs of recipes and locks keep their numbers.  GGUF needs all linears quantized, so those runs use the fastest
# algorithm; others quantize one block.
cat > "$work/bin/calm" <<END
#!/bin/sh
small='--samples 12 --seqlen 32 --score-samples 2 --guard-samples 2 --eval-samples 2'
case "\$1 \$*" in
    quantize*--recipe*) ;;
    quantize*gguf*) set -- "\$@" \$small --algorithms rtn ;;
    quantize*--learn*) set -- "\$@" \$small --blocks 0 --learn-steps 50 ;;
    quantize*) set -- "\$@" \$small --blocks 0 ;;
    "recipe recipe init"*) set -- "\$@" \$small --algorithms rtn,gptq ;;
    ablate*) set -- "\$@" \$small --algorithms rtn,gptq ;;
    "eval "*) set -- "\$@" --samples 2 --seqlen 64 ;;
esac
exec $(command -v calm) "\$@"
END
chmod +x "$work/bin/calm"
PATH=$work/bin:$PATH
export PATH
cd "$work/in"
git init -q . 2> /dev/null || { echo 'SKIP: no git (apt-get install git)'; exit 77; }
status=0
sh -eux "$work/script" > "$work/out" 2> "$work/said" || status=$?
[ "$status" = 0 ] || { tail -n 15 "$work/said"; echo "$page: the last command above ended with status $status"; exit 1; }
