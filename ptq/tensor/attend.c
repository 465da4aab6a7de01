/* Integer attention: quantization of keys, values and queries, and dispatch of blocks of queries. */
#include "ptq/tensor/attend.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/attend_kernel.h"

/* Bits of a float without its sign; as integers they are ordered by magnitude, with NaN above all numbers. */
#define MAGNITUDE 0x7fffffffu
/* 1.5 2^23: adding it rounds a number to an integer in the last bits of the sum. */
#define MAGIC      12582912.0f
#define MAGIC_BITS 0x4B400000
/* Smallest maximum of a row that is quantized; a row below is zero, as the inverse of its scale would not be
 * finite. */
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

/* Returns the next `bytes` of memory, aligned to 64 bytes, and adds them to *at. */
static void *take(char *memory, size_t *at, size_t bytes)
{
    char *const here = memory ? memory + *at : NULL;
    *at += round_up(bytes, 64);
    return here;
}

/* Sets the sizes and, unless memory is NULL, the arrays.  Returns the total bytes. */
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

/* Returns the inverse scale of values whose largest magnitude has these bits, for codes up to `limit`; 0 if all
 * values are 0. */
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

/* Computes most[c] = max(most[c], |x[c]|) on the bits of the magnitudes. */
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

/* Quantizes a row [d] to codes [width], padded with zeros; returns false if the row is not finite. */
static bool encode_row(size_t d, const float *x, int limit, size_t width, int16_t *codes, float *scale)
{
    const uint32_t most = largest(d, x);
    if (!is_finite(most))
        return false;
    encode(d, x, inverse_of(most, limit, scale), codes);
    memset(codes + d, 0, (width - d) * sizeof *codes);
    return true;
}

/* Quantizes keys j .. j + 15 and packs them into a panel. */
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

/* Quantizes 16 channels of two keys and interleaves them. */
CALM_VECTORIZE static void interleave(const float *x, const float *y, const float *inverse, int16_t *to)
{
    for (size_t l = 0; l < 16; l++) {
        to[2 * l] = code_of(x[l] * inverse[l]);
        to[2 * l + 1] = code_of(y[l] * inverse[l]);
    }
}

/* Quantizes and packs the values of keys j .. j + 63, with the buffer of a block of queries as temporary memory. */
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

/* Computes the range of keys of a block of queries, and the codes and scales of its finite queries. */
static void open_block(const calm_attend_keys *keys, const calm_attend_queries *queries,
                       bool bad[CALM_ATTEND_ROWS], calm_attend_block *out)
{
    size_t end = 0;
    *out = (calm_attend_block){.keys = keys, .begin = keys->n};
    for (size_t r = 0; r < CALM_ATTEND_ROWS; r++) {
        /* An incomplete block repeats its first query. */
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
        memcpy(to, keys->context + r * keys->v_width, keys->d * sizeof *to);
        for (size_t c = 0; bad[r] && c < keys->d; c++)
            to[c] = NAN;
    }
}
