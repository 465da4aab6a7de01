/* Exponent coding: round trips to the bit, the Huffman code for Gaussian weights, and damaged bytes. */
#include "ptq/quant/exponent_code.h"

#include <math.h>

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define MOST ((size_t)40000)    /* words: two blocks and a part of one */

static uint8_t in[4 * MOST], back[4 * MOST + 16], code[4 * MOST + 64];

static void fill(size_t n, size_t width_bytes, uint64_t stream, double width)
{
    for (size_t i = 0; i < n; i++) {
        const float value = (float)(width * calm_rng_normal(1, stream, i));
        memcpy(in + i * width_bytes, (const uint8_t *)&value + 4 - width_bytes, width_bytes);
    }
}

/* Returns the bytes of the code, after a round trip that writes nothing else. */
static size_t round_trip(size_t n, size_t width, bool plain)
{
    memset(code, 0xa5, sizeof code);
    memset(back, 0x5a, sizeof back);
    const size_t bytes = calm_exponent_encode(in, n, width, plain, code), most = calm_exponent_code_most(n, width);
    ck_assert_uint_le(bytes, most);
    ck_assert_uint_eq(code[most], 0xa5);
    ck_assert_int_eq(calm_exponent_decode(ctx, "c", code, bytes, n, width, back), CALM_OK);
    ck_assert_mem_eq(back, in, n * width);
    for (size_t i = 0; i < 16; i++)
        ck_assert_uint_eq(back[n * width + i], 0x5a);
    return bytes;
}

TEST(any_count_comes_back)
{
    for (size_t width = 2; width <= 4; width += 2) {
        for (size_t n = 0; n < 300; n++) {
            fill(n, width, n, 1);
            round_trip(n, width, false);
        }
        fill(MOST, width, 7, 0.02);
        for (size_t n = (1 << 14) - 3; n < (1 << 14) + 4; n++)
            round_trip(n, width, false);
        round_trip(MOST, width, false);
        ck_assert_uint_eq(round_trip(MOST, width, true), calm_exponent_code_most(MOST, width));
    }
}
END_OF_TEST

/* Gaussians of any width, from far below 1 to far above, take about what their exponents hold: 2.55 bits by numeric
 * integration, 2.6 with whole bits, 10.6 of 16.  The bound 11 leaves 7 standard errors of 40,000 words for the
 * width. */
TEST(gaussians_of_any_width)
{
    for (int e = -115; e < 118; e += 3) {
        fill(MOST, 2, (uint64_t)(e + 200), ldexp(1 + 0.1 * (e & 7), e));
        ck_assert_uint_lt(8 * round_trip(MOST, 2, false), 11 * MOST);
        fill(MOST, 4, (uint64_t)(e + 200), ldexp(1 + 0.1 * (e & 7), e));
        ck_assert_uint_lt(8 * round_trip(MOST, 4, false), 27 * MOST);
    }
}
END_OF_TEST

/* NaN with payloads, infinities, zeros of both signs, subnormals: every bfloat16 value, alone and among Gaussians. */
TEST(any_bits)
{
    for (size_t i = 0; i < 1 << 16; i++)
        memcpy(in + 2 * (i % MOST), &(uint16_t){(uint16_t)(i * 40503u)}, 2);
    round_trip(MOST, 2, false);
    for (size_t i = 0; i < MOST; i++)
        memcpy(in + 4 * i, &(uint32_t){(uint32_t)calm_rng_u64(3, 1, i)}, 4);
    ck_assert_uint_eq(round_trip(MOST, 4, false), calm_exponent_code_most(MOST, 4));    /* nothing to gain */
    fill(MOST, 4, 5, 1);
    for (size_t i = 0; i < MOST; i += 37)
        memcpy(in + 4 * i, &(uint32_t){(uint32_t)calm_rng_u64(3, 2, i)}, 4);
    ck_assert_uint_lt(round_trip(MOST, 4, false), calm_exponent_code_most(MOST, 4));
    memset(in, 0, sizeof in);
    round_trip(MOST, 4, false);
    memset(in, 0xff, sizeof in);
    round_trip(MOST, 2, false);
}
END_OF_TEST

/* ---- the code for Gaussian weights ---- */

#define SYMBOLS 16
#define LONGEST 11

/* Returns the least mean length of a prefix code of at most 11 bits for p, by package-merge. */
static double least_length(const double p[SYMBOLS])
{
    double list[2 * SYMBOLS], merged[4 * SYMBOLS];
    size_t n = 0;
    for (int level = 0; level < LONGEST; level++) {
        size_t all = n;
        memcpy(merged, list, n * sizeof *list);
        for (int s = 0; s < SYMBOLS; s++)
            merged[all++] = p[s];
        for (size_t i = 1; i < all; i++)
            for (size_t j = i; j > 0 && merged[j] < merged[j - 1]; j--) {
                const double swap = merged[j];
                merged[j] = merged[j - 1];
                merged[j - 1] = swap;
            }
        if (level == LONGEST - 1) {
            double sum = 0;
            for (size_t i = 0; i < 2 * SYMBOLS - 2; i++)
                sum += merged[i];
            return sum;
        }
        n = all / 2;
        for (size_t i = 0; i < n; i++)
            list[i] = merged[2 * i] + merged[2 * i + 1];
    }
    return NAN;
}

