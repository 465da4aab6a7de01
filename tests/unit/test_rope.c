/* Rotary embeddings against the formulas of rope.h in double.
 *
 * Tolerance: an exponent 2c/r in float32 is off by 2^-24 relative, which gives a relative error of ln(theta) 2^-24
 * in the frequency; power, inverse and scalings round at most 16 times more, and an interpolation between two
 * frequencies loses no more than the larger one.  The angle is rounded once; its error is that of cos and sin, which
 * round once more, and once with m. */
#include "ptq/layers/rope.h"

#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "tests/support/harness.h"

#define EPS 0x1p-24
#define PI  3.14159265358979323846

static const calm_arch arch = {.name = "test"};

/* A model of two blocks, the second with a separate rotary embedding. */
typedef struct fixture {
    calm_config config;
    bool local[2];
} fixture;

static void new_config(const calm_rope_config *rope, size_t max_positions, fixture *f)
{
    *f = (fixture){.local = {false, true}};
    f->config =
        (calm_config){.arch = &arch,
                      .n_blocks = 2,
                      .max_positions = max_positions,
                      .local_rope = f->local,
                      .rope = {*rope, {.kind = CALM_ROPE_DEFAULT, .theta = 300, .factor = 1, .m = 1, .rotary = 4}}};
}

/* ---- the formulas ---- */

static double yarn_bound(const calm_rope_config *rope, double n)
{
    return (double)rope->rotary * log(rope->original / (2 * PI * n)) / (2 * log(rope->theta));
}

static double clip(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double expected_frequency(const calm_rope_config *rope, size_t c, double length, double max_positions)
{
    const double r = (double)rope->rotary, o = rope->original;
    double theta = rope->theta;
    if (rope->kind == CALM_ROPE_DYNAMIC && length > max_positions)
        theta *= pow(rope->factor * length / max_positions - (rope->factor - 1), r / (r - 2));
    const double f = pow(theta, -2 * (double)c / r), wavelength = 2 * PI / f;
    switch (rope->kind) {
    case CALM_ROPE_LINEAR:
        return f / rope->factor;
    case CALM_ROPE_LLAMA3: {
        if (wavelength > o / rope->low_freq)
            return f / rope->factor;
        if (wavelength < o / rope->high_freq)
            return f;
        const double s = (o / wavelength - rope->low_freq) / (rope->high_freq - rope->low_freq);
        return (1 - s) * f / rope->factor + s * f;
    }
    case CALM_ROPE_YARN: {
        double lo = yarn_bound(rope, rope->beta_fast), hi = yarn_bound(rope, rope->beta_slow);
        if (rope->truncate)
            lo = floor(lo), hi = ceil(hi);
        lo = lo < 0 ? 0 : lo;
        hi = hi > r - 1 ? r - 1 : hi;
        const double g = clip(((double)c - lo) / (hi - lo + (lo == hi ? 0.001 : 0)), 0, 1);
        return f * (1 - g) + f * g / rope->factor;
    }
    case CALM_ROPE_PROPORTIONAL:    /* the last channels do not rotate; frequencies are those of the whole head */
        return (double)c < floor(rope->share * r / 2) ? f / rope->factor : 0;
    case CALM_ROPE_LONGROPE:
        return f / (length > o ? rope->long_factor : rope->short_factor)[c];
    case CALM_ROPE_DYNAMIC:
    case CALM_ROPE_DEFAULT:
        break;
    }
    return f;
}

/* Compares the table for a window of this length with the formulas. */
static void check_table(const calm_rope_config *rope, size_t max_positions, size_t length)
{
    fixture f;
    calm_rope tables;
    calm_rope_table table;
    new_config(rope, max_positions, &f);
    ck_ok(calm_rope_init(ctx, &f.config, length + 3, &tables));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, length, &table));
    ck_assert_uint_eq(table.half, rope->rotary / 2);
    ck_assert_uint_ge(table.n_positions, length);
    const bool beyond = rope->kind == CALM_ROPE_LONGROPE && (double)length > rope->original;
    const double m = beyond ? rope->m_long : rope->m;
    for (size_t c = 0; c < table.half; c++) {
        const double frequency = expected_frequency(rope, c, (double)length, (double)max_positions);
        for (size_t t = 0; t < length; t++) {
            const double angle = (double)t * frequency;
            const double tolerance = m * ((double)t * (log(rope->theta) + 16) * EPS + 2 * EPS);
            ck_near(table.cos[t * table.half + c], m * cos(angle), tolerance);
            ck_near(table.sin[t * table.half + c], m * sin(angle), tolerance);
        }
    }
}

