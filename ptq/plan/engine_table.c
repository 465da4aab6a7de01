/* The limits of engines, as a table.  A row of an engine is a format that it reads, with the limits of dense linears
 * and of experts, and the jobs that share a scheme.
 *
 * Versions: vLLM 0.33.0 with humming-kernels 0.1.19 (CUDA) and 0.32.0 (CPU, ROCm), SGLang 0.5.23, Transformers 5.23.0
 * with compressed-tensors 0.17 to 0.20, optimum 2.3.0 and GPTQModel 7.7.0, mlx-lm 0.32.2, llama.cpp;
 * docs/evidence/engine_rules.csv has the source file of each rule.  tests/engines/run loads what a CPU can load, and
 * reports where this table is wrong. */
#include "ptq/plan/engines_impl.h"

/* ---- words of the table ---- */

/* MARLIN_SUPPORTED_GROUP_SIZES, and -1: one scale per row. */
#define MARLIN_GROUPS .groups = {32, 64, 128}
/* Marlin's thread tiles, of two kinds; experts have only the second kind: hidden size % 128 and intermediate size % 64,
 * of gate_up and down together. */
#define MARLIN {128, 64}, {64, 128}
#define MARLIN_EXPERT {64, 128}

/* Kernels by widths, widths with zero points, and tiles. */
#define WIDTHS(b, z, ...) {.bits = (b), .zeros = (z), .tiles = {__VA_ARGS__}}
/* W8A8: 8-bit weights with 8-bit activations. */
#define INT8_PAIR .pairs = B(8), .acts = B(8)

/* 4-bit weights with FP8 activations: CUTLASS on Hopper, rows and columns in multiples of n. */
#define W4AFP8(n) {.bits = B(4), .group = 128, .tiles = {{(n), (n)}}}

/* Without limits: formats have limits that hold for every engine. */
static const calm_engine any = {"any", "", "", {{0}}};

/* Families of schemes.def, as sets. */
#define FP8       (B(CALM_FAMILY_FP8) | B(CALM_FAMILY_FP8_TENSOR))
#define FP8_BLOCK B(CALM_FAMILY_FP8_BLOCK)
#define MXFP4     B(CALM_FAMILY_MXFP4)
#define NVFP4     B(CALM_FAMILY_NVFP4)

/* From 0.32 on vLLM refuses GPTQ's groups in activation order (gptq_utils.py).
 *
 * It pads dense shapes to Marlin's tiles when it prepares the weight.  Widths and zero points that Marlin lacks are run
 * by Humming, which pads too.  Experts that Marlin cannot run are run by Triton or Humming, only with scales per
 * group. */
static const calm_engine vllm = {
    "vllm", "compressed-tensors,gptq,awq", "NVIDIA GPUs",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_2_TO_8, B_2_TO_8), .rowwise = WIDTHS(B_2_TO_8, B_2_TO_8), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_ZEROS, INT8_PAIR, .act_zeros = true, .act_zero = {{16, 16}},
       .act_static = true, .fp8_static = true, .fp8_inputs = W4AFP8(128), .families = FP8 | FP8_BLOCK | MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .head_rows = 64},
      {.grouped = WIDTHS(B_2_TO_8, B_2_TO_8),
       .rowwise = WIDTHS(B_4_AND_8, B(4), MARLIN_EXPERT), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_ZEROS, INT8_PAIR, .fp8_inputs = W4AFP8(256), .families = MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .fp8_alike = true},
      CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = WIDTHS(B_4_AND_8, 0), .rowwise = WIDTHS(B_4_AND_8, 0), MARLIN_GROUPS, .fills = FILLS_IN | FILLS_OUT,
       .head_rows = 64, .head_whole = true},
      {.grouped = WIDTHS(B_4_AND_8, 0), .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS,
       .fills = FILLS_IN | FILLS_OUT},
      CALM_TIE_BLOCK},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4)), MARLIN_GROUPS,
       .fills = FILLS_OUT},
      {.grouped = WIDTHS(B(4), B(4)), MARLIN_GROUPS, .fills = FILLS_OUT},
      CALM_TIE_MODEL}},
};

