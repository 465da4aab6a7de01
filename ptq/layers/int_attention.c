/* Attention in integer arithmetic (ptq/tensor/attend.h), for blocks of integer linears. */
#include "ptq/layers/attention_impl.h"

#include "ptq/base/threads.h"
#include "ptq/tensor/attend.h"

bool calm_heads_use_ints(const calm_ctx *ctx, const calm_block *block, const calm_heads *a)
{
    const calm_weight *o = &block->weight[CALM_ROLE_O];
    /* Attention stays in float where something other than the scale changes scores; for few queries after a long past,
     * whose keys would be packed for each; and for windows that would mostly be padding. */
    return ctx->int_attention && a->span->n_tokens >= CALM_ATTEND_KEYS / 2 && o->ints && o->act_bits && !a->shared &&
           !a->distance && !a->sinks && !(a->config->attention_cap > 0) && !a->span->past;
}

typedef struct whole_task {
    const calm_heads *a;
    calm_int_set set;
    float *context;
    size_t parts;    /* number of parts of a key head's queries */
} whole_task;

/* Returns the number of blocks of queries in one head. */
static size_t blocks_of(const calm_heads *a)
{
    return (a->span->n_tokens + CALM_ATTEND_ROWS - 1) / CALM_ATTEND_ROWS;
}

/* Computes block `index` of a head's queries. */
static void attend_block(const whole_task *task, const calm_attend_keys *keys, size_t head, size_t index)
{
    const calm_heads *a = task->a;
    const size_t d = a->v_width, width = a->config->n_heads * d, first = index * CALM_ATTEND_ROWS;
    calm_attend_queries queries = {.n = calm_size_min(a->span->n_tokens - first, CALM_ATTEND_ROWS),
                                   .q = a->q + first * a->q_stride + head * d,
                                   .q_stride = a->q_stride,
                                   .scale = a->config->attention_scale,
                                   .context = task->context + first * width + head * d,
                                   .stride = width};
    for (size_t r = 0; r < queries.n; r++) {
        queries.first[r] = calm_heads_first_key(a, first + r);
        queries.end[r] = calm_heads_end_key(a, first + r);
    }
    calm_attend(task->set, keys, &queries);
}

/* Computes one part of the queries that share a key head. */
static calm_status attend_part(calm_ctx *ctx, size_t index, void *user)
{
    const whole_task *task = user;
    const calm_heads *a = task->a;
    const size_t kv_head = index / task->parts, part = index % task->parts;
    const size_t n = a->span->n_tokens, group = a->config->n_heads / a->config->n_kv, blocks = blocks_of(a),
                 all = group * blocks;
    calm_attend_keys keys;
    char *memory;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, memory, calm_attend_bytes(n, a->v_width)));
    calm_attend_pack(n, a->v_width, a->k + kv_head * a->kv_step, a->v + kv_head * a->kv_step, a->kv_stride, memory,
                     &keys);
    for (size_t i = part * all / task->parts; i < (part + 1) * all / task->parts; i++)
        attend_block(task, &keys, kv_head * group + i / blocks, i % blocks);
    return CALM_OK;
}

calm_status calm_heads_attend_ints(calm_ctx *ctx, const calm_heads *a, float *context)
{
    const size_t n_kv = a->config->n_kv, threads = (size_t)ctx->n_threads;
    /* Keys are packed for each part, so there are only as many parts as give every thread one. */
    whole_task task = {.a = a, .context = context, .parts = (threads + n_kv - 1) / n_kv};
    CALM_TRY(calm_int_choose(ctx, &task.set));
    return calm_parallel_for(ctx, n_kv * task.parts, attend_part, &task);
}
