/* Latent attention against a slow reference in double, by the formulas of arXiv 2405.04434: every score separately,
 * keys and values of all heads explicit, no blocks of rows.
 *
 * Tolerance: the error of float32, which the reference bounds for each number (tests/support/bounded.h). */
#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/rng.h"
#include "ptq/layers/block.h"
#include "ptq/layers/rope.h"
#define DRAWN_SEED 11
#include "tests/support/bounded.h"
#include "tests/support/drawn.h"
#include "tests/support/harness.h"

typedef struct setting {
    size_t hidden, n_heads, q_rank, kv_rank, nope, rope, value;
    bool bias, halves;    /* halves: channel c is paired with c + r / 2 */
    bool gaps;
    double scale;         /* additional factor of scores; 0: 1 */
} setting;

#define MAX_POSITIONS ((size_t)601)

static calm_norm draw_norm(size_t width, uint64_t stream)
{
    return (calm_norm){.kind = CALM_NORM_RMS, .eps = 1e-6f, .width = width, .w = draw(width, 1, 0.2, stream)};
}

/* Arrays that a block refers to. */
typedef struct fixture {
    calm_arch arch;
    calm_config config;
    calm_block block;
    size_t window;
    bool local;
} fixture;

static void new_block(const setting *s, fixture *f)
{
    const size_t d = s->nope + s->rope, n = s->n_heads;
    *f = (fixture){.window = 0};
    f->arch = (calm_arch){.name = "oracle", .latent = true};
    f->config = (calm_config){
        .arch = &f->arch, .hidden = s->hidden, .n_heads = n, .n_kv = n, .head_dim = d, .n_blocks = 1,
        .latent = {s->q_rank, s->kv_rank, s->nope, s->rope, s->value}, .window = &f->window, .local_rope = &f->local,
        .max_positions = MAX_POSITIONS, .attention_scale = (float)((s->scale > 0 ? s->scale : 1) / sqrt((double)d)),
        .rope = {{.kind = CALM_ROPE_DEFAULT, .theta = 10000.0, .factor = 1, .m = 1, .rotary = s->rope,
                  .neighbours = !s->halves}}};
    f->block = (calm_block){.config = &f->config};
    calm_weight *weight = f->block.weight;
    if (s->q_rank) {
        weight[CALM_ROLE_Q_A] = draw_weight(s->q_rank, s->hidden, s->bias, 1);
        weight[CALM_ROLE_Q_B] = draw_weight(n * d, s->q_rank, false, 2);
        f->block.plain[CALM_PLAIN_Q_A_NORM] = draw_norm(s->q_rank, 3);
    } else {
        weight[CALM_ROLE_Q_FULL] = draw_weight(n * d, s->hidden, false, 4);
    }
    weight[CALM_ROLE_KV_A] = draw_weight(s->kv_rank + s->rope, s->hidden, s->bias, 5);
    weight[CALM_ROLE_KV_B] = draw_weight(n * (s->nope + s->value), s->kv_rank, false, 6);
    weight[CALM_ROLE_O] = draw_weight(s->hidden, n * s->value, s->bias, 7);
    f->block.plain[CALM_PLAIN_KV_A_NORM] = draw_norm(s->kv_rank, 8);
}

/* ---- the slow reference ---- */

static bounded *new_rows(size_t n)
{
    bounded *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    return x;
}

static void norm(const calm_norm *norm, bounded *x)
{
    bounded_norm(norm->width, norm->w, (double)norm->eps, x);
}

static void turn(const setting *s, bounded *x, size_t position)
{
    for (size_t c = 0; c < s->rope / 2; c++)
        bounded_turn(10000, c, s->rope, position, &x[s->halves ? c : 2 * c],
                     &x[s->halves ? c + s->rope / 2 : 2 * c + 1]);
}

/* Computes q and k [h, nope + rope] and v [h, value] of one token from h [D]. */
static void heads_of(const setting *s, const calm_block *block, const bounded *h, size_t position, bounded *q,
                     bounded *k, bounded *v)
{
    const calm_weight *weight = block->weight;
    const size_t d = s->nope + s->rope, step = s->nope + s->value;
    bounded *narrow = new_rows(s->q_rank + 1), *kv = new_rows(s->kv_rank + s->rope),
            *up = new_rows(s->n_heads * step);
    if (s->q_rank) {
        bounded_project(&weight[CALM_ROLE_Q_A], h, narrow);
        norm(&block->plain[CALM_PLAIN_Q_A_NORM], narrow);
        bounded_project(&weight[CALM_ROLE_Q_B], narrow, q);
    } else {
        bounded_project(&weight[CALM_ROLE_Q_FULL], h, q);
    }
    bounded_project(&weight[CALM_ROLE_KV_A], h, kv);
    turn(s, kv + s->kv_rank, position);
    norm(&block->plain[CALM_PLAIN_KV_A_NORM], kv);
    bounded_project(&weight[CALM_ROLE_KV_B], kv, up);
    for (size_t i = 0; i < s->n_heads; i++) {
        turn(s, q + i * d + s->nope, position);
        memcpy(k + i * d, up + i * step, s->nope * sizeof *k);
        memcpy(k + i * d + s->nope, kv + s->kv_rank, s->rope * sizeof *k);
        memcpy(v + i * s->value, up + i * step + s->nope, s->value * sizeof *v);
    }
}

