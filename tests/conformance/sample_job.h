/* Makes a quantization job of random numbers, for the tests of algorithms. */
#ifndef CALM_TESTS_SAMPLE_JOB_H
#define CALM_TESTS_SAMPLE_JOB_H

#include "ptq/base/rng.h"
#include "tests/support/harness.h"
#include "tests/support/normals.h"

/* A job and the data that it points to, allocated in the test's context. */
typedef struct sample {
    size_t in, rows;
    float *w[2];                /* weights of the two linears */
    float *x;                   /* inputs [rows, in]   */
    double *gram, *sum, *sumsq, *sumabs;
    float *absmax;
    calm_linear linears[2];
    calm_stats stats;
    calm_job job;
} sample;

/* Computes the calibration statistics of the current inputs. */
static void measure(sample *s)
{
    memset(s->gram, 0, s->in * s->in * sizeof *s->gram);
    for (size_t j = 0; j < s->in; j++)
        s->sum[j] = s->sumsq[j] = s->sumabs[j] = s->absmax[j] = 0;
    for (size_t t = 0; t < s->rows; t++) {
        const float *x = s->x + t * s->in;
        for (size_t i = 0; i < s->in; i++) {
            for (size_t j = 0; j <= i; j++)
                s->gram[i * s->in + j] += (double)x[i] * x[j];
            s->sum[i] += x[i];
            s->sumsq[i] += (double)x[i] * x[i];
            s->sumabs[i] += fabsf(x[i]);
            s->absmax[i] = fmaxf(s->absmax[i], fabsf(x[i]));
        }
    }
    for (size_t i = 0; i < s->in; i++)
        for (size_t j = 0; j < i; j++)
            s->gram[j * s->in + i] = s->gram[i * s->in + j];
    s->stats = (calm_stats){s->rows, s->gram, s->absmax, s->sum, s->sumsq, s->sumabs, s->x, s->rows, s->gram};
}

/* Makes a job of two linears with random weights, the second with a bias, on inputs of which every 13th channel has
 * 20 times the magnitude. */
static void make_sample(sample *s, size_t out, size_t in, size_t rows, const char *scheme)
{
    *s = (sample){.in = in, .rows = rows};
    ck_ok(CALM_NEW(ctx, ctx->out, s->x, rows * in));
    ck_ok(CALM_NEW(ctx, ctx->out, s->gram, in * in));
    ck_ok(CALM_NEW(ctx, ctx->out, s->sum, in));
    ck_ok(CALM_NEW(ctx, ctx->out, s->sumsq, in));
    ck_ok(CALM_NEW(ctx, ctx->out, s->sumabs, in));
    ck_ok(CALM_NEW(ctx, ctx->out, s->absmax, in));
    for (size_t l = 0; l < 2; l++) {
        size_t n = l ? out - out / 3 : out / 3;
        ck_ok(CALM_NEW(ctx, ctx->out, s->w[l], n * in));
        const double *normals = test_normals(11, l, n * in);
        for (size_t i = 0; i < n * in; i++)
            s->w[l][i] = (float)(0.05 * normals[i]);
        s->linears[l] = (calm_linear){l ? "second" : "first", n, in, s->w[l], l == 1};
    }
    const double *normals = test_normals(11, 2, rows * in);
    for (size_t t = 0; t < rows; t++) {
        const double row = 2 * calm_rng_normal(11, 3, t);
        for (size_t j = 0; j < in; j++) {
            const double x = normals[t * in + j] + row;
            s->x[t * in + j] = (float)(j % 13 == 5 ? 20 * x : x);
        }
    }
    measure(s);
    s->job = (calm_job){.name = "job", .linears = s->linears, .n_linears = 2, .stats = &s->stats, .can_absorb = true};
    ck_ok(calm_scheme_parse(ctx, scheme, &s->job.scheme));
}

#endif
