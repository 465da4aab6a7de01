#!/bin/sh
# Checks that llama.cpp runs every GGUF type that calm writes: the bundled model, rounded to nearest, gives the greedy tokens, and
# the perplexity within half a percent, of the same file widened to F32 by llama.cpp.  llama.cpp's kernels quantize activations to
# 8 bits, which costs a KL of about .0001 and changes the first token if two are almost equally likely.
#
#   llama_cpp.sh FOLDER-OF-PROGRAMS [SCHEME...]
#
# Skipped (exit status 77) without llama.cpp's own programs in $CALM_LLAMA_CPP; tests/readers/build_llama_cpp.sh builds them.
set -eu

PATH=$1:$1/tests:$PATH
shift
programs=${CALM_LLAMA_CPP:-}
if [ ! -x "$programs/llama-quantize" ] || [ ! -x "$programs/llama-simple" ] || [ ! -x "$programs/llama-perplexity" ]; then
    echo "SKIP: no llama-quantize, llama-simple and llama-perplexity in CALM_LLAMA_CPP=$programs (tests/readers/build_llama_cpp.sh builds them)"
    exit 77
fi
[ $# -gt 0 ] || set -- w4a16_g32 w4a16_g32_asym w8a16_g32 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4a16 nvfp4a16 q4_k,float,q6_k,iq4_xs

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
model=$CALM_HOME/recipes/models/qwen-demo
text=$CALM_HOME/recipes/text/wikitext2-test.txt

greedy() {    # greedy FILE
    "$programs/llama-simple" -m "$1" -n 24 "The history of the town" 2>/dev/null
}

logits() {    # logits FILE ARGUMENTS...: saves or compares logits of 8 windows of 512 tokens
    file=$1
    shift
    "$programs/llama-perplexity" -m "$file" -f "$text" -c 512 --chunks 8 -t 1 "$@" >"$work/said" 2>&1 ||
        { tail -n 5 "$work/said"; echo "$scheme: llama-perplexity fails"; exit 1; }
}

number() {    # number PATTERN: the first number after PATTERN in the output
    sed -n "s/.*$1 *: *\([-0-9.]*\).*/\1/p" "$work/said" | head -n 1
}

for scheme in "$@"; do
    write_format "$model" "$work/out" gguf "$scheme" >"$work/said" || { cat "$work/said"; exit 1; }
    "$programs/llama-quantize" --allow-requantize "$work/out/model.gguf" "$work/wide.gguf" F32 1 >"$work/said" 2>&1 ||
        { tail -n 5 "$work/said"; echo "$scheme: llama-quantize does not read it"; exit 1; }
    greedy "$work/out/model.gguf" >"$work/ours"
    greedy "$work/wide.gguf" >"$work/theirs"
    [ -s "$work/ours" ] || { echo "$scheme: llama.cpp does not run it"; exit 1; }
    cmp -s "$work/ours" "$work/theirs" || { diff "$work/ours" "$work/theirs"; echo "$scheme: other greedy tokens"; exit 1; }
    logits "$work/wide.gguf" --kl-divergence-base "$work/base"
    # llama.cpp may end before it has written its log.
    for try in 1 2 3 4 5 6 7 8 9 10 11 12; do
        logits "$work/out/model.gguf" --kl-divergence-base "$work/base" --kl-divergence
        [ -z "$(number 'Same top p')" ] || break
        echo "$scheme: the log of try $try has no end"
    done
    awk -v name="$scheme" -v ratio="$(number 'Mean ln(PPL(Q)\/PPL(base))')" -v kl="$(number 'Mean *KLD')" \
        -v top="$(number 'Same top p')" 'BEGIN {
            printf "%s: ln perplexity %+.5f, KL %.6f, the same first token in %s %%, the same greedy tokens\n", name, ratio, kl, top
            exit !(ratio != "" && ratio ^ 2 < .005 ^ 2 && kl > 0 && kl < .001 && top > 97)
        }' || { cat "$work/said"; echo "$scheme: more than .5 % apart"; exit 1; }
    rm -rf "$work/out" "$work/wide.gguf"
done
