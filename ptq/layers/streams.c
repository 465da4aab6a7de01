/* Parallel residual streams. */
#include "ptq/layers/streams.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

/* Channels that are mixed together: those of all streams fit into the first-level cache. */
#define CHANNELS ((size_t)64)

/* Lower bound of the mean square that divides a projected row. */
#define LEAST_SQUARE 1e-5

size_t calm_streams_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t rows = CALM_BYTES(float, n_tokens * config->hidden);
    const size_t branch = CALM_BYTES(float, n_tokens * config->streams.rank) + rows;
    if (!config->streams.n)
        return 0;
    /* After the block: rows, and either the per-layer input's buffers or further rows. */
    return calm_size_max(branch, rows + calm_size_max(rows, rows + calm_tail_scratch_bytes(config, n_tokens)));
}

/* ---- state of a step ---- */

typedef struct step {
    const calm_block *block;
    const calm_span *span;
    float *x;              /* [T, D] residual of the sublayers */
    float *rows, *more;    /* [T, D] each: buffers of the step */
    const float *terms;    /* [T, D] terms to add to x */
    size_t stream;         /* the stream that a step is about, if it is one */
} step;

/* Returns stream i of token t, [D]. */
static float *stream_of(const step *s, size_t t, size_t i)
{
    const calm_config *config = s->block->config;
    return s->span->carried + t * config->carried + config->streams.at + i * config->hidden;
}

/* Computes m(v) of a row; `room` [D] is scratch memory. */
static void modalities(const calm_block *block, const float *v, float *room, float m[CALM_STREAMS])
{
    const size_t hidden = block->config->hidden;
    calm_norm_rows(&block->streams.router_norm, v, 1, room);
    for (size_t i = 0; i < block->config->streams.n; i++)
        m[i] = (float)tanh(calm_vec_dot(hidden, block->streams.router + i * hidden, room) / (double)hidden);
}

static double mean_square(size_t n, const float *x)
{
    return calm_vec_dot(n, x, x) / (double)n;
}

/* Returns the factor that gives y the root mean square of x. */
static float as_long_as(size_t n, const float *x, const float *y)
{
    return (float)(sqrt(mean_square(n, x)) / sqrt(fmax(mean_square(n, y), LEAST_SQUARE)));
}

/* ---- before attention ---- */

/* Sets stream 0 to the input of block 0. */
static void first_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    for (size_t t = first; t < first + n; t++)
        memcpy(stream_of(s, t, 0), s->x + t * hidden, hidden * sizeof(float));
}

/* Sets another stream to its projection, s->rows, scaled to the length of the input. */
static void split_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    for (size_t t = first; t < first + n; t++) {
        const float *y = s->rows + t * hidden;
        float *to = stream_of(s, t, s->stream);
        memcpy(to, y, hidden * sizeof *to);
        calm_vec_scale(hidden, as_long_as(hidden, s->x + t * hidden, y), to);
    }
}

/* Makes all streams from the input of block 0; s->rows holds one projection at a time. */
static calm_status split(calm_ctx *ctx, step *s)
{
    const size_t n = s->span->n_tokens;
    calm_parallel_each_rows(ctx, n, first_rows, s);
    for (size_t i = 1; i < s->block->config->streams.n; i++) {
        s->stream = i;
        CALM_TRY(calm_weight_apply(ctx, &s->block->streams.split[i - 1], s->x, n, s->rows));
        calm_parallel_each_rows(ctx, n, split_rows, s);
    }
    return CALM_OK;
}

/* Computes P_b of some channels in place, with coefficients [n, n]; each reads all S_a. */
static void mix_channels(const step *s, size_t t, size_t first, size_t n, const float *coefficients)
{
    const size_t streams = s->block->config->streams.n;
    float old[CALM_STREAMS][CHANNELS];
    for (size_t a = 0; a < streams; a++)
        memcpy(old[a], stream_of(s, t, a) + first, n * sizeof(float));
    for (size_t b = 0; b < streams; b++)
        for (size_t a = 0; a < streams; a++)
            calm_vec_axpy(n, coefficients[b * streams + a], old[a], stream_of(s, t, b) + first);
}

/* Replaces S of all streams by P, and sets x = P_k. */
static void predict_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const calm_config *config = s->block->config;
    const size_t hidden = config->hidden, streams = config->streams.n;
    for (size_t t = first; t < first + n; t++) {
        const float *active = stream_of(s, t, config->streams.active);
        float m[CALM_STREAMS], coefficients[CALM_STREAMS * CALM_STREAMS];
        modalities(s->block, active, s->rows + t * hidden, m);
        for (size_t i = 0; i < streams * streams; i++)
            coefficients[i] = (float)calm_vec_dot(streams, s->block->streams.predict + i * streams, m);
        for (size_t c = 0; c < hidden; c += CHANNELS)
            mix_channels(s, t, c, calm_size_min(CHANNELS, hidden - c), coefficients);
        memcpy(s->x + t * hidden, active, hidden * sizeof(float));
    }
}

calm_status calm_streams_before(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                                const calm_span *span)
{
    const calm_config *config = block->config;
    step s = {.block = block, .span = span, .x = x};
    if (!config->streams.n || sublayer != CALM_SUBLAYER_ATTENTION)
        return CALM_OK;
    if (!span->carried)
        return calm_fail(ctx, CALM_EARG, "block %zu reads %zu residual streams, and the span has none", block->index,
                         config->streams.n);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s.rows, span->n_tokens * config->hidden));
    if (block->index == 0)
        CALM_TRY(split(ctx, &s));
    calm_parallel_each_rows(ctx, span->n_tokens, predict_rows, &s);
    return CALM_OK;
}

