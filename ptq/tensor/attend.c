/* Attention in whole numbers: codes, dispatch, blocks of queries. */
#include "ptq/tensor/attend.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/attend_kernel.h"

/* Bits of a float without its sign, which have the order of its magnitude, NaN above all. */
#define MAGNITUDE 0x7fffffffu
/* 1.5 2^23, to which a number is added that becomes whole in its last bits. */
#define MAGIC      12582912.0f
#define MAGIC_BITS 0x4B400000
/* Below it a row is all zeros: the inverse of its scale would not be finite. */
#define LEAST 1e-30f

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

/* ---- memory ---- */

static int limit_of(size_t d)
{
    const double limit = floor(sqrt((double)INT32_MAX / (double)d));
    return limit < INT16_MAX ? (int)limit : INT16_MAX;
}

/* The next `bytes` of memory, from an address that 64 divides; *at counts them. */
static void *take(char *memory, size_t *at, size_t bytes)
{
    char *const here = memory ? memory + *at : NULL;
    *at += round_up(bytes, 64);
    return here;
}

/* Sizes and places; memory NULL: the former alone.  Returns the bytes of all. */
static size_t place(size_t n, size_t d, char *memory, calm_attend_keys *out)
{
    size_t at = 0;
    *out = (calm_attend_keys){.n = n, .d = d, .n_padded = round_up(n, CALM_ATTEND_KEYS), .k_width = round_up(d, 2),
                              .v_width = round_up(d, 32), .limit = limit_of(d)};
    const size_t padded = out->n_padded;
    out->k = take(memory, &at, padded * out->k_width * sizeof *out->k);
    out->v = take(memory, &at, padded * out->v_width * sizeof *out->v);
    out->k_scale = take(memory, &at, padded * sizeof *out->k_scale);
    out->v_scale = take(memory, &at, padded / CALM_ATTEND_KEYS * out->v_width * sizeof *out->v_scale);
    out->q = take(memory, &at, CALM_ATTEND_ROWS * out->k_width * sizeof *out->q);
    out->p = take(memory, &at, CALM_ATTEND_ROWS * padded * sizeof *out->p);
    out->z = take(memory, &at, CALM_ATTEND_ROWS * padded * sizeof *out->z);
    out->context = take(memory, &at, CALM_ATTEND_ROWS * out->v_width * sizeof *out->context);
    return at;
}

size_t calm_attend_bytes(size_t n, size_t d)
{
    calm_attend_keys keys;
    return place(n, d, NULL, &keys);
}

/* ---- codes ---- */

