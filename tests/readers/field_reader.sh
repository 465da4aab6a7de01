#!/bin/sh
# Checks that transformers with compressed-tensors reads calm's checkpoints: those of the bundled model have the perplexity
# of `calm eval` within 0.1 %, and tiny ones of every family have the logits of `calm forward`
# (field_families.py).
#
#   field_reader.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with these packages ($CALM_PYTHON, else python3; a virtual environment as
# ../shared/tools/setup.sh makes it) or no ../shared/tools.  Python is for checking only.
set -eu

PATH=$1:$1/tests:$PATH
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$(dirname "$0")/../.." && pwd)/../shared/tools
python=${CALM_PYTHON:-python3}
[ -f "$tools/load_ct.py" ] || { echo "SKIP: no $tools/load_ct.py (the folder shared next to the checkout)"; exit 77; }
"$python" -c 'import torch, transformers, compressed_tensors' 2>/dev/null ||
    { echo "SKIP: no Python with torch, transformers and compressed-tensors (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
text=$CALM_HOME/recipes/text/wikitext2-test.txt
windows=4

. "$here/../number.sh"

check() {    # check SCHEME ALGORITHMS
    calm quantize --model qwen --scheme "$1" --algorithms "$2" --samples 8 --seqlen 128 --score-samples 4 \
        --guard-samples 2 --no-eval --quiet --output "$work/$1" --store "$work/calm.db" >/dev/null
    calm eval --model "$work/$1" --reference qwen --text "$text" --samples $windows --quiet --json >"$work/ours"
    "$python" "$tools/load_ct.py" "$work/$1" --ref "$CALM_HOME/recipes/models/qwen-demo" --text "$text" \
        --max-tokens $((windows * 512)) >"$work/theirs" 2>"$work/noise" ||
        { cat "$work/theirs" "$work/noise"; echo "$1: not loaded"; exit 1; }
    awk -v scheme="$1" -v ours="$(number ppl "$work/ours")" -v theirs="$(number ppl "$work/theirs")" \
        -v float="$(number reference_ppl "$work/ours")" 'BEGIN {
            printf "%s: perplexity %s by calm, %s by transformers (float %s)\n", scheme, ours, theirs, float
            exit !(ours > 0 && theirs > 0 && ours != float && (ours / theirs - 1) ^ 2 < 1e-6)
        }' || { echo "$1: more than 0.1 % apart"; exit 1; }
}

check w4a16_g128 rtn,smoothquant,gptq-hls
check w8a8 rtn,smoothquant
check w8a8_static rtn

# Hadamard matrices before down and before every linear, by the lines of the model card (transform_reader.py).  With float activations both agree within
# float32's rounding; with 4-bit activations edges of codes change perplexities by some tenths of a percent, as without
# a transform, and some token meets no edge.
for i in 1 2 3 4 5 6 7 8; do
    echo "{\"ids\": [$((i * 37)), $((i * 91 + 5)), $((i * 11 + 700)), $((i * 53 + 1000))]}"
done >"$work/tokens.jsonl"
check_rotated() {    # check_rotated SCHEME LIMIT-OF-PERPLEXITY median|least KIND: that token's logits agree
    out=$work/rotated-$1-$4
    calm quantize --model qwen --scheme "$1" --rotate "$4" --keep-hybrid --algorithms rtn,gptq --samples 8 --seqlen 128 \
        --score-samples 4 --guard-samples 2 --no-eval --quiet --output "$out" --store "$work/rotated.db" >/dev/null
    calm eval --model "$out" --reference qwen --text "$text" --samples $windows --quiet --json >"$work/ours"
    calm forward --model "$out" --tokens "$work/tokens.jsonl" --output "$out/calm.safetensors" --quiet >/dev/null
    PYTHONPATH=$tools "$python" "$here/transform_reader.py" "$out" "$text" $windows "$work/tokens.jsonl" \
        >"$work/theirs" 2>"$work/noise" || { cat "$work/theirs" "$work/noise"; echo "rotated $1: not loaded"; exit 1; }
    awk -v scheme="$1 by $4" -v ours="$(number ppl "$work/ours")" -v theirs="$(number ppl "$work/theirs")" -v limit="$2" \
        -v without="$(number ppl_without "$work/theirs")" -v least="$(number least "$work/theirs")" \
        -v median="$(number median "$work/theirs")" -v agrees="$(number "$3" "$work/theirs")" 'BEGIN {
            printf "rotated %s: perplexity %s by calm, %s by transformers (%s without transforms); logits differ by %s to a median of %s\n",
                   scheme, ours, theirs, without, least, median
            exit !(ours > 0 && theirs > 0 && (ours / theirs - 1) ^ 2 < limit ^ 2 && without > 2 * ours && agrees < 1e-5)
        }' || { echo "rotated $1: too far apart"; exit 1; }
}