/* vLLM's CPU build on x86 with AVX-512.
 *
 *   W4A16     CPUWNA16LinearKernel: in and out of 32, groups of an even size
 *   W8A8      CPUInt8ScaledMMLinearKernel, oneDNN: every shape, static and asymmetric activations
 *   W4A8      Dynamic4bitLinearKernel of PyTorch: every shape that the group divides
 *   FP8       PyTorch, one scale per row, quantized activations; no weight-only kernel, and none for one scale per
 * linear,
 *             to which the loader rounds parts of fused linears again by a GPU operation
 *
 * Kernels that need AMX (FP8 blocks, 4-bit and FP8 experts) are left out, because only AVX-512 is certain.  There is no
 * kernel for NVFP4 and MXFP4, or for widths other than 4 and 8. */
/* Zero points work in AWQ; GPTQ's loader does not accept them. */
#define CPU_WNA16 WIDTHS(B(4), B(4), {32, 32})
#define CPU_GPTQ  WIDTHS(B(4), 0, {32, 32})
static const calm_engine vllm_cpu = {
    "vllm-cpu", "compressed-tensors,gptq,awq", "x86 CPUs with AVX-512",
    {{"compressed-tensors",
      {.grouped = CPU_WNA16, .rowwise = CPU_WNA16, .group_multiple = 2, .pairs = B_4_AND_8, .acts = B(8),
       .pairs_group = B(4), .act_zeros = true, .act_static = true, .act_families = B(CALM_FAMILY_FP8), .head_rows = 64},
      .tie = CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = CPU_GPTQ, .rowwise = CPU_GPTQ, MARLIN_GROUPS, .head_rows = 64, .head_whole = true},
      .tie = CALM_TIE_BLOCK},
     {"awq", {.grouped = CPU_WNA16, .rowwise = CPU_WNA16, MARLIN_GROUPS}, .tie = CALM_TIE_MODEL}},
};

/* vLLM on AMD's CDNA 3 and 4; CDNA 2 and RDNA lack some of FP8.
 *
 *   4 bits    TritonW4A16LinearKernel: words along both sides; AWQ: awq_triton.py
 *   8 bits    Conch, which requirements/rocm.txt installs: blocks of 64 by 64 that it does not mask
 *   W8A8      TritonInt8ScaledMMLinearKernel: every shape, static and asymmetric activations
 *   FP8       torch._scaled_mm, sides of 16; blocks: Triton
 *   NVFP4, MXFP4   computed in bfloat16 from rounded activations; no weight-only kernel
 *
 * Experts run in Triton: only groups, of any size, zero points at 4 bits; MXFP4 needs Marlin, which is CUDA-only.
 * Triton has no kernel for 4-bit integers with 8-bit activations. */
#define ROCM_4     WIDTHS(B(4), B(4))
#define ROCM_GPTQ  WIDTHS(B(4), 0)
#define ROCM_8(z)  .eights = WIDTHS(B(8), z, {64, 64}), .eights_group = 128
static const calm_engine vllm_rocm = {
    "vllm-rocm", "compressed-tensors,gptq,awq", "AMD GPUs from MI300 on",
    {{"compressed-tensors",
      {.grouped = ROCM_4, .rowwise = ROCM_4, .groups = {32, 64, 128, 256}, ROCM_8(B(8)),
       .fills = FILLS_IN | FILLS_OUT, INT8_PAIR, .act_zeros = true, .act_static = true, .fp8_static = true,
       .fp8 = {16, 16}, .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .head_rows = 64},
      {.grouped = WIDTHS(B_4_AND_8, B(4)), .fills = FILLS_IN | FILLS_ZEROS, INT8_PAIR,
       .act_families = FP8 | FP8_BLOCK | NVFP4, .fp8_alike = true},
      CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = ROCM_GPTQ, .rowwise = ROCM_GPTQ, MARLIN_GROUPS, ROCM_8(0), .fills = FILLS_IN | FILLS_OUT,
       .head_rows = 64, .head_whole = true},
      {.grouped = WIDTHS(B_4_AND_8, 0), MARLIN_GROUPS, .fills = FILLS_IN | FILLS_OUT},
      CALM_TIE_BLOCK},
     {"awq",
      {.grouped = ROCM_4, .rowwise = ROCM_4, MARLIN_GROUPS, .fills = FILLS_OUT},
      {.grouped = ROCM_4, MARLIN_GROUPS, .fills = FILLS_OUT},
      CALM_TIE_MODEL}},
};

/* SGLang pads nothing.  Its Marlin has no kernel for 8 bits with zero points, and its experts read compressed-tensors'
 * zero points in AWQ's order.  AWQ falls back to kernels for other shapes, with groups.  W8A8 is CUTLASS only, and not
 * for experts.  It has no scheme for MXFP4, for weight-only FP8 experts, or for weight-only FP8 blocks. */
