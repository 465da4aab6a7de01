/* Packing against a loop over single bits, and the vectors of docs/formats.md section 8. */
#include "ptq/quant/pack.h"
#include "ptq/base/rng_impl.h"
#include "tests/support/harness.h"

#define GUARD 0xdeadbeefu

static const int widths[] = {2, 3, 4, 8};

/* Writes element i to bits [i*b, i*b + b) of the stream. */
static void pack_bits(const uint8_t *codes, size_t n, int bits, uint32_t *words)
{
    memset(words, 0, (n * (size_t)bits + 31) / 32 * 4);
    for (size_t i = 0; i < n; i++)
        for (int b = 0; b < bits; b++) {
            size_t at = i * (size_t)bits + (size_t)b;
            words[at / 32] |= (uint32_t)(codes[i] >> b & 1) << at % 32;
        }
}

TEST(rows_bit_by_bit)
{
    uint8_t codes[128], back[129];
    uint32_t words[33], expected[33];
    for (size_t w = 0; w < 4; w++)
        for (size_t n = 0; n <= 128; n++) {
            for (size_t i = 0; i < n; i++)
                codes[i] = (uint8_t)(calm_rng_u64(1, n, i) & ((1u << widths[w]) - 1));
            size_t n_words = calm_pack_words(n, widths[w]);
            ck_assert_uint_eq(n_words, (n * (size_t)widths[w] + 31) / 32);
            memset(words, 0xff, sizeof words);
            words[n_words] = GUARD;
            back[n] = 77;
            calm_pack_rows(codes, 1, n, widths[w], words);
            pack_bits(codes, n, widths[w], expected);
            ck_assert_mem_eq(words, expected, n_words * 4);
            ck_assert_uint_eq(words[n_words], GUARD);
            calm_unpack_row(words, n, widths[w], back);
            ck_assert_mem_eq(back, codes, n);
            ck_assert_uint_eq(back[n], 77);
        }
}
END_OF_TEST

TEST(columns_are_rows_of_the_transpose)
{
    enum { ROWS = 21, COLS = 5 };
    uint8_t codes[ROWS * COLS], turned[COLS * ROWS], back[ROWS * COLS];
    uint32_t words[ROWS * COLS], expected[COLS * ROWS];
    for (size_t w = 0; w < 4; w++) {
        for (size_t i = 0; i < ROWS * COLS; i++) {
            codes[i] = (uint8_t)(calm_rng_u64(2, w, i) & ((1u << widths[w]) - 1));
            turned[i % COLS * ROWS + i / COLS] = codes[i];
        }
        size_t n_words = calm_pack_words(ROWS, widths[w]);
        calm_pack_columns(codes, ROWS, COLS, widths[w], words);
        calm_pack_rows(turned, COLS, ROWS, widths[w], expected);
        for (size_t c = 0; c < COLS; c++)
            for (size_t k = 0; k < n_words; k++)
                ck_assert_uint_eq(words[k * COLS + c], expected[c * n_words + k]);
        calm_unpack_columns(words, ROWS, COLS, widths[w], back);
        ck_assert_mem_eq(back, codes, sizeof codes);
        calm_unpack_rows(expected, COLS, ROWS, widths[w], back);
        ck_assert_mem_eq(back, turned, sizeof turned);
    }
}
END_OF_TEST

TEST(known_words)
{
    static const uint32_t weight[] = {0x3e94fa50, 0x61c72d83, 0x94fa50b6, 0xc72d83e9,
                                      0xfa50b61c, 0x2d83e94f, 0x50b61c72, 0x83e94fa5};
    static const uint32_t three[] = {0xc14e5dc1, 0x5dc14e5d, 0x4e5dc14e};
    uint8_t codes[64], zeros[8], stream[32];
    uint32_t words[8], zero_word;
    for (size_t i = 0; i < 64; i++)
        codes[i] = (uint8_t)((3 * (i / 8) + 5 * (i % 8)) % 16);
    for (size_t i = 0; i < 8; i++)
        zeros[i] = (uint8_t)(i + 4);
    for (size_t i = 0; i < 32; i++)
        stream[i] = (uint8_t)((7 * i + 1) % 8);
    calm_pack_rows(codes, 8, 8, 4, words);
    ck_assert_mem_eq(words, weight, sizeof weight);
    calm_pack_columns(zeros, 8, 1, 4, &zero_word);
    ck_assert_uint_eq(zero_word, 0xba987654);
    calm_pack_rows(stream, 1, 32, 3, words);
    ck_assert_mem_eq(words, three, sizeof three);
}
END_OF_TEST

int main(void)
{
    return run_tests("pack", (const TTest *[]){rows_bit_by_bit, columns_are_rows_of_the_transpose, known_words, NULL});
}