/* ---- kinds ---- */

static const double longer[] = {1, 2.5, 7, 20, 33, 60, 61, 64}, shorter[] = {1, 1, 1.1, 1.3, 1.7, 2, 3, 5};

TEST(default_and_linear)
{
    calm_rope_config rope = {.kind = CALM_ROPE_DEFAULT, .theta = 10000, .factor = 1, .m = 1, .rotary = 16};
    check_table(&rope, 100, 300);
    rope.theta = 1e6;
    rope.rotary = 2;
    check_table(&rope, 100, 300);
    rope.rotary = 12;
    rope.kind = CALM_ROPE_LINEAR;
    rope.factor = 3;
    check_table(&rope, 100, 300);
}
END_OF_TEST

/* Up to the trained length nothing changes; beyond it theta is stretched, and more for longer windows. */
TEST(dynamic)
{
    const calm_rope_config rope = {.kind = CALM_ROPE_DYNAMIC, .theta = 10000, .factor = 4, .m = 1, .rotary = 8};
    static const size_t lengths[] = {1, 39, 40, 41, 42, 160, 500};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_table(&rope, 40, lengths[i]);
    fixture f;
    calm_rope tables;
    calm_rope_table within, beyond;
    new_config(&rope, 40, &f);
    ck_ok(calm_rope_init(ctx, &f.config, 41, &tables));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 40, &within));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 41, &beyond));
    ck_assert(within.cos == tables.table[CALM_ROPE_GLOBAL][0].cos);
    ck_assert(beyond.sin[39 * 4 + 3] < within.sin[39 * 4 + 3] * 0.99f);
}
END_OF_TEST

/* Every band has a channel, and the bands end right before and right after one. */
TEST(llama3)
{
    calm_rope_config rope = {.kind = CALM_ROPE_LLAMA3,
                             .theta = 500000,
                             .factor = 8,
                             .m = 1,
                             .rotary = 32,
                             .original = 256,
                             .low_freq = 1,
                             .high_freq = 4};
    size_t bands[3] = {0};
    for (size_t c = 0; c < 16; c++) {
        const double f = pow(rope.theta, -2.0 * (double)c / 32), found = expected_frequency(&rope, c, 1, 1);
        bands[found == f ? 0 : found == f / 8 ? 2 : 1]++;
    }
    ck_assert(bands[0] && bands[1] && bands[2]);
    check_table(&rope, 1024, 300);
    for (int edge = 0; edge < 4; edge++) {
        const double wavelength = 2 * PI * pow(rope.theta, 2.0 * 5 / 32);
        rope.original = wavelength * (edge & 1 ? rope.low_freq : rope.high_freq) * (edge & 2 ? 1.0001 : 0.9999);
        check_table(&rope, 1024, 300);
    }
    rope.low_freq = 0.25;
    rope.high_freq = 0.5;
    check_table(&rope, 1024, 300);
}
END_OF_TEST

TEST(yarn)
{
    calm_rope_config rope = {.kind = CALM_ROPE_YARN,
                             .theta = 10000,
                             .factor = 4,
                             .m = 1.13862943611198906,
                             .rotary = 32,
                             .original = 128,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .truncate = true};
    for (int variant = 0; variant < 8; variant++) {
        rope.truncate = variant & 1;
        rope.original = variant & 2 ? 4096 : 128;
        rope.beta_fast = variant & 4 ? 3 : 32;
        check_table(&rope, 4 * (size_t)rope.original, 200);
    }
    rope.theta = 10;    /* the upper bound is beyond r - 1, the lower one below 0 */
    rope.original = 4096;
    rope.beta_fast = 3000;
    check_table(&rope, 16384, 200);
    rope.theta = 10000;
    rope.original = 128;
    rope.beta_fast = rope.beta_slow = 2;    /* equal bounds: the ramp is a step */
    rope.truncate = false;
    check_table(&rope, 512, 200);
}
END_OF_TEST

/* One position beyond the original length switches the factors of all positions. */
TEST(longrope)
{
    const calm_rope_config rope = {.kind = CALM_ROPE_LONGROPE, .theta = 10000, .factor = 4, .m = 1.2, .m_long = 1.5,
                                   .rotary = 16, .original = 50, .long_factor = longer, .short_factor = shorter};
    static const size_t lengths[] = {1, 49, 50, 51, 200};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_table(&rope, 200, lengths[i]);
    fixture f;
    calm_rope tables;
    calm_rope_table within, beyond;
    new_config(&rope, 200, &f);
    ck_ok(calm_rope_init(ctx, &f.config, 200, &tables));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 50, &within));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 51, &beyond));
    ck_near(within.sin[1 * 8 + 2], 1.2 * sin(pow(10000, -0.25) / 1.1), 8 * EPS);
    ck_near(beyond.sin[1 * 8 + 2], 1.5 * sin(pow(10000, -0.25) / 7), 8 * EPS);
}
END_OF_TEST

