/* Engines: every rule of docs/targets.md by an example on each side of it; sentences, proposals, ties. */
#include "ptq/plan/engines.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/harness.h"

typedef struct example {
    const char *target, *format;    /* format NULL: the first */
    size_t out, in;
    bool expert;
    const char *scheme;
    calm_engine_rule rule;
} example;

static const example examples[] = {
    /* vLLM pads dense shapes; only whole 32-bit words are needed, along columns, and along rows for zero points. */
    {"vllm-cpu", NULL, 64, 256, false, "w4a16_g128", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 48, 256, false, "w4a16_g128", CALM_ENGINE_ROWS},
    {"vllm-cpu", NULL, 64, 80, false, "w4a16", CALM_ENGINE_COLUMNS},
    {"vllm-cpu", NULL, 64, 256, false, "w8a16", CALM_ENGINE_BITS},
    {"vllm-cpu", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"vllm-cpu", NULL, 7, 19, false, "w8a8", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "w8a8_g32", CALM_ENGINE_GROUP},
    {"vllm-cpu", NULL, 64, 256, false, "w8a8_static", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "w4a8_g128", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "w4a4_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm-cpu", NULL, 64, 256, false, "fp8", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "fp8_static", CALM_ENGINE_ACTIVATIONS},
    {"vllm-cpu", NULL, 128, 256, false, "w4afp8_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 65, 76, false, "fp8_static", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, true, "fp8_static", CALM_ENGINE_ACTIVATIONS},
    {"vllm-cpu", NULL, 64, 256, false, "fp8_tensor_static", CALM_ENGINE_FAMILY},
    {"vllm", NULL, 65, 76, false, "fp8_tensor", CALM_ENGINE_TAKES},
    {"vllm", NULL, 65, 76, false, "fp8_tensor_static", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, true, "fp8_tensor", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 64, 256, true, "fp8_tensor_static", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, true, "fp8_tensor_static", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "fp8_tensor_static", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 256, false, "w4afp8_g128", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w4afp8_g128", CALM_ENGINE_ROWS},
    {"vllm", NULL, 128, 192, false, "w4afp8_g128", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 128, 256, false, "w4afp8_g64", CALM_ENGINE_GROUP},
    {"vllm", NULL, 128, 256, false, "w4afp8", CALM_ENGINE_GROUP},
    {"vllm", NULL, 128, 256, false, "w3afp8_g128", CALM_ENGINE_BITS},
    {"vllm", NULL, 128, 256, false, "w4afp8_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm", NULL, 128, 256, true, "w4afp8_g128", CALM_ENGINE_ROWS},
    {"vllm", NULL, 256, 256, true, "w4afp8_g128", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "fp8_static", CALM_ENGINE_TAKES},
    {"sglang", NULL, 128, 256, false, "w4afp8_g128", CALM_ENGINE_ACTIVATIONS},
    {"transformers", NULL, 7, 24, false, "fp8_static", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w3afp8", CALM_ENGINE_TAKES},
    {"vllm-cpu", NULL, 64, 256, false, "fp8a16", CALM_ENGINE_FAMILY},
    {"vllm-cpu", NULL, 128, 256, false, "fp8_block", CALM_ENGINE_FAMILY},
    {"vllm-cpu", NULL, 64, 256, false, "nvfp4", CALM_ENGINE_FAMILY},
    {"vllm-cpu", NULL, 64, 256, false, "mxfp4a16", CALM_ENGINE_FAMILY},
    {"vllm-cpu", NULL, 64, 256, true, "w4a16_g128", CALM_ENGINE_BITS},
    {"vllm-cpu", NULL, 64, 256, true, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"vllm-cpu", "gptq", 64, 256, false, "w4a16_g128", CALM_ENGINE_TAKES},
    {"vllm-cpu", "gptq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm-cpu", "gptq", 64, 256, false, "w8a16", CALM_ENGINE_BITS},
    {"vllm-cpu", "awq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    /* ROCm: Triton at 4 bits, Conch at 8; float schemes only with activations, FP8 with sides that 16 divides. */
    {"vllm-rocm", NULL, 72, 256, false, "w4a16_g256_asym", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 72, 72, false, "w4a16", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 76, 256, false, "w4a16_g32", CALM_ENGINE_ROWS},
    {"vllm-rocm", NULL, 72, 76, false, "w4a16", CALM_ENGINE_COLUMNS},
    {"vllm-rocm", NULL, 64, 256, false, "w4a16_g16", CALM_ENGINE_GROUP},
    {"vllm-rocm", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"vllm-rocm", NULL, 64, 256, false, "w8a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 192, false, "w8a16", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, false, "w8a16_g64", CALM_ENGINE_GROUP},
    {"vllm-rocm", NULL, 72, 256, false, "w8a16_g128", CALM_ENGINE_ROWS},
    {"vllm-rocm", NULL, 64, 96, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"vllm-rocm", NULL, 7, 19, false, "w8a8_asymact", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 7, 19, false, "w8a8_static", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, false, "w4a8_g128", CALM_ENGINE_BITS},
    {"vllm-rocm", NULL, 64, 256, false, "w4a4_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm-rocm", NULL, 128, 256, false, "w4afp8_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm-rocm", NULL, 48, 80, false, "fp8_static", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 48, 80, false, "fp8_tensor", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, true, "fp8_tensor", CALM_ENGINE_ACTIVATIONS},
    {"vllm-rocm", NULL, 64, 256, true, "fp8_tensor_static", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 48, 72, false, "fp8_tensor", CALM_ENGINE_COLUMNS},
    {"vllm-rocm", NULL, 40, 80, false, "fp8_tensor_static", CALM_ENGINE_ROWS},
    {"vllm-rocm", NULL, 48, 72, false, "fp8", CALM_ENGINE_COLUMNS},
    {"vllm-rocm", NULL, 40, 80, false, "fp8", CALM_ENGINE_ROWS},
    {"vllm-rocm", NULL, 64, 256, false, "fp8a16", CALM_ENGINE_FAMILY},
    {"vllm-rocm", NULL, 200, 256, false, "fp8_block", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 200, 256, false, "fp8_blocka16", CALM_ENGINE_FAMILY},
    {"vllm-rocm", NULL, 64, 256, false, "nvfp4", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, false, "nvfp4a16", CALM_ENGINE_FAMILY},
    {"vllm-rocm", NULL, 64, 256, false, "mxfp4", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, false, "mxfp4a16", CALM_ENGINE_FAMILY},
    {"vllm-rocm", NULL, 72, 96, true, "w4a16_g16_asym", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 72, 96, true, "w8a16_g32", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 72, 96, true, "w8a16_g32_asym", CALM_ENGINE_ZEROS},
    {"vllm-rocm", NULL, 128, 64, true, "w4a16", CALM_ENGINE_GROUP},
    {"vllm-rocm", NULL, 76, 96, true, "w4a16_g32_asym", CALM_ENGINE_ROWS},
    {"vllm-rocm", NULL, 96, 96, true, "w8a8", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 96, 96, true, "w8a8_static", CALM_ENGINE_ACTIVATIONS},
    {"vllm-rocm", NULL, 40, 72, true, "fp8", CALM_ENGINE_TAKES},
    {"vllm-rocm", NULL, 64, 256, true, "mxfp4", CALM_ENGINE_FAMILY},
    {"vllm-rocm", "gptq", 72, 96, false, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm-rocm", "gptq", 64, 256, false, "w4a16_g256", CALM_ENGINE_GROUP},
    {"vllm-rocm", "gptq", 64, 256, false, "w8a16_g128", CALM_ENGINE_TAKES},
    {"vllm-rocm", "gptq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm-rocm", "gptq", 64, 256, true, "w8a16_g64", CALM_ENGINE_TAKES},
    {"vllm-rocm", "awq", 72, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm-rocm", "awq", 72, 96, true, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm-rocm", "awq", 64, 256, false, "w8a16", CALM_ENGINE_BITS},
    {"vllm", NULL, 65, 576, false, "w4a16_g64", CALM_ENGINE_TAKES},
    {"vllm", NULL, 65, 192, false, "w8a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 72, false, "w4a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 76, false, "w4a16", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 96, 76, false, "w8a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 72, false, "w3a16", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 96, 64, false, "w3a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 72, 64, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 76, 64, false, "w4a16_g32_asym", CALM_ENGINE_ROWS},
    {"vllm", NULL, 76, 64, false, "w4a16_g32", CALM_ENGINE_TAKES},
    /* The groups of Marlin. */
    {"vllm", NULL, 64, 192, false, "w4a16_g128", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 64, 256, false, "w4a16_g256", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w4a16_g16", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w4a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w8a16_g64", CALM_ENGINE_TAKES},
    /* 2 to 8 bits in compressed-tensors, with zero points too; 4 and 8 in GPTQ, 4 in AWQ. */
    {"vllm", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w2a16_g64_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "w8a16_g128_asym", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"vllm", "gptq", 64, 256, false, "w8a16", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 72, 96, false, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 76, 96, false, "w4a16_g32", CALM_ENGINE_ROWS},
    {"vllm", "gptq", 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_ZEROS},
    {"vllm", "gptq", 64, 256, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"vllm", "awq", 72, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm", "awq", 76, 96, false, "w4a16_g32_asym", CALM_ENGINE_ROWS},
    {"vllm", "awq", 64, 256, false, "w4a16_asym", CALM_ENGINE_TAKES},
    {"vllm", "awq", 64, 256, false, "w8a16", CALM_ENGINE_BITS},
    {"vllm", "gguf", 64, 256, false, "w4a16_g128", CALM_ENGINE_FORMAT},
    /* Activations: W8A8 in every shape, with zero points in those that CUTLASS takes; no int4 kernels. */
    {"vllm", NULL, 7, 19, false, "w8a8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 576, false, "w8a8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 48, false, "w8a8_asymact", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 40, false, "w8a8_asymact", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 88, 48, false, "w8a8_asymact", CALM_ENGINE_ROWS},
    {"vllm", NULL, 64, 256, false, "w4a4_g128", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 64, 256, false, "iq4_nl", CALM_ENGINE_FAMILY},
    {"vllm", NULL, 64, 256, false, "w4a8_g128", CALM_ENGINE_BITS},
    /* Float schemes: each of compressed-tensors, but for FP8 experts with float activations. */
    {"vllm", NULL, 64, 256, false, "fp8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "mxfp4a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, false, "nvfp4", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 248, false, "nvfp4", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 64, 256, true, "fp8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 64, 256, true, "fp8a16", CALM_ENGINE_FAMILY},
    {"vllm", NULL, 200, 256, false, "fp8_block", CALM_ENGINE_TAKES},
    {"vllm", NULL, 200, 256, false, "fp8_blocka16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 192, false, "fp8_block", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 128, 192, false, "fp8_blocka16", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 256, 256, true, "fp8_block", CALM_ENGINE_TAKES},
    {"vllm", NULL, 256, 256, true, "fp8_blocka16", CALM_ENGINE_FAMILY},
    {"sglang", NULL, 200, 256, false, "fp8_block", CALM_ENGINE_TAKES},
    {"sglang", NULL, 200, 256, false, "fp8_blocka16", CALM_ENGINE_FAMILY},
    {"sglang", NULL, 256, 256, true, "fp8_block", CALM_ENGINE_TAKES},
    {"transformers", NULL, 200, 192, false, "fp8_blocka16", CALM_ENGINE_TAKES},
    {"transformers", NULL, 200, 192, false, "fp8_block", CALM_ENGINE_COLUMNS},
    {"vllm", "gptq", 64, 256, false, "fp8", CALM_ENGINE_FAMILY},
    {"vllm", NULL, 64, 256, false, "w8a8_g128", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 256, false, "w8a8_asym", CALM_ENGINE_ZEROS},
    /* Experts: any shape in groups, Marlin's in rows (4 and 8 bits, zero points at 4); activations are symmetric. */
    {"vllm", NULL, 72, 96, true, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm", NULL, 72, 96, true, "w3a16_g32", CALM_ENGINE_TAKES},
    {"vllm", NULL, 72, 96, true, "w8a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 64, true, "w4a16", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 64, true, "w4a16_asym", CALM_ENGINE_TAKES},
    {"vllm", NULL, 128, 64, true, "w8a16_asym", CALM_ENGINE_GROUP},
    {"vllm", NULL, 128, 64, true, "w3a16", CALM_ENGINE_GROUP},
    {"vllm", NULL, 64, 128, true, "w4a16", CALM_ENGINE_ROWS},
    {"vllm", NULL, 128, 96, true, "w4a16", CALM_ENGINE_COLUMNS},
    {"vllm", NULL, 96, 96, true, "w8a8", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 96, true, "w8a8_asymact", CALM_ENGINE_ACTIVATIONS},
    {"vllm", NULL, 96, 96, false, "w8a8_static", CALM_ENGINE_TAKES},
    {"vllm", NULL, 96, 96, true, "w8a8_static", CALM_ENGINE_ACTIVATIONS},
    {"sglang", NULL, 64, 256, false, "w8a8_static", CALM_ENGINE_ACTIVATIONS},
    {"transformers", NULL, 7, 24, false, "w8a8_static", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 96, true, "w4a16_g32", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 128, true, "w8a16", CALM_ENGINE_ROWS},
    {"vllm", "awq", 64, 96, true, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"vllm", "awq", 128, 64, true, "w4a16_asym", CALM_ENGINE_GROUP},
    /* SGLang: 4 and 8 bits in either of Marlin's tiles. */
    {"sglang", NULL, 64, 256, false, "w3a16_g128", CALM_ENGINE_BITS},
    {"sglang", NULL, 64, 256, false, "w2a16_g64", CALM_ENGINE_BITS},
    {"sglang", NULL, 64, 128, false, "w4a16_g128", CALM_ENGINE_TAKES},
    {"sglang", NULL, 128, 64, false, "w4a16_g64", CALM_ENGINE_TAKES},
    {"sglang", NULL, 128, 576, false, "w8a16", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 576, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"sglang", NULL, 128, 96, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"sglang", NULL, 96, 128, false, "w8a16", CALM_ENGINE_ROWS},
    {"sglang", NULL, 64, 256, false, "w4a16_g128_asym", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "w8a16_g128_asym", CALM_ENGINE_ZEROS},
    {"sglang", NULL, 8, 576, false, "w8a8", CALM_ENGINE_TAKES},
    {"sglang", NULL, 12, 576, false, "w8a8", CALM_ENGINE_ROWS},
    {"sglang", NULL, 16, 72, false, "w8a8", CALM_ENGINE_COLUMNS},
    {"sglang", NULL, 64, 256, false, "w8a8_asymact", CALM_ENGINE_ACTIVATIONS},
    {"sglang", NULL, 128, 64, true, "w4a16_g64", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 128, true, "w4a16_g64", CALM_ENGINE_ROWS},
    {"sglang", NULL, 128, 96, true, "w4a16_g32", CALM_ENGINE_COLUMNS},
    {"sglang", NULL, 128, 64, true, "w4a16_g64_asym", CALM_ENGINE_ZEROS},
    {"sglang", NULL, 7, 19, true, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"sglang", "gptq", 128, 576, false, "w4a16_g64", CALM_ENGINE_TAKES},
    {"sglang", "gptq", 64, 576, false, "w4a16_g64", CALM_ENGINE_COLUMNS},
    {"sglang", "gptq", 64, 128, true, "w4a16_g64", CALM_ENGINE_ROWS},
    {"sglang", "awq", 72, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"sglang", "awq", 64, 128, false, "w4a16_asym", CALM_ENGINE_TAKES},
    {"sglang", "awq", 128, 64, false, "w4a16_asym", CALM_ENGINE_COLUMNS},
    {"sglang", "awq", 72, 96, true, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "fp8a16", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "nvfp4", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, false, "mxfp4", CALM_ENGINE_FAMILY},
    {"sglang", NULL, 64, 256, true, "fp8", CALM_ENGINE_TAKES},
    {"sglang", NULL, 64, 256, true, "fp8a16", CALM_ENGINE_FAMILY},
    {"transformers", NULL, 64, 256, false, "mxfp4", CALM_ENGINE_TAKES},
    {"transformers", NULL, 64, 256, true, "fp8", CALM_ENGINE_FAMILY},
    /* llama.cpp: blocks of 32, for any group that is a multiple. */
    {"llamacpp", NULL, 7, 96, false, "w4a16_g96", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w4a16_g48", CALM_ENGINE_GROUP},
    {"llamacpp", NULL, 7, 80, false, "w8a16", CALM_ENGINE_COLUMNS},
    {"llamacpp", NULL, 7, 96, false, "w8a16", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w3a16_g32", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w2a16_g32", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "w8a16_g32_asym", CALM_ENGINE_ZEROS},
    {"llamacpp", NULL, 7, 96, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"llamacpp", NULL, 7, 96, false, "mxfp4a16", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 80, false, "mxfp4a16", CALM_ENGINE_COLUMNS},
    {"llamacpp", NULL, 7, 96, false, "mxfp4", CALM_ENGINE_FAMILY},
    {"llamacpp", NULL, 7, 128, false, "nvfp4a16", CALM_ENGINE_TAKES},
    {"llamacpp", NULL, 7, 96, false, "nvfp4a16", CALM_ENGINE_COLUMNS},
    {"llamacpp", NULL, 7, 128, false, "nvfp4", CALM_ENGINE_FAMILY},
    {"llamacpp", "compressed-tensors", 7, 96, false, "w8a16", CALM_ENGINE_FORMAT},
    /* MLX: three groups, none per row, zero points everywhere; AWQ of dense linears, no GPTQ. */
    {"mlx", NULL, 7, 128, false, "w4a16_g64", CALM_ENGINE_TAKES},
    {"mlx", NULL, 7, 128, false, "w4a16", CALM_ENGINE_GROUP},
    {"mlx", NULL, 7, 128, false, "w4a16_g16", CALM_ENGINE_GROUP},
    {"mlx", NULL, 7, 96, false, "w4a16_g64", CALM_ENGINE_COLUMNS},
    {"mlx", NULL, 7, 96, false, "w3a16_g32_asym", CALM_ENGINE_TAKES},
    {"mlx", NULL, 7, 96, true, "w3a16_g32_asym", CALM_ENGINE_TAKES},
    {"mlx", NULL, 7, 96, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"mlx", "awq", 8, 96, false, "w4a16_g32_asym", CALM_ENGINE_TAKES},
    {"mlx", "awq", 8, 96, false, "w4a16_asym", CALM_ENGINE_GROUP},
    {"mlx", "awq", 8, 96, true, "w4a16_g32_asym", CALM_ENGINE_BITS},
    {"mlx", "gptq", 8, 96, false, "w4a16_g32", CALM_ENGINE_FORMAT},
    /* Transformers: compressed-tensors' schemes, symmetric; experts weight-only; GPTQModel's kernels for dense
     * linears. */
    {"transformers", NULL, 7, 24, false, "w3a16_g8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a4_g8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w8a8", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w8a8_asymact", CALM_ENGINE_TAKES},
    {"transformers", NULL, 7, 24, false, "w4a16_g8_asym", CALM_ENGINE_ZEROS},
    {"transformers", NULL, 7, 24, false, "w4a16_g16", CALM_ENGINE_COLUMNS},
    {"transformers", NULL, 7, 24, true, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"transformers", NULL, 7, 24, true, "w4a16_g8", CALM_ENGINE_TAKES},
    {"transformers", "gptq", 7, 32, false, "w8a8", CALM_ENGINE_ACTIVATIONS},
    {"transformers", "gptq", 7, 32, false, "w3a16_g16_asym", CALM_ENGINE_TAKES},
    {"transformers", "gptq", 7, 32, false, "w3a16_g8", CALM_ENGINE_GROUP},
    {"transformers", "gptq", 7, 32, false, "w4a16_g16_actorder", CALM_ENGINE_TAKES},
    {"sglang", "gptq", 64, 256, false, "w4a16_g128_actorder", CALM_ENGINE_TAKES},
    {"vllm", "gptq", 64, 256, false, "w4a16_g128_actorder", CALM_ENGINE_ORDER},
    {"vllm-cpu", "gptq", 64, 256, false, "w4a16_g128_actorder", CALM_ENGINE_ORDER},
    {"transformers", NULL, 7, 32, false, "w4a16_g16_actorder", CALM_ENGINE_ORDER},
    {"transformers", "gptq", 7, 32, true, "w4a16_g16", CALM_ENGINE_BITS},
    {"transformers", "awq", 8, 32, false, "w4a16_g16_asym", CALM_ENGINE_TAKES},
    {"transformers", "awq", 8, 512, false, "w4a16_g256_asym", CALM_ENGINE_GROUP},
    {"transformers", "awq", 8, 32, true, "w4a16_g16_asym", CALM_ENGINE_BITS},
    /* No rules. */
    {"any", "gguf", 7, 24, true, "w4a4_g16_asym", CALM_ENGINE_TAKES},
};

TEST(each_rule_has_two_sides)
{
    unsigned seen = 0;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        const calm_engine_linear linear = {"m", e->out, e->in, e->expert, 0, false};
        calm_scheme scheme;
        ck_ok(calm_scheme_parse(ctx, e->scheme, &scheme));
        const calm_engine_rule rule = calm_engine_verdict(calm_engine_find(e->target), e->format, &linear, &scheme);
        if (rule != e->rule)
            printf("%s %s [%zu, %zu]%s: rule %d, expected %d\n", e->target, e->scheme, e->out, e->in,
                   e->expert ? " expert" : "", (int)rule, (int)e->rule);
        ck_assert(rule == e->rule);
        seen |= 1u << rule;
    }
    /* The rule for heads has a separate test. */
    ck_assert((seen | 1u << CALM_ENGINE_HEAD) == (1u << CALM_N_ENGINE_RULES) - 1);
}
END_OF_TEST

/* If an engine fuses linears, every part but the last must end with a block of 128 rows. */
TEST(blocks_end_with_parts)
{
    const calm_engine *vllm = calm_engine_find("vllm"), *transformers = calm_engine_find("transformers");
    const calm_engine_linear whole = {"qkv", 448, 256, false, calm_engine_part(calm_engine_part(0, 256), 128), false};
    const calm_engine_linear cut = {"qkv", 320, 256, false, calm_engine_part(calm_engine_part(0, 192), 64), false};
    calm_scheme block, row;
    char *text;
    ck_assert(whole.part == 128 && cut.part == 64);
    ck_ok(calm_scheme_parse(ctx, "fp8_block", &block));
    ck_ok(calm_scheme_parse(ctx, "fp8", &row));
    ck_assert(calm_engine_verdict(vllm, NULL, &whole, &block) == CALM_ENGINE_TAKES);
    ck_assert(calm_engine_verdict(vllm, NULL, &cut, &block) == CALM_ENGINE_ROWS);
    ck_assert(calm_engine_verdict(vllm, NULL, &cut, &row) == CALM_ENGINE_TAKES);
    ck_assert(calm_engine_verdict(transformers, NULL, &cut, &block) == CALM_ENGINE_TAKES);
    ck_ok(calm_engine_explain(ctx, vllm, NULL, &cut, &block, &text));
    ck_assert_str_eq(text, "takes parts of a fused linear whose rows 128 divides, not 64");
}
END_OF_TEST

/* vLLM and SGLang pad heads to a multiple of 64 rows and load them row by row. */
TEST(heads)
{
    static const struct {
        const char *target, *format, *scheme;
        size_t out;
        bool head;
        calm_engine_rule rule;
    } list[] = {
        {"vllm", "compressed-tensors", "fp8_blocka16", 4096, true, CALM_ENGINE_HEAD},
        {"vllm", "compressed-tensors", "fp8_blocka16", 4096, false, CALM_ENGINE_TAKES},
        {"vllm", "compressed-tensors", "fp8a16", 4097, true, CALM_ENGINE_TAKES},
        {"vllm", "gptq", "w4a16_g128", 4096, true, CALM_ENGINE_TAKES},
        {"vllm", "gptq", "w4a16_g128", 4104, true, CALM_ENGINE_HEAD},
        {"vllm", "gptq", "w4a16_g128", 4104, false, CALM_ENGINE_TAKES},
        {"vllm", "gptq", "w3a16_g128", 4096, true, CALM_ENGINE_BITS},
        {"sglang", "compressed-tensors", "fp8_blocka16", 4096, true, CALM_ENGINE_HEAD},
        /* As its linears, except for padding. */
        {"sglang", "compressed-tensors", "w4a16_g128", 4097, true, CALM_ENGINE_TAKES},
        {"sglang", "compressed-tensors", "w4a16_g128", 4097, false, CALM_ENGINE_ROWS},
        {"sglang", "gptq", "w4a16_g128", 4104, true, CALM_ENGINE_HEAD},
        {"transformers", "compressed-tensors", "fp8_blocka16", 4097, true, CALM_ENGINE_TAKES},
        {"llamacpp", "gguf", "q6_k", 4097, true, CALM_ENGINE_TAKES},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const calm_engine_linear linear = {"head", list[i].out, 256, false, 0, list[i].head};
        const calm_engine *engine = calm_engine_find(list[i].target);
        calm_scheme scheme;
        ck_ok(calm_scheme_parse(ctx, list[i].scheme, &scheme));
        ck_assert_msg(calm_engine_verdict(engine, list[i].format, &linear, &scheme) == list[i].rule, "%s %s %s of %zu",
                      list[i].target, list[i].format, list[i].scheme, list[i].out);
        if (list[i].rule == CALM_ENGINE_HEAD)
            ck_fails(calm_engine_check_scheme(ctx, engine, list[i].format, &linear, &scheme), CALM_EARG,
                     calm_scheme_rows(&scheme) > 1
                         ? "loads a head row by row, so no scales of 128 rows together; `export.head_scheme`"
                         : "takes heads of rows that 64 divides in this format, not 4104; no usual scheme");
    }
}
END_OF_TEST

static const char *const engine_names[] = {"any",      "vllm", "vllm-cpu",    "vllm-rocm", "sglang",
                                           "llamacpp", "mlx",  "transformers"};

TEST(float_is_always_taken)
{
    const calm_scheme floating = {0};
    const calm_engine_linear linear = {"m", 7, 5, true, 0, false};
    for (size_t i = 0; i < sizeof engine_names / sizeof *engine_names; i++)
        ck_assert(calm_engine_verdict(calm_engine_find(engine_names[i]), NULL, &linear, &floating)
                  == CALM_ENGINE_TAKES);
}
END_OF_TEST

TEST(names_are_those_of_the_option)
{
    char joined[256] = "";
    const calm_engine *found;
    for (size_t i = 0; i < sizeof engine_names / sizeof *engine_names; i++) {
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", i ? "|" : "", engine_names[i]);
        ck_ok(calm_engine_parse(ctx, engine_names[i], &found));
        ck_assert_str_eq(calm_engine_name(found), engine_names[i]);
        ck_assert(found == calm_engine_find(engine_names[i]) && calm_engine_is_any(found) == (i == 0));
        ck_assert((i == 0) == (*calm_engine_formats(found) == '\0'));
    }
    ck_assert_str_eq(joined, CALM_ENGINE_NAMES);
    ck_assert(calm_engine_is_any(NULL));
    ck_fails(calm_engine_parse(ctx, "vlm", &found), CALM_EARG, "did you mean vllm?");
}
END_OF_TEST

TEST(formats_are_checked_by_name)
{
    const calm_engine *vllm = calm_engine_find("vllm"), *llamacpp = calm_engine_find("llamacpp");
    ck_assert(calm_engine_reads(vllm, "gptq") && !calm_engine_reads(vllm, "gguf")
              && calm_engine_reads(llamacpp, "gguf"));
    ck_assert(calm_engine_reads(calm_engine_find("any"), "gguf") && calm_engine_reads(calm_engine_find("mlx"), "mlx"));
}
END_OF_TEST

/* The proposal in a refusal is taken, and the sentence names the linear, the number and a remedy. */
TEST(refusals_say_what_would_do)
{
    const calm_engine_linear odd = {"model.layers.0.o", 64, 192, false, 0, false};
    const calm_engine_linear wide = {"model.layers.0.down", 64, 256, false, 0, false};
    const calm_engine_linear none = {"model.layers.0.o", 64, 72, false, 0, false};
    const calm_engine *sglang = calm_engine_find("sglang"), *llamacpp = calm_engine_find("llamacpp");
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, "w4a16_g64", &scheme));
    ck_fails(
        calm_engine_check_scheme(ctx, sglang, NULL, &odd, &scheme), CALM_EARG,
        "`target` sglang takes no w4a16_g64 for model.layers.0.o [64, 192]: it takes input columns that 128 divides or "
        "output rows that 128 divides, not 192 and 64; `schemes` w8a8 would do");
    ck_ok(calm_scheme_parse(ctx, "w4a16_g256", &scheme));
    ck_fails(calm_engine_check_scheme(ctx, sglang, NULL, &wide, &scheme), CALM_EARG,
             "takes groups of 32, 64 or 128 columns or one scale per row, not 256; `schemes` w4a16_g128 would do");
    ck_ok(calm_scheme_parse(ctx, "w8a8", &scheme));
    ck_fails(calm_engine_check_scheme(ctx, llamacpp, NULL, &none, &scheme), CALM_EARG,
             "takes weight-only schemes, no quantized activations; no usual scheme would do");
}
END_OF_TEST

/* A sentence about a shape names the number that is violated: a multiple of it is taken. */
TEST(sentences_name_the_number)
{
    static const struct {
        const char *engine, *format, *scheme, *sentence;
        size_t out, in;
        bool expert;
    } list[] = {
        {"vllm", NULL, "w4a16_g128", "takes input columns that 128 divides, not 192", 64, 192, false},
        {"vllm", NULL, "w3a16", "takes input columns that 32 divides, not 72", 64, 72, false},
        {"vllm", NULL, "w4a16_g32_asym", "takes output rows that 8 divides, not 76", 76, 64, false},
        {"vllm", NULL, "w8a8_asymact", "takes output rows that 16 divides, not 88", 88, 48, false},
        {"sglang", NULL, "w8a16", "takes input columns that 64 divides, not 96", 128, 96, false},
        {"sglang", NULL, "w8a16", "takes output rows that 64 divides, not 96", 96, 128, false},
        {"sglang", NULL, "w4a16", "takes output rows that 128 divides, not 64 (experts)", 64, 128, true},
        {"sglang", NULL, "w8a8", "takes output rows that 8 divides, not 12", 12, 576, false},
        {"vllm", NULL, "w3a16", "takes groups of 32, 64 or 128 columns, not one scale per row (experts)", 128, 64,
         true},
        {"vllm", NULL, "w4afp8_g32", "takes groups of 128 columns next to activations in FP8, not 32", 128, 128, false},
        {"vllm", NULL, "w4afp8", "takes groups of 128 columns next to activations in FP8, not one scale per row", 128,
         128, false},
        {"vllm", NULL, "w4afp8_g128", "takes output rows that 128 divides, not 64", 64, 128, false},
        {"vllm", NULL, "fp8_static", "takes activations with a scale per token, not one for all (experts)", 64, 128,
         true},
        {"vllm", NULL, "fp8_tensor", "takes one scale for all activations next to one for all weights, not a scale per "
         "token (experts)", 64, 128, true},
        {"vllm-rocm", NULL, "w8a16_g64", "takes groups of 128 columns or one scale per row, not 64", 64, 128, false},
        {"vllm-rocm", NULL, "w8a16", "takes output rows that 64 divides, not 72", 72, 128, false},
        {"vllm-rocm", NULL, "fp8", "takes input columns that 16 divides, not 72", 48, 72, false},
        {"vllm-rocm", NULL, "fp8", "takes output rows that 16 divides, not 40", 40, 80, false},
        {"mlx", "awq", "w4a16_g32", "takes none that are quantized in this format (experts)", 128, 64, true},
        {"mlx", "gptq", "w4a16_g32", "reads mlx,awq, not gptq", 128, 64, false},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const calm_engine_linear linear = {"m", list[i].out, list[i].in, list[i].expert, 0, false};
        calm_scheme scheme;
        char *text;
        ck_ok(calm_scheme_parse(ctx, list[i].scheme, &scheme));
        ck_ok(calm_engine_explain(ctx, calm_engine_find(list[i].engine), list[i].format, &linear, &scheme, &text));
        ck_assert_str_eq(text, list[i].sentence);
    }
}
END_OF_TEST

/* Every rule's explanation is a separate sentence, and none is empty. */
TEST(explanations_name_the_rule)
{
    static const char *const words[] = {"takes it", "reads", "has no kernel for", "activations", "bits", "", "groups",
                                        "neighbouring columns", "columns", "rows"};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        const calm_engine_linear linear = {"m", e->out, e->in, e->expert, 0, false};
        calm_scheme scheme;
        char *text;
        ck_ok(calm_scheme_parse(ctx, e->scheme, &scheme));
        ck_ok(calm_engine_explain(ctx, calm_engine_find(e->target), e->format, &linear, &scheme, &text));
        if (e->rule == CALM_ENGINE_BITS && e->expert && (e->format || strcmp(e->target, "vllm-cpu") == 0))
            ck_assert(strstr(text, "none that are quantized") != NULL);
        else if (e->rule == CALM_ENGINE_ZEROS)
            ck_assert(strstr(text, "zero points") != NULL);
        else if (e->rule == CALM_ENGINE_GROUP)
            ck_assert(strstr(text, "groups of") != NULL || strstr(text, "one scale per row") != NULL);
        else
            ck_assert(strstr(text, words[e->rule]) != NULL);
    }
}
END_OF_TEST

TEST(ties_number_what_is_fused)
{
    ck_assert(calm_engine_tie(calm_engine_find("vllm"), NULL) == CALM_TIE_BLOCK);
    ck_assert(calm_engine_tie(calm_engine_find("sglang"), "gptq") == CALM_TIE_BLOCK);
    ck_assert(calm_engine_tie(calm_engine_find("llamacpp"), NULL) == CALM_TIE_PROJECTION);
    ck_assert(calm_engine_tie(calm_engine_find("mlx"), NULL) == CALM_TIE_PROJECTION);
    ck_assert(calm_engine_tie(calm_engine_find("transformers"), NULL) == CALM_TIE_EXPERTS);
    ck_assert(calm_engine_tie(calm_engine_find("transformers"), "gptq") == CALM_TIE_MODEL);
    ck_assert(calm_engine_tie(calm_engine_find("any"), NULL) == CALM_TIE_NONE);
    for (int tie = CALM_TIE_NONE; tie < CALM_TIE_MODEL; tie++)
        ck_assert(calm_tie_number((calm_tie)tie, 3, false, true) == 0);
    ck_assert(calm_tie_number(CALM_TIE_PROJECTION, 3, true, true)
              != calm_tie_number(CALM_TIE_PROJECTION, 3, true, false));
    ck_assert(calm_tie_number(CALM_TIE_PROJECTION, 3, true, true)
              != calm_tie_number(CALM_TIE_PROJECTION, 4, true, false));
    ck_assert(calm_tie_number(CALM_TIE_BLOCK, 3, true, true) == calm_tie_number(CALM_TIE_BLOCK, 3, true, false));
    ck_assert(calm_tie_number(CALM_TIE_BLOCK, 3, true, true) != calm_tie_number(CALM_TIE_BLOCK, 4, true, true));
    ck_assert(calm_tie_number(CALM_TIE_EXPERTS, 3, true, true) == calm_tie_number(CALM_TIE_EXPERTS, 0, true, false));
    ck_assert(calm_tie_stronger(CALM_TIE_BLOCK, CALM_TIE_PROJECTION) == CALM_TIE_BLOCK);
    ck_assert(calm_tie_stronger(CALM_TIE_NONE, CALM_TIE_EXPERTS) == CALM_TIE_EXPERTS);
    ck_assert(calm_tie_number(CALM_TIE_MODEL, 3, false, true) == calm_tie_number(CALM_TIE_MODEL, 0, true, false));
}
END_OF_TEST

int main(void)
{
    return run_tests("engines", (const TTest *[]){each_rule_has_two_sides, blocks_end_with_parts, heads,
                                                  float_is_always_taken,
                                                  names_are_those_of_the_option, formats_are_checked_by_name,
                                                  refusals_say_what_would_do, sentences_name_the_number,
                                                  explanations_name_the_rule, ties_number_what_is_fused, NULL});
}
