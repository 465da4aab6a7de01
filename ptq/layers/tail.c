/* The tail of a block. */
#include "ptq/layers/tail.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

/* Computes the rows e [T, D], the input of block 0. */
static calm_status read_rows(calm_ctx *ctx, const calm_block *block, const calm_span *span, float *e)
{
    const size_t width = block->config->hidden;
    const calm_tail *tail = &block->tail;
    if (!span->ids)
        return calm_fail(ctx, CALM_EARG, "block %zu reads token ids, and the span has none", block->index);
    for (size_t t = 0; t < span->n_tokens; t++) {
        /* Ids come from token files, which are untrusted. */
        if (span->ids[t] >= block->config->vocab)
            return calm_fail(ctx, CALM_EARG, "token id %u, but the vocabulary has %zu", span->ids[t],
                             block->config->vocab);
        CALM_TRY(calm_tensor_part_to_f32(ctx, tail->embed, span->ids[t] * width, width, e + t * width));
    }
    /* Times sqrt(D), like the input of block 0. */
    calm_vec_scale(span->n_tokens * width, block->config->embedding_scale, e);
    return CALM_OK;
}

/* Computes p [T, P] from the output of C_b. */
static calm_status add_table(calm_ctx *ctx, const calm_block *block, const calm_span *span, float *p)
{
    const calm_config *config = block->config;
    const calm_tail *tail = &block->tail;
    const size_t n = span->n_tokens, width = config->per_layer, all = config->n_blocks * width;
    float *row;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, row, width));
    calm_vec_scale(n * width, (float)(1 / sqrt((double)config->hidden)), p);
    calm_norm_all(ctx, &tail->context_norm, p, n, p);
    /* The columns of this block in the token's row. */
    for (size_t t = 0; t < n; t++) {
        /* The table may have fewer rows than the vocabulary; further ids read row 0. */
        const size_t id = span->ids[t] < config->per_layer_rows ? span->ids[t] : 0;
        CALM_TRY(calm_tensor_part_to_f32(ctx, tail->table, id * all + block->index * width, width, row));
        calm_vec_scale(width, (float)sqrt((double)width), row);
        calm_vec_add(width, row, p + t * width);
    }
    calm_vec_scale(n * width, (float)sqrt(0.5), p);
    return CALM_OK;
}

typedef struct end_task {
    size_t width;
    float scale;
    const float *y;    /* NULL: nothing to add */
    float *x;
} end_task;

/* Computes x = s (x + y); threads share the rows, also where a window runs alone. */
static void end_rows(size_t first, size_t n, void *user)
{
    const end_task *task = user;
    const size_t at = first * task->width;
    if (task->y)
        calm_vec_add(n * task->width, task->y + at, task->x + at);
    if (task->scale != 1)
        calm_vec_scale(n * task->width, task->scale, task->x + at);
}

/* Computes p [T, P] of the span's tokens; `rows` [T, D] is scratch memory. */
static calm_status make_table(calm_ctx *ctx, const calm_block *block, const calm_span *span, float *rows, float *p)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(read_rows(ctx, block, span, rows));
    CALM_TRY(calm_weight_apply(ctx, &block->tail.context, rows, span->n_tokens, p));
    return add_table(ctx, block, span, p);
}

calm_status calm_tail_input(calm_ctx *ctx, const calm_block *block, const float *x, const calm_span *span, float *out,
                            const calm_observer *observer, const calm_tail_tape *tape)
{
    const calm_config *config = block->config;
    const calm_tail *tail = &block->tail;
    const size_t n = span->n_tokens, width = config->per_layer;
    float *p = tape ? tape->p : NULL, *raw = tape ? tape->raw : out, *g;
    CALM_SCOPED_SCRATCH(ctx);
    if (!tape)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, p, n * width));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, g, n * width));
    /* `out` is written at the end, so until then it holds the rows e. */
    CALM_TRY(make_table(ctx, block, span, out, p));
    CALM_TRY(calm_weight_apply(ctx, &tail->gate, x, n, g));
    /* The backward pass needs the input of the activation function. */
    if (tape)
        memcpy(tape->gate, g, n * width * sizeof *g);
    calm_activate(config->activation, n * width, g);
    calm_vec_mul(n * width, p, g);
    CALM_TRY(calm_observe(observer, ctx,
                          &(calm_observation){.hook = CALM_HOOK_LAYER_INPUT, .expert = CALM_NO_EXPERT,
                                              .window = span->window, .x = g, .n_rows = n, .width = width}));
    CALM_TRY(calm_weight_apply(ctx, &tail->projection, g, n, raw));
    calm_norm_all(ctx, &tail->norm, raw, n, out);
    return CALM_OK;
}

/* Adds the output of the per-layer input to x. */
static calm_status add_input(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                             const calm_observer *observer, const calm_tail_tape *tape)
{
    const size_t n = span->n_tokens, hidden = block->config->hidden;
    float *rows;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, n * hidden));
    CALM_TRY(calm_tail_input(ctx, block, x, span, rows, observer, tape));
    /* The factor s follows in calm_tail_run(), since it multiplies both terms. */
    calm_parallel_each_rows(ctx, n, end_rows, &(end_task){hidden, 1, rows, x});
    return CALM_OK;
}

calm_status calm_tail_run(calm_ctx *ctx, const calm_block *block, float *x, const calm_span *span,
                          const calm_observer *observer, const calm_tail_tape *tape)
{
    const calm_tail *tail = &block->tail;
    if (tail->gate.w)
        CALM_TRY(add_input(ctx, block, x, span, observer, tape));
    if (!block->config->arch->names->tail)
        return CALM_OK;
    calm_parallel_each_rows(ctx, span->n_tokens, end_rows,
                            &(end_task){block->config->hidden, tail->scale, NULL, x});
    return CALM_OK;
}

size_t calm_tail_scratch_bytes(const calm_config *config, size_t n_tokens)
{
    const size_t width = config->per_layer;
    /* rows, p and g, and a row of the table. */
    return width ? CALM_BYTES(float, n_tokens * config->hidden) + 2 * CALM_BYTES(float, n_tokens * width) +
                       CALM_BYTES(float, width)
                 : 0;
}