static const calm_engine sglang = {
    "sglang", "compressed-tensors,gptq,awq", "NVIDIA GPUs",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_4_AND_8, B(4), MARLIN),
       .rowwise = WIDTHS(B_4_AND_8, B(4), MARLIN), MARLIN_GROUPS, INT8_PAIR, .pair = {{16, 8}},
       .fp8_static = true, .families = FP8 | NVFP4, .act_families = FP8 | FP8_BLOCK | NVFP4, .head_rows = 64},
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT),
       .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS,
       .families = NVFP4, .act_families = FP8 | FP8_BLOCK | NVFP4, .fp8_alike = true},
      CALM_TIE_BLOCK},
     {"gptq",
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN), .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN),
       MARLIN_GROUPS, .orders = true, .head_rows = 64, .head_whole = true},
      {.grouped = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT),
       .rowwise = WIDTHS(B_4_AND_8, 0, MARLIN_EXPERT), MARLIN_GROUPS},
      CALM_TIE_BLOCK},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4), {128, 64}),
       MARLIN_GROUPS, .fills = FILLS_OUT},
      {.grouped = WIDTHS(B(4), B(4)), MARLIN_GROUPS, .fills = FILLS_OUT},
      CALM_TIE_MODEL}},
};

/* Blocks of 32, in NVFP4 of 64; 2 and 3 bits are written as Q4_0, which has no zero point. */
#define GGML_BLOCKS WIDTHS(B_STORED, B(4), {32, 0})
#define GGML                                                                                                           \
    .grouped = GGML_BLOCKS, .rowwise = GGML_BLOCKS, .group_multiple = 32, .families = CALM_GGUF_FAMILIES, .nvfp4 = 64

static const calm_engine llamacpp = {
    "llamacpp", "gguf", "every device", {{"gguf", {GGML}, {GGML}, CALM_TIE_PROJECTION}}};

#define AFFINE .grouped = WIDTHS(B_STORED, B_STORED), .groups = {32, 64, 128}

/* mlx-lm reads AWQ with one scheme for all linears, and does not stack its experts. */
static const calm_engine mlx = {
    "mlx", "mlx,awq", "every device",
    {{"mlx", {AFFINE}, {AFFINE}, CALM_TIE_PROJECTION},
     {"awq", {.grouped = WIDTHS(B(4), B(4)), .groups = {32, 64, 128}, .fills = FILLS_OUT},
      .tie = CALM_TIE_MODEL}},
};

/* compressed-tensors 0.18 to 0.20 does not load zero points, and reads all experts in one packed, symmetric scheme.
 * GPTQ and AWQ are GPTQModel's torch kernels, with one scheme for all; they replace linears, which experts are not. */
static const calm_engine transformers = {
    "transformers", "compressed-tensors,gptq,awq", "every device",
    {{"compressed-tensors",
      {.grouped = WIDTHS(B_STORED, 0), .rowwise = WIDTHS(B_STORED, 0), .pairs = B_4_AND_8, .acts = B_4_AND_8,
       .pairs_group = B_4_AND_8, .act_zeros = true, .act_static = true, .fp8_static = true,
       .fp8_inputs = {.bits = B_STORED}, .families = FP8 | FP8_BLOCK | MXFP4 | NVFP4,
       .act_families = FP8 | FP8_BLOCK | MXFP4 | NVFP4, .whole_parts = true},
      {.grouped = WIDTHS(B_STORED, 0), .rowwise = WIDTHS(B_STORED, 0)},
      CALM_TIE_EXPERTS},
     {"gptq",
      {.grouped = WIDTHS(B_STORED, B_STORED), .rowwise = WIDTHS(B_STORED, B_STORED),
       .groups = {16, 32, 64, 128, 256, 512, 1024}, .orders = true},
      .tie = CALM_TIE_MODEL},
     {"awq",
      {.grouped = WIDTHS(B(4), B(4)), .rowwise = WIDTHS(B(4), B(4)), .groups = {16, 32, 64, 128},
       .fills = FILLS_OUT},
      .tie = CALM_TIE_MODEL}},
};

/* `any` first: calm_engine_is_any compares with it. */
const calm_engine *const *calm_engine_table(size_t *n)
{
    static const calm_engine *const all[] = {&any, &vllm, &vllm_cpu, &vllm_rocm,
                                             &sglang, &llamacpp, &mlx,      &transformers};
    *n = sizeof all / sizeof *all;
    return all;
}
