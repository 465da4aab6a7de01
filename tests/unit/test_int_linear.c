/* Linears with integer products against the simulation in float, and the same bytes for every instruction set. */
#include "ptq/weights/int_linear.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "ptq/base/rng.h"
#include "ptq/layers/block.h"
#include "ptq/quant/grid.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/int_sets.h"

enum { OUT = 37, IN = 200, N = 9, MOST = OUT * IN };

/* One linear as floats, and from its codes if possible. */
typedef struct pair {
    calm_weight floats, ints;
    calm_int_source source;
    float x[N * IN], bias[OUT], in_scale[IN];
    float w[MOST], memory[MOST], scales[MOST];
    uint8_t codes[MOST], zeros[MOST];
} pair;

static double drawn(uint64_t stream, size_t i)
{
    return calm_rng_uniform(21, stream, i);
}

/* Makes a pair; `form` has the settings of the input: act_bits and those after it. */
static pair *new_pair(int bits, size_t group, const calm_weight *form)
{
    pair *p;
    const size_t groups = group ? (IN + group - 1) / group : 1;
    ck_ok(CALM_NEW(ctx, ctx->out, p, 1));
    p->source = (calm_int_source){OUT, IN, bits, group, p->codes, p->scales, p->zeros, 0};
    for (size_t i = 0; i < OUT * groups; i++) {
        p->scales[i] = calm_dtype_round(CALM_BF16, (float)(0.001 + 0.01 * drawn(1, i)));
        p->zeros[i] = (uint8_t)((1 << (bits - 1)) + (group ? (int)(drawn(2, i) * 3) : 0));
    }
    for (size_t i = 0; i < MOST; i++) {
        const size_t cell = i / IN * groups + (group ? i % IN / group : 0);
        p->codes[i] = (uint8_t)(drawn(3, i) * (1 << bits));
        p->w[i] = (float)(p->codes[i] - p->zeros[cell]) * p->scales[cell];
    }
    for (size_t i = 0; i < N * IN; i++)
        p->x[i] = (float)calm_rng_normal(4, 0, i) * (i / IN == 3 ? 100 : 1);
    for (size_t i = 0; i < OUT; i++)
        p->bias[i] = (float)drawn(5, i) - 0.5f;
    for (size_t i = 0; i < IN; i++)
        p->in_scale[i] = 0.5f + (float)drawn(6, i);
    p->floats = *form;
    p->floats.name = "w";
    p->floats.out = OUT;
    p->floats.in = IN;
    p->floats.w = p->w;
    p->ints = p->floats;
    p->ints.w = p->memory;
    ctx->ints = true;
    calm_int_linear_take(ctx, &p->source, p->memory, &p->ints);
    ctx->ints = false;
    return p;
}

/* Returns the bound of the header for output o of token t, with S from the simulation's input. */
static double bound(const pair *p, const float *prepared, size_t t, size_t o)
{
    double sum = p->floats.bias ? fabs((double)p->bias[o]) : 0;
    for (size_t i = 0; i < IN; i++)
        sum += fabs((double)prepared[t * IN + i] * (double)p->w[o * IN + i]);
    const double roundings = (double)p->ints.ints->n_groups + 3 + IN + 4;
    return 1.001 * roundings * 0x1p-24 * sum;
}

static void check(const pair *p)
{
    static float prepared[N * IN], y[N * OUT], want[N * OUT], again[N * OUT];
    const calm_weight *form = &p->floats;
    ck_assert(p->ints.ints != NULL);
    for (size_t i = 0; i < N * IN; i++)
        prepared[i] = form->in_scale ? p->x[i] / form->in_scale[i % IN] : p->x[i];
    calm_actquant_rows(prepared, N, IN, form->act_bits, form->act_asymmetric, form->act_rule, form->act_global,
                       prepared);
    ctx->n_threads = 1;
    ck_ok(calm_weight_apply(ctx, form, p->x, N, want));
    ck_ok(calm_weight_apply(ctx, &p->ints, p->x, N, y));
    for (size_t i = 0; i < N * OUT; i++)
        ck_near(y[i], (double)want[i], bound(p, prepared, i / OUT, i % OUT));
    for (int set = 0; set < CALM_N_INT_SETS; set++)
        for (ctx->n_threads = has_int_set(set) ? 1 : 5; ctx->n_threads <= 4; ctx->n_threads += 3) {
            ck_assert_int_eq(setenv(CALM_INT_VARIABLE, calm_int_set_names[set], 1), 0);
            ck_ok(calm_weight_apply_tiled(ctx, &p->ints, p->x, N, again));
            ck_assert(memcmp(y, again, sizeof y) == 0);
        }
    ctx->n_threads = 1;
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
}

