/* A pool of six jobs in two blocks at three schemes, and an independent choice from it, for tests of the solver. */
#ifndef CALM_TESTS_SMALL_POOL_H
#define CALM_TESTS_SMALL_POOL_H

#include "ptq/base/rng.h"
#include "ptq/plan/solve.h"
#include "tests/support/harness.h"

enum { N_JOBS = 6, N_SCHEMES = 3, N_ALGORITHMS = 2, N_ENTRIES = N_SCHEMES * N_ALGORITHMS, N_PLANS = 729 /* 3^6 */ };

/* A pool of six jobs in two blocks, which a test may change before it solves. */
typedef struct bench {
    calm_pool_entry entries[N_ENTRIES];
    calm_pool_job jobs[N_JOBS];
    calm_pool_cell rows[N_JOBS * N_ENTRIES];
    calm_scheme schemes[N_SCHEMES];
    calm_pool pool;
} bench;

static const char *const schemes[N_SCHEMES] = {"w2a16_g16", "w3a16_g16", "w4a16_g16"};
static const char *const algorithms[N_ALGORITHMS] = {"rtn", "gptq"};
static const char *const roles[3] = {"qkv", "o", "down"};

static void make(uint64_t seed, bench *b)
{
    uint64_t index = 0;
    for (size_t i = 0; i < N_ENTRIES; i++) {
        calm_pool_entry *entry = &b->entries[i];
        *entry = (calm_pool_entry){.algorithm = algorithms[i % N_ALGORITHMS], .of_scheme = i / N_ALGORITHMS};
        ck_ok(calm_scheme_parse(ctx, schemes[entry->of_scheme], &entry->scheme));
        entry->scheme_name = schemes[entry->of_scheme];
        entry->chain = test_format("%s@1", entry->algorithm);
        entry->name = test_format("%s %s", entry->algorithm, entry->scheme_name);
        b->schemes[entry->of_scheme] = entry->scheme;
    }
    for (size_t j = 0; j < N_JOBS; j++) {
        const char *name = test_format("model.layers.%zu.%s", j / 3, roles[j % 3]);
        b->jobs[j] = (calm_pool_job){.id = (int64_t)j + 1, .name = name, .unit = name, .role = roles[j % 3],
                                      .out = 16 * (1 + j % 3), .in = 32, .crest = NAN};
        for (size_t i = 0; i < N_ENTRIES; i++)
            b->rows[j * N_ENTRIES + i] = (calm_pool_cell){
                .id = (int64_t)(j * N_ENTRIES + i) + 1, .key = test_format("%03zu", (j * 7 + i * 5) % 100), .blob = "b",
                .metric = calm_rng_uniform(seed, 0, index) / (double)(1 << 2 * (i / N_ALGORITHMS)),
                .tie = calm_rng_uniform(seed, 1, index), .probe = i < N_ALGORITHMS ? calm_rng_uniform(seed, 2,
                                                                                                      index) : NAN};
        index++;
        for (size_t i = 0; i < N_ENTRIES; i++, index++)
            b->rows[j * N_ENTRIES + i].metric *= 0.5 + calm_rng_uniform(seed, 3, index);
    }
    b->pool = (calm_pool){.entries = b->entries, .n_entries = N_ENTRIES, .n_schemes = N_SCHEMES, .jobs = b->jobs,
                                .n_jobs = N_JOBS, .cells = b->rows, .schemes = b->schemes, .numbered = true,
                                .unit = CALM_UNIT_JOB, .shortlist = 1.05, .metric = "cka_token",
                                .remedy = "measure it"};
    ck_ok(calm_pool_index(ctx, &b->pool));
}

static calm_pool_cell *row(bench *b, size_t job, size_t entry)
{
    return &b->rows[job * N_ENTRIES + entry];
}

/* Returns the winner among entries first .. first + n - 1 by the rule "token", independently of the solver. */
static size_t plain_winner(bench *b, size_t job, size_t first, size_t n)
{
    size_t best = first, winner = SIZE_MAX;
    for (size_t i = first; i < first + n; i++)
        if (row(b, job, i)->metric < row(b, job, best)->metric)
            best = i;
    for (size_t i = first; i < first + n; i++)
        if (row(b, job, i)->metric <= 1.05 * row(b, job, best)->metric &&
            (winner == SIZE_MAX || row(b, job, i)->tie < row(b, job, winner)->tie))
            winner = i;
    return winner;
}

static double job_bits(const bench *b, size_t job, size_t scheme)
{
    static const double per_weight[N_SCHEMES] = {3, 4, 5};    /* codes and a scale of 16 bits per 16 weights */
    return per_weight[scheme] * (double)b->jobs[job].out * (double)b->jobs[job].in;
}

/* Writes plan `code` (0 .. N_PLANS - 1): the number of a scheme for every job. */
static inline void nth_plan(size_t code, size_t option[N_JOBS])
{
    for (size_t j = 0; j < N_JOBS; j++, code /= N_SCHEMES)
        option[j] = code % N_SCHEMES;
}

/* Writes the schemes that a solution chose. */
static inline void schemes_of(const calm_solution *found, size_t option[N_JOBS])
{
    for (size_t j = 0; j < N_JOBS; j++)
        option[j] = found->choice[j] / N_ALGORITHMS;
}

/* Returns the loss of a plan; option[j] is the number of a scheme. */
static double plain_loss(bench *b, const size_t *option, bool probed, double *bits)
{
    double loss = 0, weights = 0;
    *bits = 0;
    for (size_t j = 0; j < N_JOBS; j++)
        weights += (double)(b->jobs[j].out * b->jobs[j].in);
    for (size_t j = 0; j < N_JOBS; j++) {
        const size_t narrow = plain_winner(b, j, 0, N_ALGORITHMS);
        const calm_pool_cell *least = row(b, j, narrow);
        const size_t entry = plain_winner(b, j, option[j] * N_ALGORITHMS, N_ALGORITHMS);
        loss += row(b, j, entry)->metric *
                (probed ? least->probe / least->metric : (double)(b->jobs[j].out * b->jobs[j].in) / weights);
        *bits += job_bits(b, j, option[j]);
    }
    *bits /= weights;
    return loss;
}

#endif
