/* Tuning of one block's scales and norms. */
#include "algorithms/tune.h"

#include <string.h>

#include "algorithms/adam.h"
#include "ptq/base/threads.h"

/* One array that is tuned: the scales of a linear, or the values of a vector. */
typedef struct part {
    calm_learn_linear *linear;     /* NULL: a vector */
    calm_learn_vector *vector;
    float *values;                 /* [n] the linear's or the vector's own */
    float *start, *best;           /* [n] */
    size_t n;
    calm_adam adam;
} part;

struct calm_tune {
    part *parts;
    size_t n;
};

/* Adds an array; its present values are its start and its best values. */
static calm_status add(calm_ctx *ctx, calm_tune *to, part it)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, it.start, it.n));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, it.best, it.n));
    CALM_TRY(calm_adam_new(ctx, ctx->out, it.n, &it.adam));
    memcpy(it.start, it.values, it.n * sizeof *it.start);
    memcpy(it.best, it.values, it.n * sizeof *it.best);
    to->parts[to->n++] = it;
    return CALM_OK;
}

calm_status calm_tune_new(calm_ctx *ctx, calm_learn_linear *linears, size_t n_linears, calm_learn_vector *vectors,
                          size_t n_vectors, calm_tune **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, (*out)->parts, n_linears + n_vectors));
    for (size_t i = 0; i < n_linears; i++)
        if (linears[i].grad)
            CALM_TRY(add(ctx, *out, (part){.linear = &linears[i], .values = linears[i].scales,
                                           .n = linears[i].out * linears[i].n_groups}));
    for (size_t i = 0; i < n_vectors; i++)
        CALM_TRY(add(ctx, *out, (part){.vector = &vectors[i], .values = vectors[i].values, .n = vectors[i].n}));
    return CALM_OK;
}

/* Start, best, and Adam's three doubles. */
static size_t part_bytes(size_t n)
{
    return 2 * CALM_BYTES(float, n) + calm_adam_bytes(n);
}

size_t calm_tune_new_bytes(const calm_learn_linear *linears, size_t n_linears, const calm_learn_vector *vectors,
                           size_t n_vectors)
{
    size_t bytes = CALM_BYTES(calm_tune, 1) + CALM_BYTES(part, n_linears + n_vectors);
    for (size_t i = 0; i < n_linears; i++)
        bytes += part_bytes(linears[i].out * linears[i].n_groups);
    for (size_t i = 0; i < n_vectors; i++)
        bytes += part_bytes(vectors[i].n);
    return bytes;
}

/* A calm_row_range_fn over the rows of a linear, or over its blocks of rows that share scales. */
static calm_status step_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    /* Tasks write different cells: each cell has its own factor, moments and gradient. */
    const part *at = user;
    const size_t groups = at->linear->n_groups, rows = calm_scheme_rows(&at->linear->scheme);
    for (size_t row = first * rows; row < calm_size_min((first + n) * rows, at->linear->out); row += rows) {
        float *values = at->values + row * groups;
        for (size_t g = 0, count; g < groups; g += count) {
            count = calm_adam_together(at->linear, g);
            CALM_TRY(calm_adam_step_scales(ctx, &at->adam, at->linear, row, g, count, at->start + row * groups + g,
                                           values + g));
        }
        /* Rows that share scales get the first row's. */
        for (size_t r = 1; r < rows && row + r < at->linear->out; r++)
            memcpy(values + r * groups, values, groups * sizeof *values);
    }
    return CALM_OK;
}

calm_status calm_tune_step(calm_ctx *ctx, calm_tune *tune, double rate, size_t t)
{
    for (size_t i = 0; i < tune->n; i++) {
        part *at = &tune->parts[i];
        const calm_learn_linear *linear = at->linear;
        calm_adam_begin_step(&at->adam, rate, t);
        if (linear)
            CALM_TRY(calm_parallel_rows(ctx, calm_scheme_row_blocks(&linear->scheme, linear->out), step_rows, at));
        else
            CALM_TRY(calm_adam_step_vector(ctx, &at->adam, at->start, at->vector));
    }
    return CALM_OK;
}

void calm_tune_keep(calm_tune *tune)
{
    for (size_t i = 0; i < tune->n; i++)
        memcpy(tune->parts[i].best, tune->parts[i].values, tune->parts[i].n * sizeof(float));
}

void calm_tune_restore(calm_tune *tune)
{
    for (size_t i = 0; i < tune->n; i++)
        memcpy(tune->parts[i].values, tune->parts[i].best, tune->parts[i].n * sizeof(float));
}

void calm_tune_restart(calm_tune *tune)
{
    calm_tune_restore(tune);
    for (size_t i = 0; i < tune->n; i++) {
        part *at = &tune->parts[i];
        memcpy(at->start, at->best, at->n * sizeof(float));
        calm_adam_reset(&at->adam, at->n);
    }
}
