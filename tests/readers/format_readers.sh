#!/bin/sh
# Checks that other libraries load every safetensors format: checkpoints of the bundled model have the perplexity of
# `calm eval` within 0.1 % if the reader computes in float32, within 0.5 % in GPTQModel's float16 kernels, and within what edges of
# levels allow if activations are quantized.
#
#   format_readers.sh FOLDER-OF-PROGRAMS [NAME...]
#
# Readers that are not installed in $CALM_PYTHON (else python3; a virtual environment as ../shared/tools/setup.sh makes it) are
# named in a SKIP line; exit status 77 when there is none of them, or no ../shared/tools.  $CALM_CT_OLD is a folder with
# compressed-tensors 0.17.1, which loads asymmetric weights.  Python is for checking only.
set -eu

PATH=$1:$1/tests:$PATH
shift
only=$*
here=$(cd "$(dirname "$0")" && pwd)
tools=$(cd "$(dirname "$0")/../.." && pwd)/../shared/tools
tools=${CALM_TOOLS:-$tools}
python=${CALM_PYTHON:-python3}
[ -f "$tools/load_ct.py" ] || { echo "SKIP: no $tools/load_ct.py (the folder shared next to the checkout)"; exit 77; }
old=${CALM_CT_OLD:-$("$python" -c 'import sys; print(sys.prefix)' 2>/dev/null)/ct-0.17.1}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
model=$CALM_HOME/recipes/models/qwen-demo
text=$CALM_HOME/recipes/text/wikitext2-test.txt
windows=2
ran=0

has() {
    "$python" -c "import torch, transformers, $1" >/dev/null 2>&1 || { echo "SKIP: no Python with torch, transformers and $1 (CALM_PYTHON names one that has them)"; return 1; }
}

. "$here/../number.sh"

check() {    # check READER PER-MILLE FORMAT SCHEMES [SHARD-BYTES]
    name=$3-$4${5:+-sharded}
    case " $only " in "  " | *" $name "*) ;; *) return 0 ;; esac
    out=$work/$name
    write_format "$model" "$out" "$3" "$4" ${5:+"$5"} >"$work/said" || { cat "$work/said"; exit 1; }
    calm eval --model "$out" --reference "$model" --text "$text" --samples $windows --quiet --json >"$work/ours"
    "$python" "$tools/$1" "$out" --ref "$model" --text "$text" --max-tokens $((windows * 512)) \
        >"$work/theirs" 2>"$work/noise" || { cat "$work/theirs"; tail -n 5 "$work/noise"; echo "$name: not loaded"; exit 1; }
    awk -v name="$name" -v limit="$2" -v kl="$(number kl "$work/ours")" -v tokens="$(number tokens "$work/ours")" -v ours="$(number ppl "$work/ours")" -v theirs="$(number ppl "$work/theirs")" \
        -v float="$(number reference_ppl "$work/ours")" -v linears="$(number quantized "$work/theirs")" 'BEGIN {
            printf "%s: perplexity %s by calm, %s by the reader (float %s), %s linears\n", name, ours, theirs, float, linears
            # With quantized activations a value on the edge of two levels may take either, which changes all later values: two
            # readers differ like two draws of the same noise, which changed each log-probability by about sqrt(2 KL).
            if (limit == "edges")
                limit = 3000 * sqrt(2 * 2 * kl / tokens)
            exit !(kl > 0 && tokens > 0 && ours > 0 && theirs > 0 && linears > 0 && ours != float && (ours / theirs - 1) ^ 2 < (limit / 1000) ^ 2)
        }' || { cat "$work/theirs"; echo "$name: further apart than $2 (per mille, or what edges of levels allow)"; exit 1; }
    rm -rf "$out"
    ran=$((ran + 1))
}

# A mixture, whose experts are one module in mlx-lm: compares with the logits of calm forward.
experts() {
    case " $only " in "  " | *" experts "*) ;; *) return 0 ;; esac
    write_families "$work/families" plain >/dev/null
    # mlx-lm has no defaults for these
    sed -i '1,/{/s/{/{"decoder_sparse_step": 1, "mlp_only_layers": [], /' "$work/families/qwen3_moe/config.json"
    folders=
    for schemes in w4a16_g32 w8a16_asym; do
        out=$work/qwen3_moe-$schemes
        write_format "$work/families/qwen3_moe" "$out" mlx $schemes >"$work/said" || { cat "$work/said"; exit 1; }
        calm forward --model "$out" --tokens "$work/families/tokens.jsonl" --output "$out/calm.safetensors" --quiet \
            >/dev/null
        folders="$folders $out"
    done
    # shellcheck disable=SC2086
    "$python" "$here/mlx_experts.py" "$work/families/tokens.jsonl" $folders
    ran=$((ran + 1))
}

# Quantized activations in small floats: compares the logits of calm forward with compressed-tensors' rule.
float_activations() {
    case " $only " in "  " | *" float_activations "*) ;; *) return 0 ;; esac
    "$python" -c "
import random, json
for n in range(24): print(json.dumps({'ids': [random.Random(n).randrange(3, 400) for _ in range(4)]}))" >"$work/tokens.jsonl"
    folders=
    for scheme in fp8 fp8_tensor fp8_block nvfp4 mxfp4 mxfp4,nvfp4 nvfp4,mxfp4; do
        out=$work/activations-$scheme
        write_format "$model" "$out" compressed-tensors $scheme >"$work/said" || { cat "$work/said"; exit 1; }
        calm forward --model "$out" --tokens "$work/tokens.jsonl" --output "$out/calm.safetensors" --quiet >/dev/null
        folders="$folders $out"
    done
    # shellcheck disable=SC2086
    "$python" "$here/float_activations.py" "$model" "$work/tokens.jsonl" $folders 2>/dev/null
    ran=$((ran + 1))
}

if has compressed_tensors; then
    float_activations
    check load_ct.py 1 compressed-tensors w4a16_g128
    check load_ct.py 1 compressed-tensors w8a16
    check load_ct.py edges compressed-tensors w8a8
    # compressed-tensors computes FP4 weights in bfloat16
    for scheme in fp8a16 fp8_tensora16 fp8_blocka16 mxfp4a16 nvfp4a16; do
        check load_ct.py 2 compressed-tensors $scheme
    done
    for scheme in fp8 fp8_tensor fp8_block mxfp4 nvfp4; do
        check load_ct.py edges compressed-tensors $scheme
    done
    check load_ct.py edges compressed-tensors w4a16_g64,w8a8,float,w8a16
    check load_ct.py 1 compressed-tensors w4a16_g128,w8a16 2000000
    if [ -d "$old" ]; then
        PYTHONPATH=$old
        export PYTHONPATH
        check load_ct.py 1 compressed-tensors w4a16_g128_asym
        unset PYTHONPATH
    else
        echo "SKIP: no compressed-tensors 0.17.1 in $old (CALM_CT_OLD names its folder)"
    fi
fi
if has gptqmodel; then
    check load_gptq.py 5 gptq w4a16_g128
    check load_gptq.py 5 gptq w8a16
    check load_gptq.py 5 gptq w4a16_g64_asym
    check load_gptq.py 5 gptq w4a16_g128,float,w8a16,w3a16_g32
fi
if has mlx_lm; then
    check load_mlx.py 1 mlx w4a16_g64
    check load_mlx.py 1 mlx w8a16_asym
    check load_mlx.py 1 mlx w4a16_g128,float,w8a16,w2a16_g32_asym 2000000
    check load_mlx.py 1 awq w4a16_g128
    experts
fi
[ $ran -gt 0 ] || exit 77
