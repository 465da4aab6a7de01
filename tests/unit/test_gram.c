/* Gram matrices against naive sums in double, and the same bytes for every number of threads. */
#include "ptq/calib/gram_packed.h"

#include "ptq/base/scope.h"
#include "ptq/tensor/product.h"

#include "tests/support/harness.h"
#include "tests/support/normals.h"

typedef struct sample {
    size_t rows, width, n_parts;
    size_t row_begin[5];
    float *x;
    double *gram;
} sample;

static sample new_sample(size_t rows, size_t width, size_t n_parts, uint64_t seed)
{
    sample s = {.rows = rows, .width = width, .n_parts = n_parts};
    for (size_t p = 0; p <= n_parts; p++)
        s.row_begin[p] = p == n_parts ? rows : p * (rows / n_parts) * 2 / 3;    /* parts of different lengths */
    ck_ok(CALM_NEW(ctx, ctx->out, s.x, rows * width + 1));
    ck_ok(CALM_NEW(ctx, ctx->out, s.gram, width * width));
    const double *normals = test_normals(seed, 0, rows * width);
    for (size_t i = 0; i < rows * width; i++)
        s.x[i] = (float)(normals[i] + (i % width == 0 ? 30 : 0));    /* one large channel */
    return s;
}

static calm_gram_job job_of(const sample *s)
{
    return (calm_gram_job){s->gram, s->x, s->rows, s->width, s->row_begin, s->n_parts, NULL};
}

/* A float32 product of at most CALM_GRAM_CHUNK rows is off by at most that many eps of the sum of magnitudes; sums
 * over chunks are in double. */
static void check(const sample *s)
{
    for (size_t i = 0; i < s->width; i++)
        for (size_t j = i; j < s->width; j++) {
            double sum = 0, size = 0;
            for (size_t r = 0; r < s->rows; r++) {
                const double term = (double)s->x[r * s->width + i] * (double)s->x[r * s->width + j];
                sum += term;
                size += fabs(term);
            }
            ck_near(s->gram[i * s->width + j], sum, size * (double)CALM_GRAM_CHUNK * 0x1p-24);
        }
}

