/* A budget that is the size of a file: against brute force over every plan and table. */
#include "ptq/plan/solve.h"

#include "tests/support/small_pool.h"

enum { N_TABLES = 3 };

/* The bench's pool with a file, in which schemes take other bits than by their own count. */
typedef struct filed {
    bench b;
    uint64_t bits[N_JOBS * N_SCHEMES];
    calm_pool_table tables[N_TABLES];
    calm_pool_file file;
} filed;

static void make_filed(uint64_t seed, filed *f)
{
    make(seed, &f->b);
    for (size_t j = 0; j < N_JOBS; j++)
        for (size_t s = 0; s < N_SCHEMES; s++)
            f->bits[j * N_SCHEMES + s] =
                (uint64_t)job_bits(&f->b, j, s) + 8 * (uint64_t)(20 * calm_rng_uniform(seed, 7, j * N_SCHEMES + s));
    for (size_t t = 0; t < N_TABLES; t++)
        f->tables[t] = (calm_pool_table){.name = "t", .bits = 8 * (uint64_t)(900 - 200 * t),
                                         .loss = 0.1 * (double)(t * t) * calm_rng_uniform(seed, 8, t)};
    f->file = (calm_pool_file){.bits = f->bits, .limit = 0, .tables = f->tables, .n_tables = N_TABLES,
                               .table = N_TABLES, .asked = "`choice.size` 1KB", .what = "bytes", .unit = 8};
    f->b.pool.file = &f->file;
}

/* Returns the bits of a plan and a table in the file. */
static uint64_t bits_of(const filed *f, const size_t *option, size_t table)
{
    uint64_t bits = f->tables[table].bits;
    for (size_t j = 0; j < N_JOBS; j++)
        bits += f->bits[j * N_SCHEMES + option[j]];
    return bits;
}

/* Returns the least loss of all plans and tables within the limit. */
static double least_loss(filed *f, bool probed)
{
    double least = INFINITY, unused;
    size_t option[N_JOBS];
    for (size_t code = 0; code < N_PLANS; code++)
        for (size_t t = 0; t < N_TABLES; t++) {
            nth_plan(code, option);
            if (bits_of(f, option, t) <= f->file.limit)
                least = fmin(least, plain_loss(&f->b, option, probed, &unused) + f->tables[t].loss);
        }
    return least;
}

TEST(against_every_plan_and_table)
{
    const calm_requests requests = {.budget = INFINITY};
    for (uint64_t seed = 0; seed < 20; seed++)
        for (uint64_t bytes = 2500; bytes <= 4000; bytes += 250) {
            filed f;
            calm_solution found;
            size_t option[N_JOBS];
            double unused;
            make_filed(seed, &f);
            f.file.limit = 8 * bytes;
            const double least = least_loss(&f, true);
            if (!isfinite(least)) {
                ck_fails(calm_solve(ctx, &f.b.pool, &requests, &found), CALM_EARG, "`choice.size` 1KB");
                continue;
            }
            if (calm_solve(ctx, &f.b.pool, &requests, &found) == CALM_EARG) {    /* above the largest */
                calm_ctx_clear_failure(ctx);
                continue;
            }
            schemes_of(&found, option);
            ck_near(plain_loss(&f.b, option, true, &unused) + f.tables[found.table].loss, least, 1e-14 * (1 + least));
            ck_assert_uint_le(bits_of(&f, option, found.table), f.file.limit);
            ck_assert_uint_eq(found.bits + f.tables[found.table].bits, bits_of(&f, option, found.table));
        }
}
END_OF_TEST

/* Both ends are plans, one bit beyond is not; the message has them in whole bytes. */
TEST(ends)
{
    const calm_requests requests = {.budget = INFINITY};
    const size_t low[N_JOBS] = {0}, high[N_JOBS] = {2, 2, 2, 2, 2, 2};
    filed f;
    calm_solution found;
    size_t option[N_JOBS];
    make_filed(3, &f);
    for (size_t i = 0; i < N_JOBS * N_SCHEMES; i++)    /* rising in every job */
        f.bits[i] = (uint64_t)job_bits(&f.b, i / N_SCHEMES, i % N_SCHEMES);
    const uint64_t least = bits_of(&f, low, 2), most = bits_of(&f, high, 0);
    f.file.limit = least;
    ck_ok(calm_solve(ctx, &f.b.pool, &requests, &found));
    schemes_of(&found, option);
    ck_assert_uint_eq(found.table, 2);
    ck_assert_uint_eq(bits_of(&f, option, 2), least);
    f.file.limit = most;
    ck_ok(calm_solve(ctx, &f.b.pool, &requests, &found));
    f.file.limit = least - 1;
    ck_fails(calm_solve(ctx, &f.b.pool, &requests, &found), CALM_EARG,
             test_format("`choice.size` 1KB: files of the given schemes take from %.0f to %.0f bytes",
                         (double)least / 8, (double)most / 8));
    f.file.limit = most + 1;
    ck_fails(calm_solve(ctx, &f.b.pool, &requests, &found), CALM_EARG, "files of the given schemes take from");
}
END_OF_TEST

/* A table that is already decided excludes the others; a budget in bits has no file. */
TEST(decided_and_absent)
{
    const calm_requests requests = {.budget = INFINITY};
    filed f;
    calm_solution found;
    make_filed(5, &f);
    f.file.limit = 8 * 3500;
    f.file.table = 0;
    ck_ok(calm_solve(ctx, &f.b.pool, &requests, &found));
    ck_assert_uint_eq(found.table, 0);
    ck_assert_uint_eq(calm_budget_bits(&f.b.pool, INFINITY), f.file.limit - f.tables[0].bits);
    f.b.pool.file = NULL;
    ck_assert_uint_eq(calm_budget_bits(&f.b.pool, INFINITY), CALM_NO_LIMIT);
    ck_ok(calm_budget_check(ctx, &f.b.pool, &(calm_scope){0}, INFINITY));
}
END_OF_TEST

/* Without probes losses of units and of tables cannot be compared: the usual table that fits is taken. */
TEST(without_probes)
{
    const calm_requests requests = {.budget = INFINITY};
    filed f;
    calm_solution found;
    make_filed(7, &f);
    row(&f.b, 2, 0)->probe = row(&f.b, 2, 1)->probe = NAN;
    f.file.limit = 8 * 3300;
    ck_ok(calm_solve(ctx, &f.b.pool, &requests, &found));
    ck_assert_uint_ne(found.unprobed, 0);
    ck_assert_uint_eq(found.table, 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("pool_file",
                     (const TTest *[]){against_every_plan_and_table, ends, decided_and_absent, without_probes, NULL});
}
