/* Compares captures to the bit and Gram matrices with naive ones. */
#include "tests/support/same_capture.h"

#include <math.h>

#include "tests/support/harness.h"

static void same_bytes(const void *a, const void *b, size_t n)
{
    ck_assert(!a == !b);
    ck_assert(!a || memcmp(a, b, n) == 0);
}

void same_accumulators(const calm_actstat_acc *a, const calm_actstat_acc *b)
{
    calm_actstat_summary first, second;
    ck_assert(!a == !b);
    if (!a)
        return;
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    ck_assert(a->sum == b->sum && a->sumsq == b->sumsq && a->sumabs == b->sumabs && a->min == b->min &&
              a->max == b->max);
    same_bytes(a->histogram, b->histogram, sizeof a->histogram);
    ck_assert_uint_eq(a->n_top, b->n_top);
    same_bytes(a->top, b->top, a->n_top * sizeof *a->top);
    same_bytes(a->peak, b->peak, a->n_tokens * sizeof *a->peak);
    same_bytes(a->ratio, b->ratio, a->n_tokens * sizeof *a->ratio);
    memset(&first, 0, sizeof first), memset(&second, 0, sizeof second);
    calm_actstat_summarize(a, &first);
    calm_actstat_summarize(b, &second);
    same_bytes(&first, &second, sizeof first);
}

void same_job(const calm_job_capture *a, const calm_job_capture *b, size_t score_rows)
{
    const calm_stats *x = &a->stats, *y = &b->stats;
    const size_t width = a->width;
    ck_assert(a->used == b->used);
    ck_assert_uint_eq(width, b->width);
    ck_assert_uint_eq(x->rows, y->rows);
    same_bytes(x->gram, y->gram, width * width * sizeof *x->gram);
    ck_assert_uint_eq(x->n_samples, y->n_samples);
    same_bytes(x->samples, y->samples, x->n_samples * width * sizeof *x->samples);
    same_bytes(x->absmax, y->absmax, width * sizeof *x->absmax);
    same_bytes(x->sum, y->sum, width * sizeof *x->sum);
    same_bytes(x->sumsq, y->sumsq, width * sizeof *x->sumsq);
    same_bytes(x->sumabs, y->sumabs, width * sizeof *x->sumabs);
    same_bytes(a->score_input, b->score_input, score_rows * width * sizeof *a->score_input);
}

void same_expert_capture(const calm_capture *a, const calm_capture *b, size_t width)
{
    ck_assert_uint_eq(a->score_rows, b->score_rows);
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
        same_job(&a->job[kind], &b->job[kind], a->score_rows);
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++)
        same_accumulators(a->activations[hook], b->activations[hook]);
    ck_assert(!a->score_output == !b->score_output);
    ck_assert(!a->score_output ||
              memcmp(a->score_output, b->score_output, a->score_rows * width * sizeof(float)) == 0);
}

void near_gram(const double *gram, const float *x, size_t n, size_t width)
{
    for (size_t i = 0; i < width; i++)
        for (size_t j = 0; j < width; j++) {
            double sum = 0, size = 0;
            for (size_t t = 0; t < n; t++) {
                const double term = (double)x[t * width + i] * (double)x[t * width + j];
                sum += term;
                size += fabs(term);
            }
            ck_near(gram[i * width + j], sum, 30 * 0x1p-24 * size);
            ck_assert(gram[i * width + j] == gram[j * width + i]);
        }
}