TEST(equals_naive_sums)
{
    static const size_t shapes[][3] = {{1, 1, 1}, {7, 5, 1}, {700, 3, 2}, {1300, 37, 1}, {600, 130, 3}, {0, 4, 1},
                                       {5, 512, 1}, {40, 1100, 2}, {530, 600, 1}, {3, 1600, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sample s = new_sample(shapes[i][0], shapes[i][1], shapes[i][2], i + 1);
        const calm_gram_job job = job_of(&s);
        ck_ok(calm_gram_add(ctx, &job, 1));
        check(&s);
    }
}
END_OF_TEST

/* X^T Y, both triangles. */
TEST(products_of_two_inputs)
{
    static const size_t shapes[][3] = {{7, 5, 1}, {700, 3, 2}, {600, 130, 3}, {40, 1100, 2}, {0, 4, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        sample x = new_sample(shapes[i][0], shapes[i][1], shapes[i][2], i + 1);
        const sample y = new_sample(shapes[i][0], shapes[i][1], shapes[i][2], i + 50);
        calm_gram_job job = job_of(&x);
        job.y = y.x;
        ck_ok(calm_gram_add(ctx, &job, 1));
        for (size_t a = 0; a < x.width; a++)
            for (size_t b = 0; b < x.width; b++) {
                double sum = 0, size = 0;
                for (size_t r = 0; r < x.rows; r++) {
                    const double term = (double)x.x[r * x.width + a] * (double)y.x[r * x.width + b];
                    sum += term;
                    size += fabs(term);
                }
                ck_near(x.gram[a * x.width + b], sum, size * (double)CALM_GRAM_CHUNK * 0x1p-24);
            }
    }
}
END_OF_TEST

TEST(the_lower_triangle_is_left_alone)
{
    sample s = new_sample(20, 1100, 1, 4);
    const calm_gram_job job = job_of(&s);
    for (size_t i = 0; i < s.width; i++)
        for (size_t j = 0; j < i; j++)
            s.gram[i * s.width + j] = -7;
    ck_ok(calm_gram_add(ctx, &job, 1));
    check(&s);
    for (size_t i = 0; i < s.width; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_double_eq(s.gram[i * s.width + j], -7);
}
END_OF_TEST

TEST(adds_to_what_is_there)
{
    sample s = new_sample(40, 6, 2, 3);
    const calm_gram_job job = job_of(&s);
    ck_ok(calm_gram_add(ctx, &job, 1));
    double first[36];
    memcpy(first, s.gram, sizeof first);
    ck_ok(calm_gram_add(ctx, &job, 1));
    for (size_t i = 0; i < 6; i++)
        for (size_t j = i; j < 6; j++)
            ck_near(s.gram[i * 6 + j], 2 * first[i * 6 + j], 1e-12 * fabs(first[i * 6 + j]));
}
END_OF_TEST

/* One tile, six tiles, and tiles of two inputs, which many threads quarter unless a chunk is short. */
TEST(same_bytes_for_every_number_of_threads)
{
    enum { N_THREADS = 4, N_JOBS = 5 };
    static const int threads[N_THREADS] = {1, 2, 4, 16};
    static const struct {
        size_t rows, width, n_parts;
        bool cross;
    } of[N_JOBS] = {{900, 150, 2, false}, {700, 1100, 3, false}, {1536, 1536, 1, false}, {520, 1536, 2, true},
                    {515, 1536, 1, true}};
    sample first[N_JOBS], again[N_JOBS], other[N_JOBS];
    for (size_t t = 0; t < N_THREADS; t++) {
        calm_gram_job jobs[N_JOBS];
        sample *made = t == 0 ? first : again;
        for (size_t j = 0; j < N_JOBS; j++) {
            made[j] = new_sample(of[j].rows, of[j].width, of[j].n_parts, j + 5);
            other[j] = new_sample(of[j].rows, of[j].width, of[j].n_parts, j + 50);
            jobs[j] = job_of(&made[j]);
            jobs[j].y = of[j].cross ? other[j].x : NULL;
        }
        ctx->n_threads = threads[t];
        ck_ok(calm_gram_add(ctx, jobs, N_JOBS));
        for (size_t j = 0; t > 0 && j < N_JOBS; j++)
            ck_assert(memcmp(first[j].gram, again[j].gram, of[j].width * of[j].width * sizeof(double)) == 0);
    }
}
END_OF_TEST

/* Adds X^T Y to `gram` chunk by chunk, each as one product. */
static void add_whole(const sample *x, const float *y, double *gram)
{
    CALM_SCOPED_SCRATCH(ctx);
    const size_t width = x->width;
    float *product;
    ck_ok(CALM_NEW(ctx, ctx->scratch, product, width * width));
    for (size_t p = 0; p < x->n_parts; p++)
        for (size_t row = x->row_begin[p]; row < x->row_begin[p + 1]; row += CALM_GRAM_CHUNK) {
            const size_t n = calm_size_min(x->row_begin[p + 1] - row, CALM_GRAM_CHUNK);
            ck_ok(calm_multiply(ctx, CALM_PRODUCT_TN, width, width, n, x->x + row * width, width, y + row * width,
                                width, 0, product, width));
            for (size_t i = 0; i < width * width; i++)
                gram[i] += (double)product[i];
        }
}

/* Operands that are packed once give the bytes of products that pack, for whole and short chunks, and both kinds of
 * matrices. */
static void check_packed(calm_operands operands, size_t rows, size_t width, size_t n_parts, bool cross)
{
    CALM_SCOPED_OPERANDS(ctx, operands);
    CALM_SCOPED_RESULTS(ctx);
    sample x = new_sample(rows, width, n_parts, rows);
    const sample y = new_sample(rows, width, n_parts, rows + 1);
    calm_gram_job job = job_of(&x);
    job.y = cross ? y.x : NULL;
    ck_assert(calm_gram_packs(ctx->operands, &job));
    ck_ok(calm_gram_add(ctx, &job, 1));
    add_whole(&x, cross ? y.x : x.x, y.gram);
    for (size_t i = 0; i < width; i++) {
        const size_t first = cross ? 0 : i;
        const size_t at = i * width + first, bytes = (width - first) * sizeof(double);
        ck_assert_msg(memcmp(x.gram + at, y.gram + at, bytes) == 0, "%zu rows, width %zu, row %zu", rows, width, i);
    }
}

TEST(packed_operands_give_the_same_bytes)
{
    calm_linalg_setup();
    const sample few = {.rows = 516, .width = 3072, .n_parts = 1, .row_begin = {0, 516}},
                 odd = {.rows = 700, .width = 3073, .n_parts = 1, .row_begin = {0, 700}};
    const calm_gram_job of_few = job_of(&few), of_odd = job_of(&odd);
    ck_assert(!calm_gram_packs(CALM_OPERANDS_F32, &of_few) && !calm_gram_packs(CALM_OPERANDS_BF16X2, &of_few));
    ck_assert(!calm_gram_packs(CALM_OPERANDS_BF16X2, &of_odd));
    if (!calm_gram_packed_scratch_bytes(CALM_OPERANDS_BF16X2, 3072, 1))
        return;    /* a CPU without AMX */
    for (int threads = 1; threads < 4; threads += 2) {
        ctx->n_threads = threads;
        check_packed(CALM_OPERANDS_BF16X2, 700, 3136, 2, false);
        check_packed(CALM_OPERANDS_BF16X2, 1100, 3072, 2, false);
        check_packed(CALM_OPERANDS_BF16, 1029, 3104, 1, true);
    }
}
END_OF_TEST

/* The list of tiles, and for each worker the product of its largest tile. */
TEST(memory)
{
    static const size_t widths[] = {5, 100, 600, 1600, 2100};
    double *gram;
    ck_memory(CALM_NEW(ctx, ctx->out, gram, 37 * 37), calm_gram_bytes(37), 0);
    ck_assert_uint_eq(calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 0, false, 2), 0);
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        sample s = new_sample(3, widths[i], 1, i + 1);
        const calm_gram_job job = job_of(&s);
        ctx->n_threads = 1;
        const size_t held = calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, &widths[i], 1, false, 1);
        ck_memory_of_workers(calm_gram_add(ctx, &job, 1), 0, held, 2, 0);
    }
    /* More workers than tiles hold no more; the product with another input has separate tiles. */
    const size_t one = calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 1, false, 1);
    ck_assert_uint_eq(one, calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 1, false, 9));
    ck_assert_uint_gt(calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 1, true, 1), one);
    const size_t five = calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 5, false, 1);
    ck_assert_uint_gt(calm_gram_add_scratch_bytes(CALM_OPERANDS_F32, widths, 5, false, 2), five);
}
END_OF_TEST