check_rotated w4a16_g128 1e-4 median r1r2r4
check_rotated w4a4_g128 2e-2 least r1r2r4
check_rotated w4a16_g128 1e-4 median inputs

quantize_family() {    # quantize_family SCHEMES: $model to $out
    schemes_of=$1
    shift
    calm quantize --model "$model" --scheme "$schemes_of" "$@" --algorithms rtn,smoothquant --tokens "$work/families/tokens.jsonl" \
        --samples 8 --seqlen 32 --guard-samples 0 --expert-tokens 1 --no-eval --quiet --output "$out" --store "$work/families.db"
}

# Every family.  Experts have packed weights, since transformers cannot quantize their inputs: in W8A8 of a
# mixture --target gives them 8-bit weights, and the least --act-budget gives the other linears 8-bit activations.
write_families "$work/families" >/dev/null
folders=
for model in "$work"/families/*/; do
    family=$(basename "$model")
    for scheme in w4a16_g32 w8a8_symact w8a8_asymact w8a8_static; do
        schemes=$scheme mixture=
        case $family in *moe* | mixtral | minimax_m2 | deepseek_v? | gpt_oss | nemotron_[hl]* | qwen3_next) mixture=yes ;; esac
        case $family-$scheme in
        *-w8a8_symact) [ -z "$mixture" ] || continue ;;
        esac
        case $family-$scheme in
        # transformers reads these experts only from one tensor, which calm does not write.
        granitemoe-* | granitemoehybrid-w8a8_* | gpt_oss-w8a8_*) continue ;;
        # transformers splits q, k and v of GTE and Nomic when it reads them, but not their one input scale.
        gte-w8a8_static | nomic_bert-w8a8_static) continue ;;
        # compressed-tensors uses one dynamic scale for all tokens in Llama 4's experts and in these shared experts.
        llama4-w8a8_*act | *qwen*moe*-w8a8_*act | qwen3_next-w8a8_*act | ernie4_5_moe-w8a8_*act) continue ;;
        esac
        out=$work/read/$family-$scheme
        if [ -n "$mixture" ] && [ "$scheme" != w4a16_g32 ]; then
            schemes="$scheme,w8a16 --target transformers --act-budget"
            # shellcheck disable=SC2086
            schemes="$schemes $(quantize_family $schemes 1 2>&1 | sed -n 's/.* take from \([0-9.]*\) to .*/\1/p' |
                awk '{ print $1 + .0001 }')"
        fi
        # shellcheck disable=SC2086
        quantize_family $schemes >/dev/null
        calm forward --model "$out" --tokens "$work/families/tokens.jsonl" --output "$out/calm.safetensors" --quiet >/dev/null
        # Compares experts without transformers' rounding of them.
        case $mixture in yes) calm dequantize "$out" -o "$out.float" --dtype f32 --quiet >/dev/null ;; esac
        folders="$folders $out"
    done
done
# shellcheck disable=SC2086
"$python" "$here/field_families.py" "$work/families/tokens.jsonl" $folders 2>/dev/null
