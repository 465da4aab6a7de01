/* Attention with integer products: every query by itself, with its visible keys counted here; and which blocks use
 * it. */
#include "ptq/layers/attention_impl.h"

#include <string.h>

#include "ptq/base/rng.h"
#include "ptq/tensor/attend.h"
#include "ptq/weights/int_linear.h"
#include "tests/support/harness.h"

enum { T = 75, HEADS = 6, KV = 2, D = 20, Q_WIDTH = HEADS * D, KV_WIDTH = KV * D };

/* Heads of one window, and all that they point to. */
typedef struct setup {
    calm_config config;
    calm_span span;
    uint32_t positions[T];
    float q[T * (Q_WIDTH + 1)], k[T * KV_WIDTH], v[T * KV_WIDTH];
    calm_heads heads;
} setup;

/* Positions are indices, or skip some. */
static setup *new_setup(bool both_ways, size_t window, bool skipping)
{
    setup *s;
    ck_ok(CALM_NEW(ctx, ctx->out, s, 1));
    for (size_t t = 0; t < T; t++)
        s->positions[t] = (uint32_t)(t + t / 7 * 3);
    for (size_t i = 0; i < T * (Q_WIDTH + 1); i++)
        s->q[i] = (float)calm_rng_normal(1, 0, i);
    for (size_t i = 0; i < T * KV_WIDTH; i++) {
        s->k[i] = (float)calm_rng_normal(2, 0, i);
        s->v[i] = (float)calm_rng_normal(3, 0, i);
    }
    s->config = (calm_config){.n_heads = HEADS, .n_kv = KV, .head_dim = D, .both_ways = both_ways,
                              .attention_scale = 0.25f};
    s->span = (calm_span){.n_tokens = T, .positions = skipping ? s->positions : NULL};
    s->heads = (calm_heads){.config = &s->config, .span = &s->span, .q = s->q, .k = s->k, .v = s->v,
                            .q_stride = Q_WIDTH + 1, .kv_stride = KV_WIDTH, .k_width = D, .v_width = D, .kv_step = D,
                            .window = window};
    return s;
}

/* Tells whether query t sees key j, by the formula of attention.c. */
static bool sees(const setup *s, size_t t, size_t j)
{
    const long at = s->span.positions ? (long)s->positions[t] : (long)t,
               other = s->span.positions ? (long)s->positions[j] : (long)j, apart = labs(at - other);
    return (s->config.both_ways || j <= t) && (!s->heads.window || apart < (long)s->heads.window);
}

/* Computes the context of query t in a head, by itself. */
static void attend_one(const setup *s, size_t head, size_t t, float *context)
{
    const size_t kv = head / (HEADS / KV);
    char *memory;
    calm_attend_keys keys;
    calm_attend_queries one = {.n = 1, .q = s->q + t * (Q_WIDTH + 1) + head * D, .q_stride = 1,
                               .scale = s->config.attention_scale, .context = context, .stride = D};
    while (!sees(s, t, one.first[0]))
        one.first[0]++;
    for (one.end[0] = one.first[0]; one.end[0] < T && sees(s, t, one.end[0]);)
        one.end[0]++;
    ck_ok(CALM_NEW_RAW(ctx, ctx->scratch, memory, calm_attend_bytes(T, D)));
    calm_attend_pack(T, D, s->k + kv * D, s->v + kv * D, KV_WIDTH, memory, &keys);
    calm_attend(CALM_INT_PLAIN, &keys, &one);
}

TEST(every_query_and_thread)
{
    static const size_t windows[] = {0, 1, 9, 70};
    static float context[T * Q_WIDTH], floats[T * Q_WIDTH], alone[D];
    for (int form = 0; form < 16; form++) {
        setup *s = new_setup(form & 1, windows[form / 4], form & 2);
        ctx->n_threads = 1;
        ck_ok(calm_heads_attend_all(ctx, &s->heads, &(calm_heads_kept){NULL, NULL}, floats));
        for (ctx->n_threads = 1; ctx->n_threads <= 5; ctx->n_threads += 2) {
            memset(context, 0xff, sizeof context);
            ck_ok(calm_heads_attend_ints(ctx, &s->heads, context));
            for (size_t t = 0; t < T; t++)
                for (size_t head = 0; head < HEADS; head++) {
                    attend_one(s, head, t, alone);
                    ck_assert(memcmp(alone, context + t * Q_WIDTH + head * D, sizeof alone) == 0);
                }
        }
        /* The bound of attend.h: values stay below 5, so E is below 0.25 * 2 * 20 * 25 / 2 / 10362; the rest is
         * less. */
        for (size_t i = 0; i < T * Q_WIDTH; i++)
            ck_near(context[i], (double)floats[i], 5 * (2 * 0.0122 + (T + 1) / 16383.0 + 1 / 4094.0));
    }
    ctx->n_threads = 1;
}
END_OF_TEST

TEST(blocks_that_take_it)
{
    static const float one = 1;
    setup *s = new_setup(true, 0, false);
    calm_int_weight packed = {0};
    calm_block block = {.config = &s->config};
    calm_weight *o = &block.weight[CALM_ROLE_O];
    o->ints = &packed;
    o->act_bits = 8;
    ctx->ints = true;
    ck_assert(!calm_heads_use_ints(ctx, &block, &s->heads));
    ctx->int_attention = true;
    ck_assert(calm_heads_use_ints(ctx, &block, &s->heads));
    const calm_heads odd[] = {{.distance = &one}, {.sinks = &one}, {.shared = s->k}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        calm_heads a = s->heads;
        a.distance = odd[i].distance;
        a.sinks = odd[i].sinks;
        a.shared = odd[i].shared;
        ck_assert(!calm_heads_use_ints(ctx, &block, &a));
    }
    s->config.attention_cap = 50;
    ck_assert(!calm_heads_use_ints(ctx, &block, &s->heads));
    s->config.attention_cap = 0;
    o->act_bits = 0;
    ck_assert(!calm_heads_use_ints(ctx, &block, &s->heads));
    o->act_bits = 8;
    o->ints = NULL;
    ck_assert(!calm_heads_use_ints(ctx, &block, &s->heads));
    ctx->ints = ctx->int_attention = false;
}
END_OF_TEST

int main(void)
{
    return run_tests("int_attention", (const TTest *[]){every_query_and_thread, blocks_that_take_it, NULL});
}