/* Exact in float32, exponent by exponent: a frequency that is rounded once from double differs in its last place for
 * some channels, and 4000 positions later the angle by 2e-4. */
TEST(float32_frequencies)
{
    calm_rope_config rope = {.kind = CALM_ROPE_LINEAR, .theta = 1e6, .factor = 3, .m = 1, .rotary = 128};
    fixture f;
    calm_rope tables;
    calm_rope_table table;
    size_t n_other = 0;
    new_config(&rope, 4096, &f);
    ck_ok(calm_rope_init(ctx, &f.config, 4001, &tables));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 4001, &table));
    for (size_t c = 0; c < 64; c++) {
        const float exponent = (float)(2 * c) / 128.0f, power = (float)pow(1e6, (double)exponent);
        const float frequency = 1.0f / power / 3.0f, once = (float)(pow(1e6, -2.0 * (double)c / 128) / 3);
        ck_assert(table.cos[4000 * 64 + c] == (float)cos((double)(4000.0f * frequency)));
        ck_assert(table.sin[4000 * 64 + c] == (float)sin((double)(4000.0f * frequency)));
        n_other += frequency != once;
    }
    ck_assert_uint_gt(n_other, 10);
}
END_OF_TEST

TEST(blocks_with_an_embedding_of_their_own)
{
    const calm_rope_config rope = {.kind = CALM_ROPE_DEFAULT, .theta = 10000, .factor = 1, .m = 1, .rotary = 8};
    fixture f;
    calm_rope tables;
    calm_rope_table global, local;
    new_config(&rope, 100, &f);
    ck_ok(calm_rope_init(ctx, &f.config, 10, &tables));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 10, &global));
    ck_ok(calm_rope_find(ctx, &tables, &f.config, 1, 10, &local));
    ck_assert_uint_eq(global.half, 4);
    ck_assert_uint_eq(local.half, 2);
    ck_near(local.sin[2 * 2 + 1], sin(2 * pow(300, -0.5)), 8 * EPS);
    ck_fails(calm_rope_find(ctx, &tables, &f.config, 1, 11, &local), CALM_EARG,
             "a window of 11 positions, rotary tables for 10");
}
END_OF_TEST

/* ---- rotation ---- */

/* Pairs (c, c + r/2) of every head rotate by the position's angle; channels from r on, and columns between rows,
 * keep their bits.  Two products and a sum are rounded: 3 x 2^-24 of |a| + |b|. */
TEST(rotation)
{
    enum { TOKENS = 5, HEADS = 3, DIM = 10, STRIDE = HEADS * DIM + 7 };
    static const uint32_t positions[TOKENS] = {0, 3, 4, 17, 40};
    static const size_t widths[] = {2, 6, 10};
    for (size_t w = 0; w < 3; w++)
        for (int gaps = 0; gaps < 2; gaps++) {
            const size_t r = widths[w], half = r / 2;
            const calm_rope_config rope = {.kind = CALM_ROPE_DEFAULT, .theta = 1000, .factor = 1, .m = 1, .rotary = r};
            float x[TOKENS * STRIDE], y[TOKENS * STRIDE];
            fixture f;
            calm_rope tables;
            calm_rope_table table;
            new_config(&rope, 100, &f);
            ck_ok(calm_rope_init(ctx, &f.config, 41, &tables));
            ck_ok(calm_rope_find(ctx, &tables, &f.config, 0, 41, &table));
            for (size_t i = 0; i < TOKENS * STRIDE; i++)
                x[i] = y[i] = (float)calm_rng_normal(3, 0, i);
            calm_rope_rotate(&table, y, STRIDE, TOKENS, HEADS, DIM, gaps ? positions : NULL);
            for (size_t i = 0; i < TOKENS * STRIDE; i++) {
                const size_t t = i / STRIDE, column = i % STRIDE, c = column % DIM;
                if (column >= HEADS * DIM || c >= r) {
                    ck_assert(memcmp(x + i, y + i, sizeof *x) == 0);
                    continue;
                }
                const size_t at = (gaps ? positions[t] : t) * half + c % half;
                const double cosine = (double)table.cos[at], sine = (double)table.sin[at];
                const double a = (double)x[c < half ? i : i - half], b = (double)x[c < half ? i + half : i];
                ck_near(y[i], c < half ? a * cosine - b * sine : b * cosine + a * sine, 3 * EPS * (fabs(a) + fabs(b)));
            }
        }
}
END_OF_TEST