/* ---- next to attention ---- */

/* Adds s->terms to x. */
static void add_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    calm_vec_add(n * hidden, s->terms + first * hidden, s->x + first * hidden);
}

calm_status calm_streams_branch(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const float *h,
                                float *x, const calm_span *span)
{
    const calm_config *config = block->config;
    const calm_streams *streams = &block->streams;
    const size_t n = span->n_tokens;
    step s = {.block = block, .span = span, .x = x};
    float *narrow;
    if (!config->streams.n || sublayer != CALM_SUBLAYER_ATTENTION)
        return CALM_OK;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, narrow, n * config->streams.rank));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s.rows, n * config->hidden));
    /* Two narrow products instead of one square one. */
    CALM_TRY(calm_weight_apply(ctx, &streams->left, h, n, narrow));
    CALM_TRY(calm_weight_apply(ctx, &streams->right, narrow, n, s.rows));
    calm_norm_all(ctx, &streams->laurel_norm, s.rows, n, s.rows);
    s.terms = s.rows;
    calm_parallel_each_rows(ctx, n, add_rows, &s);
    /* h itself is added, too. */
    s.terms = h;
    calm_parallel_each_rows(ctx, n, add_rows, &s);
    return CALM_OK;
}

/* ---- after a sublayer ---- */

/* Divides the sum of the terms by the root of two. */
static void halve_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    calm_vec_scale(n * hidden, (float)sqrt(0.5), s->x + first * hidden);
}

/* Corrects all streams by the sublayers' change of one; writes the per-layer input's gate rows to s->rows. */
static void correct_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const calm_config *config = s->block->config;
    const calm_streams *own = &s->block->streams;
    const size_t hidden = config->hidden, streams = config->streams.n;
    for (size_t t = first; t < first + n; t++) {
        const float *active = stream_of(s, t, config->streams.active);
        float m[CALM_STREAMS], *x = s->x + t * hidden, *rows = s->rows + t * hidden;
        modalities(s->block, x, rows, m);
        /* The difference is kept, since its stream changes too. */
        memcpy(rows, x, hidden * sizeof *rows);
        calm_vec_axpy(hidden, -1, active, rows);
        for (size_t i = 0; i < streams; i++)
            calm_vec_axpy(hidden, (float)(1 + calm_vec_dot(streams, own->correct + i * streams, m)), rows,
                          stream_of(s, t, i));
        /* From here on the row is the input of the gate. */
        memcpy(rows, active, hidden * sizeof *rows);
        if (own->scale)
            calm_vec_mul(hidden, own->scale, rows);
    }
}

/* Adds the per-layer input's output, s->more, to all streams except the first; sets x to the stream that the next block
 * reads. */
static void input_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const calm_config *config = s->block->config;
    const size_t hidden = config->hidden;
    for (size_t t = first; t < first + n; t++) {
        for (size_t i = 1; i < config->streams.n; i++)
            calm_vec_add(hidden, s->more + t * hidden, stream_of(s, t, i));
        memcpy(s->x + t * hidden, stream_of(s, t, config->streams.active), hidden * sizeof(float));
    }
}

/* Copies one stream to the matrix s->rows. */
static void gather_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    for (size_t t = first; t < first + n; t++)
        memcpy(s->rows + t * hidden, stream_of(s, t, s->stream), hidden * sizeof(float));
}

/* Sets x to the first stream, or adds another one's projection, s->more. */
static void merge_rows(size_t first, size_t n, void *user)
{
    const step *s = user;
    const size_t hidden = s->block->config->hidden;
    const float share = 1 / (float)s->block->config->streams.n;
    for (size_t t = first; t < first + n; t++) {
        const float *zero = stream_of(s, t, 0), *y = s->more + t * hidden;
        float *x = s->x + t * hidden;
        if (s->stream == 0)
            memset(x, 0, hidden * sizeof *x);
        calm_vec_axpy(hidden, s->stream ? share * as_long_as(hidden, zero, y) : share, s->stream ? y : zero, x);
    }
}

/* Sets x to the mean of the first stream and the projections of the others, each as long as the first. */
static calm_status merge(calm_ctx *ctx, step *s)
{
    const size_t n = s->span->n_tokens;
    for (s->stream = 0; s->stream < s->block->config->streams.n; s->stream++) {
        if (s->stream > 0) {
            calm_parallel_each_rows(ctx, n, gather_rows, s);
            CALM_TRY(calm_weight_apply(ctx, &s->block->streams.merge[s->stream - 1], s->rows, n, s->more));
        }
        calm_parallel_each_rows(ctx, n, merge_rows, s);
    }
    return CALM_OK;
}

calm_status calm_streams_after(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, float *x,
                               const calm_span *span, const calm_observer *observer)
{
    const calm_config *config = block->config;
    const size_t n = span->n_tokens;
    step s = {.block = block, .span = span, .x = x};
    if (!config->streams.n)
        return CALM_OK;
    /* The streams change after the MLP; after attention only x does. */
    if (sublayer == CALM_SUBLAYER_ATTENTION) {
        calm_parallel_each_rows(ctx, n, halve_rows, &s);
        return CALM_OK;
    }
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s.rows, n * config->hidden));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s.more, n * config->hidden));
    calm_parallel_each_rows(ctx, n, correct_rows, &s);
    CALM_TRY(calm_tail_input(ctx, block, s.rows, span, s.more, observer, NULL));
    calm_parallel_each_rows(ctx, n, input_rows, &s);
    return block->index + 1 == config->n_blocks ? merge(ctx, &s) : CALM_OK;
}