/* Packed operands of a chunk, and for each worker a tile and the sums of a product. */
TEST(memory_of_packed_operands)
{
    calm_linalg_setup();
    CALM_SCOPED_OPERANDS(ctx, CALM_OPERANDS_BF16X2);
    const size_t width = 3104, held = calm_gram_packed_scratch_bytes(ctx->operands, width, 1);
    if (!held)
        return;    /* a CPU without AMX */
    sample s = new_sample(2100, width, 1, 1);
    const calm_gram_job job = job_of(&s);
    ctx->n_threads = 1;
    ck_assert_uint_eq(calm_gram_add_scratch_bytes(ctx->operands, &width, 1, false, 1), held);
    ck_memory_of_workers(calm_gram_add(ctx, &job, 1), 0, held, 7, 0);    /* 256 x 256 sums of a product */
}
END_OF_TEST

/* The mean squares are replaced and correlations stay; an input that was always 0 has none. */
TEST(mean_squares_are_replaced)
{
    const double squares[] = {2, 0, 9, 5};
    double gram[] = {8, 2, 6, 0, 2, 2, 1, 0, 6, 1, 18, 0, 0, 0, 0, 0};
    const double expected[] = {4, 0, 9, 0, 0, 0, 0, 0, 9, 0, 18, 0, 0, 0, 0, 10};
    /* For 2 rows: 6 sqrt(4 / 8) sqrt(18 / 18) = 6 / sqrt 2 */
    ck_ok(calm_gram_rescale(ctx, 4, squares, 2, gram));
    for (size_t i = 0; i < 16; i++)
        ck_near(gram[i], i == 2 || i == 8 ? 6 / sqrt(2) : expected[i], 1e-15 * 18);
}
END_OF_TEST

int main(void)
{
    return run_tests("gram", (const TTest *[]){mean_squares_are_replaced, equals_naive_sums, products_of_two_inputs,
                                               the_lower_triangle_is_left_alone, adds_to_what_is_there,
                                               same_bytes_for_every_number_of_threads,
                                               packed_operands_give_the_same_bytes, memory,
                                               memory_of_packed_operands, NULL});
}