TEST(no_memory)
{
    const calm_rope_config rope = {.kind = CALM_ROPE_DYNAMIC, .theta = 1000, .factor = 2, .m = 1, .rotary = 8};
    fixture f;
    calm_rope tables;
    calm_rope_table table;
    new_config(&rope, 4, &f);
    for (long n = 1; n <= 4; n++) {
        ctx->out->fail_in = n;
        ck_fails(calm_rope_init(ctx, &f.config, 10, &tables), CALM_ENOMEM, "");
    }
    ck_fails(calm_rope_init(ctx, &f.config, SIZE_MAX, &tables), CALM_EARG, "positions are too many");
    ck_ok(calm_rope_init(ctx, &f.config, 10, &tables));
    ctx->scratch->fail_in = 1;
    ck_fails(calm_rope_find(ctx, &tables, &f.config, 0, 10, &table), CALM_ENOMEM, "");
}
END_OF_TEST

/* One table for all positions; longrope has two beyond the original length, dynamic one per window. */
TEST(memory)
{
    static const calm_rope_kind kinds[] = {CALM_ROPE_DEFAULT, CALM_ROPE_DYNAMIC, CALM_ROPE_LONGROPE};
    static const double factors[] = {1, 2, 3, 4};
    for (size_t k = 0; k < 3; k++)
        for (size_t length = 60; length <= 180; length += 60) {
            const calm_rope_config rope = {.kind = kinds[k], .theta = 1000, .factor = 2, .m = 1, .rotary = 8,
                                           .original = 100, .long_factor = factors, .short_factor = factors};
            fixture f;
            calm_rope tables;
            calm_rope_table table;
            new_config(&rope, 100, &f);
            ck_memory(calm_rope_init(ctx, &f.config, length, &tables), calm_rope_bytes(&f.config, length), 0);
            const bool own = kinds[k] == CALM_ROPE_DYNAMIC && length > 100;
            ck_assert_int_eq(calm_rope_scratch_bytes(&f.config, length) > 0, own);
            ck_ok(calm_rope_init(ctx, &f.config, length, &tables));
            ck_memory(calm_rope_find(ctx, &tables, &f.config, 0, length, &table), 0,
                      calm_rope_scratch_bytes(&f.config, length));
        }
}
END_OF_TEST

/* Pairs of neighbours rotate as pairs half a head apart with the channels in that order; channels after them stay. */
TEST(neighbours)
{
    enum { HALF = 3, WIDTH = 8, LENGTH = 5 };
    const calm_rope_config config = {.kind = CALM_ROPE_DEFAULT, .theta = 100, .factor = 1, .m = 1, .rotary = 2 * HALF};
    fixture f;
    calm_rope rope;
    calm_rope_table table;
    float x[LENGTH * WIDTH], y[LENGTH * WIDTH];
    new_config(&config, 32, &f);
    ck_ok(calm_rope_init(ctx, &f.config, LENGTH, &rope));
    ck_ok(calm_rope_find(ctx, &rope, &f.config, 0, LENGTH, &table));
    for (size_t i = 0; i < LENGTH * WIDTH; i++)
        x[i] = (float)calm_rng_normal(3, 0, i);
    for (size_t t = 0; t < LENGTH; t++)
        for (size_t c = 0; c < WIDTH; c++)
            y[t * WIDTH + c] = x[t * WIDTH + (c < HALF ? 2 * c : c < 2 * HALF ? 2 * (c - HALF) + 1 : c)];
    calm_rope_rotate(&table, y, WIDTH, LENGTH, 1, WIDTH, NULL);
    table.neighbours = true;
    calm_rope_rotate(&table, x, WIDTH, LENGTH, 1, WIDTH, NULL);
    for (size_t t = 0; t < LENGTH; t++)
        for (size_t c = 0; c < WIDTH; c++)
            ck_assert(y[t * WIDTH + c] == x[t * WIDTH + (c < HALF ? 2 * c : c < 2 * HALF ? 2 * (c - HALF) + 1 : c)]);
}
END_OF_TEST

int main(void)
{
    return run_tests("rope", (const TTest *[]){default_and_linear, dynamic, llama3, yarn, longrope, float32_frequencies,
                                               blocks_with_an_embedding_of_their_own, rotation, neighbours, no_memory,
                                               memory, NULL});
}
