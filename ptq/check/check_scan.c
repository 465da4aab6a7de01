/* Check: loops over stored values.  They only count, so every vector width gives the same result. */
#include "ptq/check/check_scan.h"

#include <string.h>

#include "ptq/base/simd.h"

static uint16_t half_at(const uint8_t *data, size_t i)
{
    uint16_t value;
    memcpy(&value, data + 2 * i, sizeof value);
    return value;
}

static uint32_t word_at(const uint8_t *data, size_t i)
{
    uint32_t value;
    memcpy(&value, data + 4 * i, sizeof value);
    return value;
}

/* 16-bit counts cannot overflow within 4096 elements, and a vector holds twice as many as of 32 bits. */
CALM_VECTORIZE static size_t nonfinite_halves(const uint8_t *data, size_t n, uint16_t infinity)
{
    size_t sum = 0;
    for (size_t begin = 0; begin < n; begin += 4096) {
        const size_t end = n - begin < 4096 ? n - begin : 4096;
        uint16_t bad = 0;
        for (size_t i = 0; i < end; i++)
            bad = (uint16_t)(bad + ((half_at(data + 2 * begin, i) & 0x7fff) >= infinity));
        sum += bad;
    }
    return sum;
}

CALM_VECTORIZE static size_t nonfinite_words(const uint8_t *data, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += (word_at(data, i) & 0x7fffffffu) >= 0x7f800000u;
    return bad;
}

static size_t nonfinite_doubles(const uint8_t *data, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += (word_at(data, 2 * i + 1) & 0x7ff00000u) == 0x7ff00000u;
    return bad;
}

/* All bits set are NaN; F8_E4M3 has no infinity. */
static size_t nonfinite_bytes(const uint8_t *data, size_t n)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += (data[i] & 127) == 127;
    return bad;
}

size_t calm_scan_nonfinite(calm_dtype dtype, const uint8_t *data, size_t n)
{
    return dtype == CALM_F8_E4M3 ? nonfinite_bytes(data, n)
           : dtype == CALM_F16    ? nonfinite_halves(data, n, 0x7c00)
           : dtype == CALM_BF16 ? nonfinite_halves(data, n, 0x7f80)
           : dtype == CALM_F32  ? nonfinite_words(data, n)
           : dtype == CALM_F64  ? nonfinite_doubles(data, n)
                                : 0;
}

/* 2^-17 and the largest float16, 65504, as bits of float32. */
#define TINY 0x37000000u
#define HUGE_F16 0x477fe000u

/* Returns the faults of a float32 with magnitude bits `a` and sign `sign`. */
static inline unsigned faults_of(uint32_t a, bool sign)
{
    return (unsigned)(a >= 0x7f800000u) << CALM_SCALE_NONFINITE | (unsigned)(a == 0 && !sign) << CALM_SCALE_ZERO |
           (unsigned)(a == 0 && sign) << CALM_SCALE_MINUS_ZERO | (unsigned)(a != 0 && a < TINY) << CALM_SCALE_TINY |
           (unsigned)(a > HUGE_F16 && a < 0x7f800000u) << CALM_SCALE_HUGE;
}

/* Returns true for a float16 with at most 8 significant bits. */
static bool fits_bfloat16(uint16_t half)
{
    const unsigned exponent = half >> 10 & 31, fraction = half & 0x3ffu;
    unsigned value = exponent ? fraction | 0x400u : fraction;
    while (value && !(value & 1))
        value >>= 1;
    return value < 256 || exponent == 31;
}

/* Returns the faults of one scale as a set of 1 << calm_scale_fault. */
static unsigned scan_scale(calm_dtype dtype, const uint8_t *at)
{
    if (dtype == CALM_U8)    /* a power of two, 2^(byte - 127) */
        return (unsigned)(*at == 255) << CALM_SCALE_NONFINITE;
    if (dtype == CALM_F8_E4M3)
        return (unsigned)((*at & 127) == 127) << CALM_SCALE_NONFINITE | (unsigned)(*at == 0) << CALM_SCALE_ZERO |
               (unsigned)(*at == 128) << CALM_SCALE_MINUS_ZERO |
               (unsigned)(*at > 128 && *at < 255) << CALM_SCALE_MINUS;
    if (dtype == CALM_F32)
        return faults_of(word_at(at, 0) & 0x7fffffffu, word_at(at, 0) >> 31);
    const uint16_t half = half_at(at, 0);
    if (dtype == CALM_BF16)
        return faults_of((uint32_t)(half & 0x7fff) << 16, half >> 15);
    if (dtype != CALM_F16)
        return 0;
    const float value = calm_f16_to_f32(half);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return faults_of(bits & 0x7fffffffu, bits >> 31) | (unsigned)!fits_bfloat16(half) << CALM_SCALE_ROUNDED;
}

void calm_scan_scales(calm_dtype dtype, const uint8_t *data, size_t n, size_t counts[CALM_N_SCALE_FAULTS])
{
    const size_t size = calm_dtype_bytes(dtype);
    if (dtype != CALM_F32 && dtype != CALM_F16 && dtype != CALM_BF16 && dtype != CALM_F8_E4M3 && dtype != CALM_U8)
        return;
    for (size_t i = 0; i < n; i++) {
        const unsigned faults = scan_scale(dtype, data + i * size);
        if (faults) /* rare */
            for (int f = 0; f < CALM_N_SCALE_FAULTS; f++)
                counts[f] += faults >> f & 1;
    }
}

CALM_VECTORIZE size_t calm_scan_range(const uint8_t *data, size_t n, int limit)
{
    size_t sum = 0;
    const uint8_t add = (uint8_t)limit, most = (uint8_t)(2 * limit - 1);
    for (size_t begin = 0; begin < n; begin += 255) {
        const size_t end = n - begin < 255 ? n - begin : 255;
        uint8_t bad = 0;
        for (size_t i = 0; i < end; i++)
            bad = (uint8_t)(bad + ((uint8_t)(data[begin + i] + add) > most));
        sum += bad;
    }
    return sum;
}

CALM_VECTORIZE size_t calm_scan_holes(const uint8_t *data, size_t n)
{
    size_t holes = 0;
    for (size_t begin = 0; begin + CALM_SCAN_PAGE <= n; begin += CALM_SCAN_PAGE) {
        uint8_t any = 0;
        for (size_t i = 0; i < CALM_SCAN_PAGE; i++)
            any |= data[begin + i];
        holes += any == 0;
    }
    return holes;
}