/* All widths, groups (with a short last one), rules and parts of a linear. */
TEST(bounds)
{
    static const size_t groups[] = {0, 32, 64, 128};
    calm_linalg_setup();
    for (int bits = 2; bits <= 8; bits++)
        for (size_t g = 0; g < 4; g++)
            for (int form = 0; form < 4; form++) {
                const calm_weight how = {
                    .act_bits = form == 1 ? 4 : 8, .act_asymmetric = form == 1, .act_global = form == 3 ? 0.03f : 0,
                    .act_rule = form == 2   ? CALM_ACT_RULE_VLLM
                                : form == 3 ? CALM_ACT_RULE_STATIC
                                            : CALM_ACT_RULE_COMPRESSED_TENSORS};
                pair *p = new_pair(bits, groups[g], &how);
                p->source.bits = bits > 4 ? 8 : 4;
                ctx->ints = true;
                calm_int_linear_take(ctx, &p->source, p->memory, &p->ints);
                ctx->ints = false;
                if (form % 2)
                    p->floats.bias = p->ints.bias = p->bias;
                if (form / 2)
                    p->floats.in_scale = p->ints.in_scale = p->in_scale;
                check(p);
            }
}
END_OF_TEST

/* Several linears of one input, with integer products and float ones, equal and different groups, scales and
 * quantization of inputs: the bytes of each by itself, in the memory of one. */
TEST(several)
{
    enum { MANY = 8 };
    static const int bits[MANY] = {8, 8, 4, 4, 8, 4, 8, 4};
    static const size_t groups[MANY] = {0, 0, 64, 32, 32, 32, 0, 0};
    static float y[MANY][N * OUT], alone[N * OUT];
    const calm_weight *weights[MANY];
    float *out[MANY];
    calm_linalg_setup();
    for (size_t i = 0; i < MANY; i++) {
        pair *p = new_pair(bits[i], groups[i], &(calm_weight){.act_bits = i == 5 ? 4 : 8});
        p->floats.in_scale = p->ints.in_scale = i == 4 || i == 6 ? p->in_scale : NULL;
        p->in_scale[3] += i == 6 ? 1 : 0;    /* arrays at other addresses, equal or not */
        weights[i] = i == 7 ? &p->floats : &p->ints;
        out[i] = y[i];
    }
    const pair *first = (const pair *)(const void *)((const char *)weights[0] - offsetof(pair, ints));
    for (ctx->n_threads = 1; ctx->n_threads <= 3; ctx->n_threads += 2) {
        memset(y, 0, sizeof y);
        ck_ok(calm_weight_apply_each(ctx, calm_weight_apply, MANY, weights, first->x, N, out));
        for (size_t i = 0; i < MANY; i++) {
            ck_ok(calm_weight_apply(ctx, weights[i], first->x, N, alone));
            ck_assert_msg(memcmp(y[i], alone, sizeof alone) == 0, "linear %zu, %d threads", i, ctx->n_threads);
        }
    }
    ctx->n_threads = 1;
    ck_memory(calm_weight_apply_each(ctx, calm_weight_apply, 4, weights, first->x, N, out), 0,
              calm_weight_apply_scratch_bytes(IN, N));
}
END_OF_TEST

/* Tokens that are not finite give NaN everywhere, as in float, and do not affect others; a token of zeros gives the
 * bias, whatever its scale. */
TEST(odd_tokens)
{
    static float y[N * OUT], alone[N * OUT];
    calm_linalg_setup();
    pair *p = new_pair(8, 0, &(calm_weight){.act_bits = 8});
    p->ints.bias = p->bias;
    ck_ok(calm_weight_apply(ctx, &p->ints, p->x, N, alone));
    p->x[2 * IN + 199] = NAN;
    p->x[4 * IN] = INFINITY;
    memset(p->x + 5 * IN, 0, IN * sizeof *p->x);
    p->x[6 * IN] = FLT_MAX;
    ck_ok(calm_weight_apply(ctx, &p->ints, p->x, N, y));
    for (size_t i = 0; i < N * OUT; i++) {
        const size_t t = i / OUT;
        if (t == 2 || t == 4)
            ck_assert_float_nan(y[i]);
        else if (t == 5)
            ck_assert(y[i] == p->bias[i % OUT]);
        else if (t != 6)
            ck_assert(y[i] == alone[i]);
    }
}
END_OF_TEST

/* Left to float products: if not asked for; float inputs or inputs of other widths; few columns; groups that cannot
 * be packed; weights whose panels need more memory than their floats. */
