#!/bin/sh
# Checks that other programs read calm's GGUF files: `gguf` parses them, and its dequantized tensors equal calm's, bit for
# bit; llama.cpp loads them, gives transformers' logits for every architecture, and for the bundled model the ids, the greedy
# tokens and the perplexity of the dequantized model.
#
#   gguf_reader.sh FOLDER-OF-PROGRAMS
#
# Skipped (exit status 77) where there is no Python with gguf and safetensors ($CALM_PYTHON, else python3); without
# llama-cpp-python, torch or transformers a line says that llama.cpp is not compared.
set -eu

PATH=$1:$1/tests:$PATH
reader=$(cd "$(dirname "$0")" && pwd)/gguf_reader.py
python=${CALM_PYTHON:-python3}
fixtures=${CALM_FIXTURES:-$CALM_HOME/../shared/fixtures}/models
demo=$CALM_HOME/recipes/models/qwen-demo
"$python" -c 'import gguf, safetensors' 2>/dev/null || { echo "SKIP: no Python with gguf and safetensors (CALM_PYTHON names one that has them)"; exit 77; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export CK_FORK=no

read_with() {    # read_with ARGUMENTS...: runs the reader; shows its messages only after a failure
    "$python" "$reader" "$@" 2>"$work/noise" || { cat "$work/noise"; exit 1; }
}

# float_gguf MODEL NAME: writes the float file to $work/out-NAME; false: calm refuses it by name, as for options of other fixtures that
# llama.cpp does not have.
float_gguf() {
    write_gguf "$1" float "$work/out-$2" f32 >"$work/said" 2>&1 && return
    grep "EUNSUPPORTED: gguf: " "$work/said" || { cat "$work/said"; exit 1; }
    [ ! "$fixtures" -ef "$CALM_HOME/../shared/fixtures/models" ] || exit 1
    return 1
}

write_blocks "$work/blocks" >/dev/null
read_with blocks "$work/blocks"

folders=
for scheme in w4a16_g128 w4a16_g128_asym w8a16_g64 w4a16_g32,w8a16_g32,float,w3a16_g64 q4_k q6_k iq4_xs q2_k mxfp4a16; do
    write_gguf "$demo" "$scheme" "$work/demo-$scheme" >/dev/null
    folders="$folders $work/demo-$scheme"
done

# Every architecture, from the reference fixtures, in float because of their shapes.  llama.cpp lacks the scale of the gemma2 fixture.
pairs=
[ -d "$fixtures" ] || echo "SKIP: a part: no reference fixtures in $fixtures (CALM_FIXTURES names them)"
for name in llama llama3_rope mistral qwen2 qwen2_yarn qwen2_untied qwen3 qwen3_moe gemma2 gemma3_text olmo2; do
    [ -d "$fixtures" ] || continue
    [ -d "$fixtures/$name" ] || { echo "no fixture $name"; exit 1; }
    cp -r "$fixtures/$name" "$work/$name"
    [ $name != gemma2 ] || sed -i 's/"query_pre_attn_scalar": [0-9.]*/"query_pre_attn_scalar": 24/' "$work/$name/config.json"
    write_gguf "$work/$name" float "$work/out-$name" f32 >/dev/null
    folders="$folders $work/out-$name"
    pairs="$pairs $work/$name $work/out-$name"
done

families=${fixtures%/models}/families wide=
for name in deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe gemma4_moe_text gemma4_text glm4 glm4_moe glm4_moe_lite granite granitemoe granitemoehybrid \
    hunyuan_v1_dense lfm2 lfm2_moe minimax_m2 ministral3 mixtral olmoe seed_oss starcoder2 wrapper_gemma3 wrapper_gemma4; do
    [ -d "$families/$name" ] || continue
    float_gguf "$families/$name" "$name" || continue
    pairs="$pairs $families/$name $work/out-$name"
    # Codes move with their rows; other schemes have the same layout.
    write_gguf "$families/$name" w4a16_g32,w8a16_g32 "$work/quantized-$name" f32 >"$work/said" || { cat "$work/said"; exit 1; }
    wide="$wide $families/$name $work/quantized-$name"
done

# shellcheck disable=SC2086
read_with parse $folders
"$python" -c 'import llama_cpp, torch, transformers, tokenizers' 2>/dev/null ||
    { echo "SKIP: a part, what llama.cpp shows: no Python with llama-cpp-python, torch and transformers (CALM_PYTHON names one that has them)"; exit 0; }
# shellcheck disable=SC2086
[ -z "$pairs" ] || read_with logits 0.01 $pairs
# shellcheck disable=SC2086
[ -z "$wide" ] || read_with wide 0.01 $wide
# Encoders.  A GELU's input halfway between two float16 values may round either way: 2^-10 of one activation in each block, plus
# float32 sums.  Embeddings have length 1 and are mostly means, in which one token counts less.  The tokenizer of XLM-R's fixture
# has a normal form that llama.cpp reads only from a character map.
pairs= texts=
for name in bert bert_mlm roberta xlm_roberta distilbert nomic_bert modernbert eurobert embeddinggemma; do
    from=$families/$name
    [ -d "$from" ] || from=$fixtures/$name
    [ -d "$from" ] || continue
    float_gguf "$from" "$name" || continue
    pairs="$pairs $from $work/out-$name"
    [ $name = xlm_roberta ] || texts="$texts $from $work/out-$name"
done
# EmbeddingGemma has two dense layers after pooling, which its fixture lacks.
if [ -d "$work/out-embeddinggemma" ]; then
    read_with dense "$families/embeddinggemma" "$work/dense"
    write_gguf "$work/dense" float "$work/out-dense" f32 >/dev/null
    texts="$texts $work/dense $work/out-dense"
fi
# shellcheck disable=SC2086
[ -z "$pairs" ] || read_with rows 0.01 $pairs
# shellcheck disable=SC2086
[ -z "$texts" ] || read_with sentences 0.001 $texts
# shellcheck disable=SC2086
read_with load $folders
for scheme in w4a16_g128 w4a16_g128_asym w8a16_g64 q4_k q6_k iq4_xs q2_k mxfp4a16; do
    read_with same "$demo" "$work/demo-$scheme" "$CALM_HOME/recipes/text/wikitext2-test.txt"
done