static float magnitude(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The inverse of the scale of numbers whose largest has these bits, for codes up to `limit`; 0 where all are 0. */
static float inverse_of(uint32_t most, int limit, float *scale)
{
    const float x = magnitude(most);
    *scale = x < LEAST ? 0 : x / (float)limit;
    return x < LEAST ? 0 : (float)limit / x;
}

static bool is_finite(uint32_t most)
{
    return magnitude(most) <= CALM_ATTEND_MOST;
}

/* most[c] = the larger of it and of the magnitude of x[c]. */
CALM_VECTORIZE static void raise(size_t n, const float *x, uint32_t *most)
{
    for (size_t c = 0; c < n; c++) {
        uint32_t bits;
        memcpy(&bits, &x[c], sizeof bits);
        bits &= MAGNITUDE;
        most[c] = bits > most[c] ? bits : most[c];
    }
}

CALM_VECTORIZE static uint32_t largest(size_t n, const float *x)
{
    uint32_t most = 0;
    for (size_t c = 0; c < n; c++) {
        uint32_t bits;
        memcpy(&bits, &x[c], sizeof bits);
        bits &= MAGNITUDE;
        most = bits > most ? bits : most;
    }
    return most;
}

static inline int16_t code_of(float x)
{
    const float sum = x + MAGIC;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return (int16_t)(bits - MAGIC_BITS);
}

CALM_VECTORIZE static void encode(size_t n, const float *x, float inverse, int16_t *codes)
{
    for (size_t c = 0; c < n; c++)
        codes[c] = code_of(x[c] * inverse);
}

/* Codes [width] of a row [d], with zeros behind; false: it is not finite. */
static bool encode_row(size_t d, const float *x, int limit, size_t width, int16_t *codes, float *scale)
{
    const uint32_t most = largest(d, x);
    if (!is_finite(most))
        return false;
    encode(d, x, inverse_of(most, limit, scale), codes);
    memset(codes + d, 0, (width - d) * sizeof *codes);
    return true;
}

/* Keys j .. j + 15 into their panel. */
static void pack_keys(calm_attend_keys *keys, const float *k, size_t stride, size_t j)
{
    const size_t words = keys->k_width / 2;
    int16_t *const panel = keys->k + j * keys->k_width, *const row = keys->q;
    for (size_t l = 0; l < 16; l++) {
        memset(row, 0, keys->k_width * sizeof *row);
        keys->k_scale[j + l] = 0;
        if (j + l < keys->n && !encode_row(keys->d, k + (j + l) * stride, keys->limit, keys->k_width, row,
                                           &keys->k_scale[j + l]))
            keys->finite = false;
        for (size_t i = 0; i < words; i++)
            memcpy(panel + 32 * i + 2 * l, row + 2 * i, 2 * sizeof *row);
    }
}

/* 16 channels of two keys side by side. */
CALM_VECTORIZE static void interleave(const float *x, const float *y, const float *inverse, int16_t *to)
{
    for (size_t l = 0; l < 16; l++) {
        to[2 * l] = code_of(x[l] * inverse[l]);
        to[2 * l + 1] = code_of(y[l] * inverse[l]);
    }
}

/* Values of keys j .. j + 63.  The room of a block of queries holds what is needed meanwhile. */
static void pack_values(calm_attend_keys *keys, const float *v, size_t stride, size_t j)
{
    const size_t width = keys->v_width, n = calm_size_min(keys->n - j, CALM_ATTEND_KEYS), half = CALM_ATTEND_KEYS / 2;
    float *const scale = keys->v_scale + j / CALM_ATTEND_KEYS * width, *const pair = keys->context,
          *const inverse = pair + 2 * width;
    uint32_t *const most = (uint32_t *)(void *)(pair + 3 * width);
    memset(most, 0, width * sizeof *most);
    for (size_t r = 0; r < n; r++)
        raise(keys->d, v + (j + r) * stride, most);
    for (size_t c = 0; c < width; c++) {
        keys->finite = keys->finite && is_finite(most[c]);
        inverse[c] = inverse_of(most[c], CALM_ATTEND_V, &scale[c]);
    }
    for (size_t i = 0; i < half && keys->finite; i++) {
        memset(pair, 0, 2 * width * sizeof *pair);
        for (size_t r = 2 * i; r < n && r < 2 * i + 2; r++)
            memcpy(pair + (r - 2 * i) * width, v + (j + r) * stride, keys->d * sizeof *v);
        for (size_t c = 0; c < width; c += 16)
            interleave(pair + c, pair + width + c, inverse + c,
                       keys->v + j * width + c * CALM_ATTEND_KEYS + 32 * i);
    }
}

void calm_attend_pack(size_t n, size_t d, const float *k, const float *v, size_t stride, void *memory,
                      calm_attend_keys *out)
{
    (void)place(n, d, memory, out);
    out->finite = true;
    for (size_t j = 0; j < out->n_padded && out->finite; j += 16)
        pack_keys(out, k, stride, j);
    for (size_t j = 0; j < n && out->finite; j += CALM_ATTEND_KEYS)
        pack_values(out, v, stride, j);
}

/* ---- queries ---- */

/* What a block of queries sees, and the codes and scales of those that are finite. */
static void open_block(const calm_attend_keys *keys, const calm_attend_queries *queries,
                       bool bad[CALM_ATTEND_ROWS], calm_attend_block *out)
{
    size_t end = 0;
    *out = (calm_attend_block){.keys = keys, .begin = keys->n};
    for (size_t r = 0; r < CALM_ATTEND_ROWS; r++) {
        /* What a block lacks is its first query once more. */
        const size_t from = r < queries->n ? r : 0;
        int16_t *const codes = keys->q + r * keys->k_width;
        float scale = 0;
        bad[r] = !keys->finite || !encode_row(keys->d, queries->q + from * queries->q_stride, keys->limit,
                                              keys->k_width, codes, &scale);
        if (bad[r])
            memset(codes, 0, keys->k_width * sizeof *codes);
        out->q_scale[r] = scale * queries->scale * 1.44269504088896341f;
        out->first[r] = queries->first[from];
        out->end[r] = queries->end[from];
        out->begin = calm_size_min(out->begin, out->first[r]);
        end = calm_size_max(end, out->end[r]);
    }
    out->begin = out->begin / CALM_ATTEND_KEYS * CALM_ATTEND_KEYS;
    out->stop = round_up(end, CALM_ATTEND_KEYS);
}

void calm_attend(calm_int_set set, const calm_attend_keys *keys, const calm_attend_queries *queries)
{
    static calm_attend_kernel *const kernels[CALM_N_INT_SETS] = {calm_attend_plain, calm_attend_avx2, calm_attend_avx2,
                                                                 calm_attend_avx512, calm_attend_avx512};
    bool bad[CALM_ATTEND_ROWS];
    calm_attend_block block;
    open_block(keys, queries, bad, &block);
    if (keys->finite)
        kernels[set](&block);
    for (size_t r = 0; r < queries->n; r++) {
        float *const to = queries->context + r * queries->stride;
        for (size_t c = 0; c < keys->d; c++)
            to[c] = bad[r] ? NAN : keys->context[r * keys->v_width + c];
    }
}