/* Computes the context [value] of query t of one head. */
static void attend(const setting *s, const bounded *q, const bounded *k, const bounded *v, size_t t, size_t head,
                   double scale, bounded *scores, bounded *context)
{
    const size_t d = s->nope + s->rope, n = s->n_heads;
    for (size_t j = 0; j <= t; j++)
        scores[j] = bounded_product(q + (t * n + head) * d, k + (j * n + head) * d, d, scale);
    bounded_context(scores, t + 1, NULL, v + head * s->value, n * s->value, s->value, context);
}

static bounded *slow_attention(const setting *s, const calm_block *block, const float *h, const calm_span *span)
{
    const size_t n_tokens = span->n_tokens, d = s->nope + s->rope, n = s->n_heads;
    bounded *q = new_rows(n_tokens * n * d), *k = new_rows(n_tokens * n * d), *v = new_rows(n_tokens * n * s->value),
            *context = new_rows(n_tokens * n * s->value), *out = new_rows(n_tokens * s->hidden),
            *row = new_rows(s->hidden), *scores = new_rows(n_tokens);
    for (size_t t = 0; t < n_tokens; t++) {
        bounded_exactly(h + t * s->hidden, s->hidden, row);
        heads_of(s, block, row, span->positions ? span->positions[t] : t, q + t * n * d, k + t * n * d,
                 v + t * n * s->value);
    }
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t head = 0; head < n; head++)
            attend(s, q, k, v, t, head, (double)block->config->attention_scale, scores,
                   context + (t * n + head) * s->value);
        bounded_project(&block->weight[CALM_ROLE_O], context + t * n * s->value, out + t * s->hidden);
    }
    return out;
}

/* ---- comparison ---- */

static void compare(const setting *s, size_t n_tokens)
{
    fixture f;
    calm_rope rope;
    float *out;
    uint32_t *positions;
    new_block(s, &f);
    ck_ok(CALM_NEW(ctx, ctx->out, positions, n_tokens));
    for (size_t t = 1; t < n_tokens; t++)
        positions[t] = positions[t - 1] + (uint32_t)(t % 3 == 0 ? 3 : t % 3);
    const calm_span span = {.n_tokens = n_tokens, .positions = s->gaps ? positions : NULL};
    const float *h = draw(n_tokens * s->hidden, 0, 1, 9);
    ck_ok(calm_rope_init(ctx, &f.config, MAX_POSITIONS, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, out, n_tokens * s->hidden));
    const bounded *expected = slow_attention(s, &f.block, h, &span);
    ck_ok(calm_kind_mla.run(ctx, &f.block, &rope, h, &span, out, NULL));
    for (size_t i = 0; i < n_tokens * s->hidden; i++)
        ck_assert_msg(fabs((double)out[i] - expected[i].value) <= expected[i].error,
                      "T %zu, %zu heads, ranks %zu and %zu: %g, expected %g within %g", n_tokens, s->n_heads, s->q_rank,
                      s->kv_rank, (double)out[i], expected[i].value, expected[i].error);
    calm_arena_clear(ctx->out);
    calm_arena_clear(ctx->scratch);
}

static void compare_all(setting s)
{
    static const size_t lengths[] = {1, 2, 127, 128, 129, 300};    /* around a block of query rows */
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        compare(&s, lengths[i]);
}

TEST(queries_through_a_narrow_row)
{
    compare_all((setting){.hidden = 24, .n_heads = 3, .q_rank = 10, .kv_rank = 7, .nope = 8, .rope = 4, .value = 5});
    compare_all((setting){
        .hidden = 24, .n_heads = 2, .q_rank = 9, .kv_rank = 12, .nope = 3, .rope = 2, .value = 11, .bias = true});
}
END_OF_TEST

TEST(queries_of_one_product)
{
    compare_all((setting){.hidden = 20, .n_heads = 4, .kv_rank = 6, .nope = 5, .rope = 6, .value = 5, .bias = true});
}
END_OF_TEST

TEST(halves_turn)
{
    compare_all((setting){
        .hidden = 20, .n_heads = 2, .q_rank = 8, .kv_rank = 6, .nope = 4, .rope = 8, .value = 6, .halves = true});
}
END_OF_TEST

TEST(positions_with_gaps_and_a_scale)
{
    compare_all((setting){.hidden = 20, .n_heads = 2, .q_rank = 8, .kv_rank = 6, .nope = 4, .rope = 4, .value = 6,
                          .gaps = true, .scale = 1.6});
}
END_OF_TEST

int main(void)
{
    return run_tests("latent_oracle", (const TTest *[]){queries_through_a_narrow_row, queries_of_one_product,
                                                        halves_turn, positions_with_gaps_and_a_scale, NULL});
}