TEST(left_alone)
{
    static const calm_weight forms[] = {{.act_bits = 0},
                                        {.act_bits = 8, .act_rule = CALM_ACT_RULE_FP8},
                                        {.act_bits = 8, .act_rule = CALM_ACT_RULE_VLLM, .act_asymmetric = true}};
    for (size_t i = 0; i < 3; i++)
        ck_assert(new_pair(8, 0, &forms[i])->ints.ints == NULL);
    ck_assert(new_pair(8, 20, &(calm_weight){.act_bits = 8})->ints.ints == NULL);
    pair *p = new_pair(8, 0, &(calm_weight){.act_bits = 8});
    ck_assert(p->ints.ints != NULL);
    calm_int_linear_take(ctx, &p->source, p->memory, &p->ints);
    ck_assert(p->ints.ints == NULL);
    ctx->ints = true;
    p->source.in = 31;
    calm_int_linear_take(ctx, &p->source, p->memory, &p->ints);
    ck_assert(p->ints.ints == NULL);
    p->source.in = IN;
    p->source.out = 1;
    calm_int_linear_take(ctx, &p->source, p->memory, &p->ints);
    ck_assert(p->ints.ints == NULL);
    ctx->ints = false;
}
END_OF_TEST

/* It holds what the simulation holds; an instruction set that the CPU or calm lacks is an error with its name. */
TEST(memory_and_errors)
{
    static float y[N * OUT];
    pair *p = new_pair(4, 32, &(calm_weight){.act_bits = 8});
    ck_memory(calm_weight_apply(ctx, &p->ints, p->x, N, y), 0, calm_weight_apply_scratch_bytes(IN, N));
    ck_memory(calm_weight_apply(ctx, &p->ints, p->x, 1, y), 0, calm_weight_apply_scratch_bytes(IN, 1));
    ck_assert_int_eq(setenv(CALM_INT_VARIABLE, "mmx", 1), 0);
    ck_fails(calm_weight_apply(ctx, &p->ints, p->x, N, y), CALM_EARG, "CALM_SIMD=mmx");
    ck_assert_int_eq(unsetenv(CALM_INT_VARIABLE), 0);
}
END_OF_TEST

/* An integer linear of 8 bits with random codes, the input as in `form`. */
static calm_weight new_linear(uint64_t stream, size_t out, size_t in, const calm_weight *form)
{
    uint8_t *codes, *zeros;
    float *scales, *memory;
    calm_weight w = *form;
    ck_ok(CALM_NEW(ctx, ctx->out, codes, out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, zeros, out));
    ck_ok(CALM_NEW(ctx, ctx->out, scales, out));
    ck_ok(CALM_NEW(ctx, ctx->out, memory, out * in));
    for (size_t i = 0; i < out * in; i++)
        codes[i] = (uint8_t)(drawn(stream, i) * 256);
    for (size_t i = 0; i < out; i++) {
        zeros[i] = 128;
        scales[i] = 0.01f;
    }
    w.name = "w";
    w.out = out;
    w.in = in;
    w.w = memory;
    ctx->ints = true;
    calm_int_linear_take(ctx, &(calm_int_source){out, in, 8, 0, codes, scales, zeros, 0}, memory, &w);
    ctx->ints = false;
    ck_assert(w.ints != NULL);
    return w;
}

/* An MLP of integer linears runs in parts of its rows: each row has the bytes that it has alone, and the memory
 * between the products does not grow with the rows. */
TEST(mlp_in_parts)
{
    enum { WIDTH = 64, INNER = 256, ROWS = 1700 };
    static float h[ROWS * WIDTH], y[ROWS * WIDTH], alone[WIDTH];
    static const calm_weight form = {.act_bits = 8};
    const calm_config config = {.hidden = WIDTH, .activation = CALM_ACTIVATION_SILU};
    const calm_observation seen = {.window = 0};
    calm_linalg_setup();
    const calm_weight w[CALM_N_ROLES] = {[CALM_ROLE_GATE] = new_linear(31, INNER, WIDTH, &form),
                                         [CALM_ROLE_UP] = new_linear(32, INNER, WIDTH, &form),
                                         [CALM_ROLE_DOWN] = new_linear(33, WIDTH, INNER, &form)};
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        h[i] = (float)calm_rng_normal(34, 0, i);
    ctx->n_threads = 1;
    size_t most[2];
    for (size_t i = 0; i < 2; i++) {    /* more than half of the rows already take two parts */
        ctx->scratch->most_bytes = ctx->scratch->used_bytes;
        ck_ok(calm_mlp_run(ctx, &config, w, h, i ? ROWS : ROWS / 2 + 1, y, NULL, &seen));
        most[i] = ctx->scratch->most_bytes;
    }
    ck_assert_uint_eq(most[0], most[1]);
    for (size_t t = 0; t < ROWS; t += t % 128 ? 128 : 127) {
        ck_ok(calm_mlp_run(ctx, &config, w, h + t * WIDTH, 1, alone, NULL, &seen));
        ck_assert(memcmp(alone, y + t * WIDTH, sizeof alone) == 0);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("int_linear", (const TTest *[]){bounds, several, odd_tokens, left_alone, memory_and_errors,
                                                     mlp_in_parts, NULL});
}
