#!/bin/sh
# Checks that tests/support/naive_rounding.c, whose error no scheme of calm may exceed (conformance.test_naive_rounding), rounds the
# bundled model's weights as the tools do (compare_naive.c): compressed-tensors' functions in float32, weight by weight; llama-quantize
# without an importance matrix, weight by weight; llm-compressor, which computes in bfloat16 and loses more, only by its error.
#
#   naive_rounding.sh FOLDER-OF-PROGRAMS [TOOL...]     compressed-tensors, llama-quantize, llm-compressor (default: all three)
#
# peers.sh finds the tools.  A SKIP line names a missing tool; exit status 77 if all are missing.
set -eu

PATH=$1:$1/tests:$PATH
shift
[ $# -gt 0 ] || set -- compressed-tensors llama-quantize llm-compressor
here=$(cd "$(dirname "$0")" && pwd)
. "$here/peers.sh"
ran=0

compare() {    # compare gguf|ct SCHEME DIR [same]
    try compare_naive "$model" "$@"
    grep weights "$work/said"
    ran=$((ran + 1))
}

library() {
    has "$python" torch,compressed_tensors || return 0
    schemes='w2a16_g64 w3a16_g128 w4a16_g32 w4a16_g128_asym w8a16 fp8a16 fp8_blocka16 mxfp4a16 nvfp4a16'
    # shellcheck disable=SC2086
    try "$python" "$here/naive_ct.py" "$model" "$work/library" $schemes
    for scheme in $schemes; do
        compare ct "$scheme" "$work/library/$scheme" same
    done
}

llama() {
    has_llama_cpp || return 0
    try write_gguf "$model" float "$work/float" f32
    cp "$model"/tokenizer* "$work"
    for pair in Q4_0:w4a16_g32_f16s Q8_0:w8a16_g32_f16s Q4_1:q4_1 Q5_0:q5_0 Q5_1:q5_1 Q2_K:q2_k Q3_K_S:q3_k Q4_K_S:q4_k Q5_K_S:q5_k \
        Q6_K:q6_k IQ4_NL:iq4_nl IQ4_XS:iq4_xs MXFP4_MOE:mxfp4a16; do
        rm -rf "$work/floats"
        try "$CALM_LLAMA_CPP/llama-quantize" --pure "$work/float/model.gguf" "$work/peer.gguf" "${pair%:*}" 1
        try calm dequantize "$work/peer.gguf" --dtype f32 --output "$work/floats" --quiet
        compare gguf "${pair#*:}" "$work/floats" same
    done
}

compressor() {
    has "$lc" llmcompressor || return 0
    pairs='W4A16:w4a16_g128 W8A16:w8a16 W4A16_ASYM:w4a16_g128_asym FP8_DYNAMIC:fp8a16 FP8_BLOCK:fp8_blocka16 NVFP4A16:nvfp4a16
        MXFP4A16:mxfp4a16'
    schemes=
    for pair in $pairs; do
        schemes="$schemes ${pair%:*}"
    done
    # shellcheck disable=SC2086
    write_foreign $schemes
    for pair in $pairs; do
        rm -rf "$work/floats"
        try calm dequantize "$work/ct/${pair%:*}" --dtype f32 --output "$work/floats" --quiet
        compare ct "${pair#*:}" "$work/floats"
    done
}

for tool in "$@"; do
    case $tool in
        compressed-tensors) library ;;
        llama-quantize) llama ;;
        llm-compressor) compressor ;;
        *) echo "no tool $tool: compressed-tensors, llama-quantize or llm-compressor"; exit 2 ;;
    esac
done
[ $ran -gt 0 ] || exit 77
