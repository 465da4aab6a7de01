/* Rotary position embedding. */
#include "ptq/layers/rope.h"

#include <math.h>

#include "ptq/base/simd.h"

#define PI 3.14159265358979323846

/* ---- frequencies ----
 *
 * In float32, in the order of operations of the code that the models were trained with: after some thousand positions
 * an error of one unit in the last place of a frequency visibly changes the rotation. */

/* Returns the number of channels by which exponents are divided. */
static size_t counted(const calm_rope_config *rope)
{
    return rope->rotary - rope->odd;
}

/* Returns the frequency of a pair with llama3's scaling, which stretches long wavelengths. */
static float llama3(const calm_rope_config *rope, float f)
{
    /* Single precision and this order of operations are those of modeling_rope_utils.py; a simpler formula would change
     * last places. */
    const float wavelength = 1.0f / f * (float)(2 * PI), original = (float)rope->original, factor = (float)rope->factor;
    const float low = (float)rope->low_freq, width = (float)(rope->high_freq - rope->low_freq);
    if (wavelength > (float)(rope->original / rope->low_freq))
        return f / factor;
    if (wavelength < (float)(rope->original / rope->high_freq))
        return f;
    /* Between the two wavelengths frequencies are interpolated; in Llama 4 the two are equal. */
    const float s = width > 0 ? (1.0f / wavelength * original - low) / width : 1;
    return (1 - s) * f / factor + s * f;
}

/* Returns the (fractional) pair of channels that makes `turns` full rotations within the original length. */
static double yarn_bound(const calm_rope_config *rope, double turns)
{
    return (double)rope->rotary * log(rope->original / (turns * 2 * PI)) / (2 * log(rope->theta));
}