static double inside(double bound)
{
    return erf(bound / sqrt(2));
}

/* The lengths in the header are the best ones for the bins of a Gaussian. */
TEST(lengths_are_those_of_huffman)
{
    bool seen[8] = {false};
    for (int eighth = 0; eighth < 64; eighth++) {
        uint64_t lengths;
        double p[SYMBOLS], mean = 0;
        fill(MOST, 2, 3, exp2(eighth / 64.0));
        round_trip(MOST, 2, false);
        memcpy(&lengths, code + 32, 8);
        /* Symbol 0 is 8 to 16 times the power of two below the width; the rest is the fraction, to an eighth. */
        const double above = 3 + 127 - code[10] + 0.0, width = eighth / 64.0;
        const double fraction = floor((width + above) * 8 + 0.5) / 8;
        for (int s = 0; s < SYMBOLS - 1; s++)
            p[s] = fmax(inside(exp2(4 - s - fraction)) - inside(exp2(3 - s - fraction)), 0x1p-12);
        p[SYMBOLS - 1] = 0x1p-11;
        for (int s = 0; s < SYMBOLS; s++)
            mean += p[s] * (double)(lengths >> 4 * s & 15);
        const double least = least_length(p);
        /* A sample of 1,024 words gives the width to an eighth or its neighbour, whose code is at most .06 bits
         * longer. */
        ck_assert_double_ge(mean, least * (1 - 1e-12));
        seen[(int)(fraction * 8) & 7] |= mean < least * (1 + 1e-12);
    }
    for (int i = 0; i < 8; i++)
        ck_assert_msg(seen[i], "the code of fraction %d/8 is not the best", i);
}
END_OF_TEST

/* ---- damaged bytes ---- */

static void refuse(size_t bytes, size_t n, size_t width)
{
    ck_assert_int_eq(calm_exponent_decode(ctx, "rows.bin", code, bytes, n, width, back), CALM_EFORMAT);
    ck_assert_msg(strstr(ctx->message, "rows.bin") != NULL, "%s", ctx->message);
    calm_ctx_clear_failure(ctx);
}

TEST(lengths_are_checked)
{
    fill(MOST, 4, 1, 1);
    const size_t bytes = round_trip(MOST, 4, false);
    for (size_t cut = 0; cut < bytes; cut = cut < 100 ? cut + 1 : cut + 997)
        refuse(cut, MOST, 4);
    refuse(bytes, MOST - 1, 4);
    refuse(bytes, MOST, 2);
    uint64_t kept[5];
    memcpy(kept, code, sizeof kept);
    static const struct {
        size_t at;
        uint64_t value;
    } edits[] = {{0, 0}, {8, 2}, {9, 2}, {16, SIZE_MAX}, {24, 47}, {24, 0}, {24, SIZE_MAX}, {32, 0}, {32, SIZE_MAX},
                 {32, 0xcccccccccccccccc}, {32, 0x1111111111111111}, {32, 0xbbaa8765532225ba}};
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        memcpy(code + edits[i].at, &edits[i].value, edits[i].at < 16 && edits[i].at >= 8 ? 1 : 8);
        refuse(bytes, MOST, 4);
        memcpy(code, kept, sizeof kept);
    }
    /* The same for plain words. */
    const size_t plain = calm_exponent_encode(in, 100, 4, true, code);
    refuse(plain - 1, 100, 4);
    code[24]--;
    refuse(plain, 100, 4);
}
END_OF_TEST

/* A changed byte is refused or gives other words, and never writes past n words. */
TEST(no_byte_leads_out_of_its_room)
{
    fill(3000, 4, 1, 1);
    for (size_t i = 0; i < 3000; i += 500)
        memset(in + 4 * i, 0, 4);    /* escapes */
    const size_t bytes = round_trip(3000, 4, false);
    for (size_t at = 0; at < bytes; at++) {
        const uint8_t kept = code[at];
        for (unsigned change = 1; change < 256; change = 2 * change + 1) {
            code[at] = kept ^ (uint8_t)change;
            memset(back, 0x5a, sizeof back);
            if (calm_exponent_decode(ctx, "c", code, bytes, 3000, 4, back) != CALM_OK)
                calm_ctx_clear_failure(ctx);
            ck_assert_uint_eq(back[4 * 3000], 0x5a);
        }
        code[at] = kept;
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("exponent_code",
                     (const TTest *[]){any_count_comes_back, gaussians_of_any_width, any_bits,
                                       lengths_are_those_of_huffman, lengths_are_checked,
                                       no_byte_leads_out_of_its_room, NULL});
}
