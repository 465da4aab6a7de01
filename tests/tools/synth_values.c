/* Draws values of a synthetic checkpoint: Philox4x32-10 in batches, 16 bits per value, mapped by a table of
 * quantiles. */
#include "tests/tools/synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/rng_impl.h"
#include "ptq/base/simd.h"

#define BATCH 64              /* Philox blocks at a time: one cache line of counters after another */
#define BLOCK_VALUES 8        /* 16-bit halves of a block */
#define OUTLIER_STREAM 0x6f75746c69657273u    /* "outliers", the stream of no tensor */

float synth_factor(const char *factor, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = factor, *equals; at && (equals = strchr(at, '=')); at = strchr(equals, ',')) {
        at += *at == ',';
        const size_t suffix = (size_t)(equals - at);
        if (length >= suffix && strncmp(name + length - suffix, at, suffix) == 0)
            return strtof(equals + 1, NULL);
    }
    return 1;
}

uint64_t synth_stream(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

bool synth_is_outlier(uint64_t seed, size_t channel)
{
    return calm_rng_u64(seed, OUTLIER_STREAM, channel) % 64 == 0;
}

/* ---- quantiles ---- */

/* Returns z with P(N < z) = p for p <= 1/2: Newton steps on the logarithm of the tail, which is concave, so they
 * converge from the root of its leading term, until rounding hides the step. */
static double quantile(double p)
{
    double z = p < 0.5 ? -sqrt(-2 * log(2 * p)) : 0;
    for (int i = 0; i < 60; i++) {
        double tail = 0.5 * erfc(-z * 0.70710678118654752440), density = 0.39894228040143267794 * exp(-0.5 * z * z);
        double step = tail / density * log(tail / p);
        z -= step;
        if (fabs(step) < 1e-14)
            break;
    }
    return z;
}

calm_status synth_values_init(calm_ctx *ctx, synth_values *values, const synth_tensor *tensor, uint64_t seed)
{
    static float normal[SYNTH_LEVELS];    /* only one thread prepares it */
    float *scaled;
    calm_arena_mark mark = calm_arena_save(ctx->scratch);
    calm_status status;
    values->tensor = tensor;
    values->seed = seed;
    values->stream = synth_stream(tensor->tensor.name);
    if (tensor->tensor.dtype == CALM_I64)
        return CALM_OK;
    if (normal[0] == 0)
        for (size_t i = 0; i < SYNTH_LEVELS / 2; i++) {
            normal[i] = (float)quantile(((double)i + 0.5) / SYNTH_LEVELS);
            normal[SYNTH_LEVELS - 1 - i] = -normal[i];
        }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scaled, SYNTH_LEVELS));
    for (size_t i = 0; i < SYNTH_LEVELS; i++)
        scaled[i] = tensor->mean + tensor->spread * normal[i];
    status = calm_from_f32(ctx, tensor->tensor.dtype, scaled, SYNTH_LEVELS, &values->levels);
    calm_arena_rewind(ctx->scratch, mark);
    return status;
}

/* ---- drawing ---- */

/* Computes BATCH blocks from counter `first`: out[4 * b + w] is word w of block b, equal to calm_philox4x32's. */
CALM_VECTORIZE
static void draw_batch(uint64_t seed, uint64_t stream, uint64_t first, uint32_t out[4 * BATCH])
{
    uint32_t c0[BATCH], c1[BATCH], c2[BATCH], c3[BATCH], k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (size_t b = 0; b < BATCH; b++) {
        c0[b] = (uint32_t)(first + b);
        c1[b] = (uint32_t)((first + b) >> 32);
        c2[b] = (uint32_t)stream;
        c3[b] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (size_t b = 0; b < BATCH; b++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[b], p1 = (uint64_t)0xCD9E8D57u * c2[b];
            c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0;
            c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
            c1[b] = (uint32_t)p1;
            c3[b] = (uint32_t)p0;
        }
    for (size_t b = 0; b < BATCH; b++) {
        out[4 * b] = c0[b];
        out[4 * b + 1] = c1[b];
        out[4 * b + 2] = c2[b];
        out[4 * b + 3] = c3[b];
    }
}

static void look_up_half(const synth_values *values, const uint32_t *words, size_t n, uint16_t *out)
{
    for (size_t i = 0; i + 1 < n; i += 2) {
        out[i] = values->levels.half[words[i / 2] & 0xffff];
        out[i + 1] = values->levels.half[words[i / 2] >> 16];
    }
    if (n % 2)
        out[n - 1] = values->levels.half[words[n / 2] & 0xffff];
}

static void look_up_word(const synth_values *values, const uint32_t *words, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = values->levels.word[words[i / 2] >> (i % 2 ? 16 : 0) & 0xffff];
}

/* Adds the outliers of a norm to its elements first .. first + n - 1. */
static calm_status raise_outliers(calm_ctx *ctx, const synth_values *values, size_t first, size_t n, void *out)
{
    const calm_dtype dtype = values->tensor->tensor.dtype;
    for (size_t i = 0; i < n; i++) {
        uint8_t *at = (uint8_t *)out + i * calm_dtype_bytes(dtype);
        float value;
        if (!synth_is_outlier(values->seed, first + i))
            continue;
        CALM_TRY(calm_to_f32(ctx, dtype, at, 1, &value));
        value += SYNTH_OUTLIER;
        CALM_TRY(calm_from_f32(ctx, dtype, &value, 1, at));
    }
    return CALM_OK;
}

calm_status synth_values_fill(calm_ctx *ctx, const synth_values *values, size_t first, size_t n, void *out)
{
    const calm_dtype dtype = values->tensor->tensor.dtype;
    if (dtype == CALM_I64) {
        for (size_t i = 0; i < n; i++)
            ((int64_t *)out)[i] = (int64_t)(first + i);
        return CALM_OK;
    }
    for (size_t done = 0; done < n; done += BATCH * BLOCK_VALUES) {
        const size_t part = n - done < BATCH * BLOCK_VALUES ? n - done : BATCH * BLOCK_VALUES;
        uint32_t words[4 * BATCH];
        draw_batch(values->seed, values->stream, (first + done) / BLOCK_VALUES, words);
        if (calm_dtype_bytes(dtype) == 2)
            look_up_half(values, words, part, (uint16_t *)out + done);
        else
            look_up_word(values, words, part, (uint32_t *)out + done);
    }
    return values->tensor->outliers ? raise_outliers(ctx, values, first, n, out) : CALM_OK;
}