/* Returns the YaRN frequency of pair c, whose plain frequency is 1 / power. */
static float yarn(const calm_rope_config *rope, float power, size_t c)
{
    double lo = yarn_bound(rope, rope->beta_fast), hi = yarn_bound(rope, rope->beta_slow);
    /* Only gpt-oss switches the rounding to whole pairs off. */
    if (rope->truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = fmax(lo, 0);
    hi = fmin(hi, (double)rope->rotary - 1);
    if (lo == hi)
        /* The ramp below divides by hi - lo. */
        hi += 0.001;
    /* 0 for fast pairs, which extrapolate, 1 for slow ones, which are stretched. */
    const float ramp = fminf(fmaxf(((float)c - (float)lo) / (float)(hi - lo), 0), 1), kept = 1 - ramp;
    return 1.0f / ((float)rope->factor * power) * (1 - kept) + 1.0f / power * kept;
}

/* Returns the frequency of pair c in a window of the given length; `beyond`: it exceeds the length of the first
 * training. */
static float frequency(const calm_rope_config *rope, size_t c, bool beyond, size_t length, size_t max_positions)
{
    const double r = (double)counted(rope);
    /* Frequencies are those of a fully rotated head; the last pairs are not rotated. */
    if (rope->kind == CALM_ROPE_PROPORTIONAL && (double)c >= floor(rope->share * r / 2))
        return 0;
    float theta = (float)rope->theta;
    /* NTK-aware scaling: theta grows with the window, so that the slowest pair stays within its trained range. */
    if (rope->kind == CALM_ROPE_DYNAMIC && beyond) {
        const float stretch = (float)rope->factor * (float)length / (float)max_positions - (float)(rope->factor - 1);
        theta *= (float)pow((double)stretch, r / (r - 2));
    }
    const float exponent = (float)(2 * c) / (float)counted(rope), power = (float)pow((double)theta, (double)exponent);
    if (rope->kind == CALM_ROPE_LINEAR || rope->kind == CALM_ROPE_PROPORTIONAL)
        return 1.0f / power / (float)rope->factor;
    if (rope->kind == CALM_ROPE_LLAMA3)
        return llama3(rope, 1.0f / power);
    if (rope->kind == CALM_ROPE_YARN)
        return yarn(rope, power, c);
    if (rope->kind == CALM_ROPE_LONGROPE)
        return 1.0f / ((float)(beyond ? rope->long_factor[c] : rope->short_factor[c]) * power);
    return 1.0f / power;
}

/* ---- tables ---- */

static size_t table_bytes(const calm_rope_config *rope, size_t n_positions)
{
    return 2 * CALM_BYTES(float, n_positions * (rope->rotary / 2));
}

/* Is there a second table, for windows beyond the original length? */
static bool has_beyond(const calm_rope_config *rope, size_t n_positions)
{
    return rope->kind == CALM_ROPE_LONGROPE && (double)n_positions > rope->original;
}

/* Does the window's length define its own table? */
static bool is_dynamic(const calm_rope_config *rope, size_t length, size_t max_positions)
{
    return rope->kind == CALM_ROPE_DYNAMIC && length > max_positions;
}

/* Computes cos and sin of all positions, both times m. */
static calm_status fill_table(calm_ctx *ctx, calm_arena *arena, const calm_rope_config *rope, size_t n_positions,
                              bool beyond, size_t length, size_t max_positions, calm_rope_table *out)
{
    const double m = rope->kind == CALM_ROPE_LONGROPE && beyond ? rope->m_long : rope->m;
    const size_t half = rope->rotary / 2;
    size_t n;
    float *cosines, *sines;
    /* Positions come from token files, which are untrusted. */
    if (!calm_size_mul(&n, n_positions, half))
        return calm_fail(ctx, CALM_EARG, "%zu positions are too many", n_positions);
    CALM_TRY(CALM_NEW_RAW(ctx, arena, cosines, n));
    CALM_TRY(CALM_NEW_RAW(ctx, arena, sines, n));
    /* Pairs in the outer loop: a frequency costs a pow and serves all positions. */
    for (size_t c = 0; c < half; c++) {
        const float f = frequency(rope, c, beyond, length, max_positions);
        for (size_t t = 0; t < n_positions; t++) {
            /* A float32 angle, like in transformers: at position 30000 its error is 0.002, with which the model was
             * trained. */
            const float angle = (float)t * f;
            cosines[t * half + c] = (float)(cos((double)angle) * m);
            sines[t * half + c] = (float)(sin((double)angle) * m);
        }
    }
    *out = (calm_rope_table){n_positions, half, cosines, sines, rope->neighbours};
    return CALM_OK;
}

calm_status calm_rope_init(calm_ctx *ctx, const calm_config *config, size_t n_positions, calm_rope *out)
{
    *out = (calm_rope){.n_positions = n_positions};
    /* A family without a second embedding has rotary 0 in it. */
    for (calm_rope_set set = 0; set < CALM_N_ROPES; set++) {
        const calm_rope_config *rope = &config->rope[set];
        if (rope->rotary == 0)
            continue;
        CALM_TRY(fill_table(ctx, ctx->out, rope, n_positions, false, 0, config->max_positions, &out->table[set][0]));
        if (has_beyond(rope, n_positions))
            CALM_TRY(fill_table(ctx, ctx->out, rope, n_positions, true, 0, config->max_positions, &out->table[set][1]));
    }
    return CALM_OK;
}

bool calm_rope_differs(const calm_config *config, size_t before, size_t length)
{
    bool differs = false;
    for (calm_rope_set set = 0; set < CALM_N_ROPES; set++) {
        const calm_rope_config *rope = &config->rope[set];
        differs |= rope->rotary && (has_beyond(rope, before) != has_beyond(rope, length) ||
                                    (before != length && is_dynamic(rope, length, config->max_positions)));
    }
    return differs;
}

size_t calm_rope_bytes(const calm_config *config, size_t n_positions)
{
    size_t bytes = 0;
    for (calm_rope_set set = 0; set < CALM_N_ROPES; set++) {
        const calm_rope_config *rope = &config->rope[set];
        if (rope->rotary)
            bytes += (has_beyond(rope, n_positions) ? 2 : 1) * table_bytes(rope, n_positions);
    }
    return bytes;
}

size_t calm_rope_scratch_bytes(const calm_config *config, size_t length)
{
    /* Only windows beyond the trained length compute a table; all others read the shared ones. */
    size_t most = 0;
    for (calm_rope_set set = 0; set < CALM_N_ROPES; set++)
        if (is_dynamic(&config->rope[set], length, config->max_positions))
            most = calm_size_max(most, table_bytes(&config->rope[set], length));
    return most;
}

calm_status calm_rope_find(calm_ctx *ctx, const calm_rope *rope, const calm_config *config, size_t block, size_t length,
                           calm_rope_table *out)
{
    const calm_rope_set set = config->local_rope[block] ? CALM_ROPE_LOCAL : CALM_ROPE_GLOBAL;
    const calm_rope_config *kind = &config->rope[set];
    if (length > rope->n_positions)
        return calm_fail(ctx, CALM_EARG, "a window of %zu positions, rotary tables for %zu", length, rope->n_positions);
    /* longrope uses the long factors for the whole window once it exceeds the original length. */
    *out = rope->table[set][has_beyond(kind, length)];
    if (is_dynamic(kind, length, config->max_positions))
        return fill_table(ctx, ctx->scratch, kind, length, true, length, config->max_positions, out);
    return CALM_OK;
}

/* Rotates the pairs (a, b) [half] of one head by the angles of its position, or with sign -1 back. */
CALM_VECTORIZE
static void rotate_head(size_t half, const float *restrict cosines, const float *restrict sines, float sign,
                        float *restrict a, float *restrict b)
{
    /* restrict tells the compiler that tables and rows do not overlap, so that it vectorizes the loop. */
    for (size_t c = 0; c < half; c++) {
        const float u = a[c], v = b[c], sine = sign * sines[c];
        a[c] = u * cosines[c] - v * sine;
        b[c] = v * cosines[c] + u * sine;
    }
}

/* Rotates pairs of neighbours, x [2 half]. */
static void rotate_neighbours(size_t half, const float *cosines, const float *sines, float sign, float *x)
{
    /* Not vectorized, since few families have this order. */
    for (size_t c = 0; c < half; c++) {
        const float u = x[2 * c], v = x[2 * c + 1], sine = sign * sines[c];
        x[2 * c] = u * cosines[c] - v * sine;
        x[2 * c + 1] = v * cosines[c] + u * sine;
    }
}

static void rotate(const calm_rope_table *table, float sign, float *x, size_t stride, size_t n_tokens, size_t n_heads,
                   size_t head_dim, const uint32_t *positions)
{
    const size_t half = table->half;
    for (size_t t = 0; t < n_tokens; t++) {
        const size_t position = positions ? positions[t] : t;
        const float *cosines = table->cos + position * half, *sines = table->sin + position * half;
        for (size_t head = 0; head < n_heads; head++) {
            /* Channel c is paired with c + half, not with its neighbour, as in most Hugging Face checkpoints (GGUF
             * files permute rows). */
            float *a = x + t * stride + head * head_dim;
            if (table->neighbours)
                rotate_neighbours(half, cosines, sines, sign, a);
            else
                rotate_head(half, cosines, sines, sign, a, a + half);
        }
    }
}

void calm_rope_rotate(const calm_rope_table *table, float *x, size_t stride, size_t n_tokens, size_t n_heads,
                      size_t head_dim, const uint32_t *positions)
{
    rotate(table, 1, x, stride, n_tokens, n_heads, head_dim, positions);
}

void calm_rope_rotate_back(const calm_rope_table *table, float *dx, size_t stride, size_t n_tokens, size_t n_heads,
                           size_t head_dim, const uint32_t *positions)
{
    rotate(table, -1, dx, stride, n_tokens, n_heads, head_dim, positions);
}
