/* Attention against a slow reference in double: every score separately, no blocks of rows, no vector kernels.
 *
 *   T tokens   h heads of width d over h_kv for keys and values   D hidden size
 *
 * Tolerance: the error of float32, which the reference bounds for each number (tests/support/bounded.h). */
#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "ptq/layers/block.h"
#include "ptq/layers/distance.h"
#include "ptq/layers/rope.h"
#define DRAWN_SEED 7
#include "tests/support/bounded.h"
#include "tests/support/drawn.h"
#include "tests/support/harness.h"

typedef struct setting {
    size_t hidden, n_heads, n_kv, head_dim, window;
    bool norm, bias;
    bool whole;        /* norms of q and k cover the whole projection */
    bool fused;        /* q, k and v in one matrix                   */
    bool encoder;      /* bidirectional attention */
    double cap;        /* soft cap of scores; 0: none */
    size_t rotary;     /* rotated channels; 0: all, NO_ROTARY: none */
    bool distance;     /* with a relative position bias */
    bool gaps;         /* positions increase by 1, 2, 3, 1, 2, 3, ... */
    double sinks;      /* sinks of about this value; 0: none */
    bool chunked;      /* attention within chunks */
    bool bare;         /* norms are per head, without a weight, after the rotation */
    double limit;      /* limit of q, k and v after their norms; 0: none */
    double growth;     /* beta of the scale of unrotated queries; 0: none */
} setting;

#define NO_ROTARY ((size_t)-1)

/* The length of the longest test, in positions with gaps. */
#define MAX_POSITIONS ((size_t)601)

/* Arrays that a block refers to. */
typedef struct fixture {
    calm_arch arch;
    calm_config config;
    calm_block block;
    size_t window;
    bool local;
} fixture;

static calm_norm draw_norm(const setting *s, size_t heads, uint64_t stream)
{
    const size_t width = s->whole ? heads * s->head_dim : s->head_dim;
    return (calm_norm){.kind = CALM_NORM_RMS,
                       .eps = 1e-6f,
                       .width = width,
                       .w = s->norm ? draw(width, 1, 0.2, stream) : NULL};
}

/* Rows of q, k and v: fused in one matrix for the block, separate for the reference. */
static calm_weight stack(const calm_weight *parts, size_t in, bool bias)
{
    calm_weight all = {.name = "w", .out = parts[0].out + parts[1].out + parts[2].out, .in = in};
    float *w, *b;
    ck_ok(CALM_NEW(ctx, ctx->out, w, all.out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, b, all.out));
    for (size_t i = 0, row = 0; i < 3; row += parts[i++].out) {
        memcpy(w + row * in, parts[i].w, parts[i].out * in * sizeof *w);
        if (bias)
            memcpy(b + row, parts[i].bias, parts[i].out * sizeof *b);
    }
    all.w = w;
    all.bias = bias ? b : NULL;
    return all;
}

static void new_block(const setting *s, fixture *f)
{
    const size_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    const size_t rotary = s->rotary == NO_ROTARY ? 0 : s->rotary ? s->rotary : s->head_dim;
    *f = (fixture){.window = s->window};
    f->arch = (calm_arch){.name = "oracle", .late_qk_norm = s->bare};
    f->config =
        (calm_config){.arch = &f->arch,
                      .qk_norm = s->bare ? CALM_QK_NORM_BARE : s->whole ? CALM_QK_NORM_WHOLE : CALM_QK_NORM_HEAD,
                      .hidden = s->hidden,
                      .n_heads = s->n_heads,
                      .n_kv = s->n_kv,
                      .head_dim = s->head_dim,
                      .n_blocks = 1,
                      .both_ways = s->encoder,
                      .norm_eps = 1e-6f,
                      .window = &f->window,
                      .chunked = s->chunked,
                      .query_growth = {(float)s->growth, 7, true, true},
                      .local_rope = &f->local,
                      .max_positions = MAX_POSITIONS,
                      .attention_scale = (float)(1 / sqrt((double)s->head_dim)),
                      .attention_cap = (float)s->cap,
                      .qkv_limit = (float)s->limit,
                      .rope = {{.kind = CALM_ROPE_DEFAULT, .theta = 10000.0, .factor = 1, .m = 1, .rotary = rotary}}};
    f->block = (calm_block){.config = &f->config};
    f->block.weight[CALM_ROLE_Q] = draw_weight(q, s->hidden, s->bias, 1);
    f->block.weight[CALM_ROLE_K] = draw_weight(kv, s->hidden, s->bias, 2);
    f->block.weight[CALM_ROLE_V] = draw_weight(kv, s->hidden, s->bias, 3);
    f->block.weight[CALM_ROLE_O] = draw_weight(s->hidden, q, s->bias, 4);
    f->block.distance = s->distance ? draw(s->n_heads * CALM_DISTANCE_WIDTH, 0, 2, 7) : NULL;
    if (s->sinks != 0)
        f->block.plain[CALM_PLAIN_SINKS] = (calm_norm){.width = s->n_heads, .w = draw(s->n_heads, s->sinks, 1, 8)};
    f->block.plain[CALM_PLAIN_Q_NORM] = draw_norm(s, s->n_heads, 5);
    f->block.plain[CALM_PLAIN_K_NORM] = draw_norm(s, s->n_kv, 6);
}

/* ---- the slow reference ---- */

static bounded *new_rows(size_t n)
{
    bounded *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    return x;
}

static bounded *project(const calm_weight *weight, const bounded *x, size_t n_tokens)
{
    bounded *y = new_rows(n_tokens * weight->out);
    for (size_t t = 0; t < n_tokens; t++)
        bounded_project(weight, x + t * weight->in, y + t * weight->out);
    return y;
}

/* Rotation of the first r channels of a head. */
static void turn(const calm_config *config, bounded *x, size_t position)
{
    const size_t r = config->rope[0].rotary;
    for (size_t c = 0; c < r / 2; c++)
        bounded_turn(config->rope[0].theta, c, r, position, &x[c], &x[c + r / 2]);
}

/* Clamps n numbers to -limit .. limit. */
static void bound(const calm_config *config, bounded *x, size_t n)
{
    const double limit = (double)config->qkv_limit;
    for (size_t i = 0; limit > 0 && i < n; i++)
        x[i].value = fmax(-limit, fmin(limit, x[i].value));
}

/* Applies norms, limit and rotation to all heads of a projection [T, n d]. */
static void place(const calm_config *config, const calm_norm *weights, bounded *x, const calm_span *span, size_t n)
{
    const size_t d = config->head_dim;
    for (size_t t = 0; t < span->n_tokens; t++) {
        const bool bare = config->qk_norm == CALM_QK_NORM_BARE;
        for (size_t at = 0; weights->w && !bare && at < n * d; at += weights->width)
            bounded_norm(weights->width, weights->w, (double)weights->eps, x + t * n * d + at);
        bound(config, x + t * n * d, n * d);
        for (size_t head = 0; head < n; head++)
            turn(config, x + (t * n + head) * d, span->positions ? span->positions[t] : t);
        for (size_t at = 0; bare && config->rope[0].rotary && at < n * d; at += d)
            bounded_norm(d, NULL, (double)config->norm_eps, x + t * n * d + at);
    }
}

/* Scales unrotated queries by position; the scale and the product are rounded. */
static void grow(const calm_config *config, bounded *q, const calm_span *span)
{
    const size_t width = config->n_heads * config->head_dim;
    for (size_t i = 0; config->rope[0].rotary == 0 && i < span->n_tokens * width; i++) {
        const size_t at = span->positions ? span->positions[i / width] : i / width;
        const double by = 1 + (double)config->query_growth.beta
                              * log(1 + floor((double)(at + 1) / config->query_growth.length));
        q[i] = (bounded){by * q[i].value, by * (q[i].error + 2 * UNIT * fabs(q[i].value))};
    }
}

static bool sees(const calm_config *config, const calm_span *span, size_t t, size_t j)
{
    const size_t window = config->window[0], from = span->positions ? span->positions[t] : t;
    if (!config->both_ways && j > t)
        return false;
    const size_t to = span->positions ? span->positions[j] : j;
    if (window && config->chunked)
        return from / window == to / window;
    return !window || (to + window > from && from + window > to);
}

/* Returns the relative position bias; all distances from the farthest on share one. */
static double added(const calm_block *block, const calm_span *span, size_t head, size_t t, size_t j)
{
    const long from = span->positions ? span->positions[t] : (long)t;
    const long to = span->positions ? span->positions[j] : (long)j;
    const long far = (long)CALM_DISTANCE_FAR, d = to - from < -far ? -far : to - from > far ? far : to - from;
    return block->distance ? (double)block->distance[(long)head * (2 * far + 1) + far + d] : 0;
}

/* Returns a score.  Bias and cap round the scaled product once, and the cap nine times (test_vector.c). */
static bounded score(const calm_block *block, const bounded *q, const bounded *k, const calm_span *span, size_t head,
                     size_t t, size_t j)
{
    const calm_config *config = block->config;
    const double cap = (double)config->attention_cap, bias = added(block, span, head, t, j);
    bounded s = bounded_product(q, k, config->head_dim, (double)config->attention_scale);
    if (block->distance) {
        s.value += bias;
        s.error += (fabs(s.value) + fabs(s.value - bias)) * UNIT;
    }
    return cap > 0 ? (bounded){cap * tanh(s.value / cap), s.error + 9 * UNIT * fabs(s.value)} : s;
}

static void attend(const calm_block *block, const bounded *q, const bounded *k, const bounded *v, const calm_span *span,
                   size_t t, size_t head, bounded *scores, bounded *context)
{
    const calm_config *config = block->config;
    const size_t d = config->head_dim, kv = head / (config->n_heads / config->n_kv), kv_width = config->n_kv * d;
    const float *sinks = block->plain[CALM_PLAIN_SINKS].w;
    const double sink = sinks ? (double)sinks[head] : 0;
    q += (t * config->n_heads + head) * d;
    for (size_t j = 0; j < span->n_tokens; j++)
        scores[j] = sees(config, span, t, j) ? score(block, q, k + j * kv_width + kv * d, span, head, t, j)
                                             : (bounded){-INFINITY, 0};
    bounded_context(scores, span->n_tokens, sinks ? &sink : NULL, v + kv * d, kv_width, d,
                    context + (t * config->n_heads + head) * d);
}

static bounded *slow_attention(const calm_block *block, const float *h, const calm_span *span)
{
    const calm_config *config = block->config;
    const size_t n_tokens = span->n_tokens;
    bounded *x = new_rows(n_tokens * config->hidden), *scores = new_rows(n_tokens);
    bounded_exactly(h, n_tokens * config->hidden, x);
    bounded *q = project(&block->weight[CALM_ROLE_Q], x, n_tokens),
            *k = project(&block->weight[CALM_ROLE_K], x, n_tokens);
    bounded *v = project(&block->weight[CALM_ROLE_V], x, n_tokens);
    bounded *context = new_rows(n_tokens * config->n_heads * config->head_dim);
    place(config, &block->plain[CALM_PLAIN_Q_NORM], q, span, config->n_heads);
    place(config, &block->plain[CALM_PLAIN_K_NORM], k, span, config->n_kv);
    grow(config, q, span);
    bound(config, v, n_tokens * config->n_kv * config->head_dim);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t head = 0; head < config->n_heads; head++)
            attend(block, q, k, v, span, t, head, scores, context);
    return project(&block->weight[CALM_ROLE_O], context, n_tokens);
}

/* ---- comparison ---- */

static calm_span new_span(const setting *s, size_t n_tokens)
{
    uint32_t *positions = NULL;
    if (s->gaps)
        ck_ok(CALM_NEW(ctx, ctx->out, positions, n_tokens));
    for (size_t t = 1; s->gaps && t < n_tokens; t++)
        positions[t] = positions[t - 1] + (uint32_t)(t % 3 == 0 ? 3 : t % 3);
    return (calm_span){.n_tokens = n_tokens, .positions = positions};
}

static void compare(const setting *s, size_t n_tokens)
{
    fixture f;
    calm_rope rope;
    float *out;
    new_block(s, &f);
    const calm_span span = new_span(s, n_tokens);
    const float *h = draw(n_tokens * s->hidden, 0, 1, 9);
    ck_ok(calm_rope_init(ctx, &f.config, MAX_POSITIONS, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, out, n_tokens * s->hidden));
    const bounded *expected = slow_attention(&f.block, h, &span);
    calm_block block = f.block;
    if (s->fused) {
        block.weight[CALM_ROLE_FUSED_QKV] = stack(&f.block.weight[CALM_ROLE_Q], s->hidden, s->bias);
        block.weight[CALM_ROLE_Q].w = block.weight[CALM_ROLE_K].w = block.weight[CALM_ROLE_V].w = NULL;
    }
    ck_ok(calm_block_attention(ctx, &block, &rope, h, &span, out, NULL));
    for (size_t i = 0; i < n_tokens * s->hidden; i++)
        ck_assert_msg(fabs((double)out[i] - expected[i].value) <= expected[i].error,
                      "T %zu, heads %zu/%zu of %zu, window %zu: %g, expected %g within %g", n_tokens, s->n_heads,
                      s->n_kv, s->head_dim, s->window, (double)out[i], expected[i].value, expected[i].error);
    calm_arena_clear(ctx->out);
    calm_arena_clear(ctx->scratch);
}

static const size_t lengths[] = {1, 2, 127, 128, 129, 300};    /* around a block of query rows */

static void compare_all(setting s)
{
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        compare(&s, lengths[i]);
}

TEST(full_attention)
{
    compare_all((setting){.hidden = 24, .n_heads = 2, .n_kv = 2, .head_dim = 8, .norm = true});
    compare_all((setting){.hidden = 16, .n_heads = 1, .n_kv = 1, .head_dim = 2, .norm = false, .bias = true});
}
END_OF_TEST

TEST(grouped_queries)
{
    compare_all((setting){.hidden = 24, .n_heads = 6, .n_kv = 2, .head_dim = 4, .norm = true});
    compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 1, .head_dim = 6, .norm = true, .bias = true});
}
END_OF_TEST

TEST(sliding_windows)
{
    static const size_t windows[] = {1, 2, 64, 127, 128, 129, 299, 300, 1000};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        compare_all(
            (setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = windows[i], .norm = true});
}
END_OF_TEST

/* A query only sees keys of its own chunk. */
TEST(chunks)
{
    static const size_t sizes[] = {1, 7, 127, 128, 129, 300};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        compare_all((setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = sizes[i],
                              .chunked = true, .norm = true, .gaps = i % 2});
}
END_OF_TEST

/* Llama 4: a norm without a weight after the rotation; without rotation scaled queries. */
TEST(bare_norms_and_growth)
{
    compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 2, .head_dim = 6, .bare = true, .window = 50,
                          .chunked = true});
    compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 2, .head_dim = 6, .bare = true, .fused = true});
    for (int gaps = 0; gaps < 2; gaps++)
        compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 2, .head_dim = 6, .bare = true, .growth = 0.5,
                              .rotary = NO_ROTARY, .gaps = gaps});
}
END_OF_TEST

TEST(norms_over_the_whole_projection)
{
    compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 2, .head_dim = 6, .norm = true, .whole = true});
}
END_OF_TEST

TEST(one_matrix_for_q_k_and_v)
{
    compare_all((setting){.hidden = 20, .n_heads = 4, .n_kv = 2, .head_dim = 6, .fused = true, .bias = true});
    compare_all(
        (setting){.hidden = 20, .n_heads = 3, .n_kv = 3, .head_dim = 8, .fused = true, .rotary = 6, .window = 100});
}
END_OF_TEST

TEST(encoders)
{
    compare_all((setting){
        .hidden = 18, .n_heads = 3, .n_kv = 3, .head_dim = 6, .bias = true, .encoder = true, .rotary = NO_ROTARY});
    compare_all((setting){.hidden = 18, .n_heads = 3, .n_kv = 3, .head_dim = 5, .bias = true, .encoder = true,
                          .rotary = NO_ROTARY, .gaps = true});
}
END_OF_TEST

/* Half a window on either side. */
TEST(windows_both_ways)
{
    static const size_t windows[] = {1, 2, 64, 127, 128, 129, 300};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int gaps = 0; gaps < 2; gaps++)
            compare_all((setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = windows[i],
                                  .norm = true, .encoder = true, .gaps = gaps});
}
END_OF_TEST

TEST(distances)
{
    compare_all((setting){.hidden = 18, .n_heads = 3, .n_kv = 3, .head_dim = 6, .bias = true, .encoder = true,
                          .rotary = NO_ROTARY, .distance = true});
    compare_all((setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = 100, .encoder = true,
                          .distance = true, .gaps = true});
}
END_OF_TEST

TEST(capped_scores)
{
    compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .cap = 0.5});
    compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .cap = 50, .window = 130});
}
END_OF_TEST

/* The limit is within the range of values of mean square 1, so it clamps many of q, k and v; with and without norms. */
TEST(limited_values)
{
    compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .limit = 0.5});
    compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .norm = true, .whole = true,
                          .limit = 0.7});
    compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .fused = true, .limit = 0.2});
}
END_OF_TEST

/* With a sink far above all scores only the bias remains; a sink far below has no effect. */
TEST(learned_sinks)
{
    static const double sizes[] = {-150, -3, 1, 6, 150};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 2, .head_dim = 8, .bias = true, .sinks = sizes[i]});
        compare_all((setting){.hidden = 24, .n_heads = 4, .n_kv = 1, .head_dim = 6, .window = 100, .cap = 20,
                              .bias = true, .gaps = true, .sinks = sizes[i]});
    }
}
END_OF_TEST

/* Values observed at the sinks' hook point. */
typedef struct seen_shares {
    float values[3 * 2];
    size_t n;
} seen_shares;

static calm_status keep_shares(void *user, calm_ctx *task, const calm_observation *seen)
{
    seen_shares *to = user;
    (void)task;
    if (seen->hook != CALM_HOOK_SINK)
        return CALM_OK;
    ck_assert(seen->n_rows == 3 && seen->width == 2 && seen->expert == CALM_NO_EXPERT);
    memcpy(to->values, seen->x, sizeof to->values);
    to->n++;
    return CALM_OK;
}

/* With equal scores a query of t + 1 keys gives its sink the probability e^s / (e^s + t + 1), or 1 where e^s is not
 * finite. */
TEST(shares_of_sinks)
{
    const float sinks[] = {0.5f, 200};
    fixture f;
    calm_rope rope;
    seen_shares seen = {.n = 0};
    const calm_observer observer = {keep_shares, &seen};
    const calm_span span = {.n_tokens = 3};
    float out[3 * 12], *h;
    new_block(&(setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .rotary = NO_ROTARY}, &f);
    f.block.plain[CALM_PLAIN_SINKS] = (calm_norm){.width = 2, .w = sinks};
    ck_ok(CALM_NEW(ctx, ctx->out, h, 3 * 12));
    ck_ok(calm_rope_init(ctx, &f.config, 4, &rope));
    ck_ok(calm_block_attention(ctx, &f.block, &rope, h, &span, out, &observer));
    ck_assert_uint_eq(seen.n, 1);
    for (size_t t = 0; t < 3; t++) {
        /* exp, a sum of four terms and a quotient in float32. */
        ck_assert(fabs((double)seen.values[2 * t] - exp(0.5) / (exp(0.5) + (double)t + 1)) < 8 * 0x1p-24);
        ck_assert(seen.values[2 * t + 1] == 1);
    }
}
END_OF_TEST

/* Windows count positions, not tokens. */
TEST(positions_with_gaps)
{
    static const size_t windows[] = {0, 1, 2, 3, 128, 255, 256, 257};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        compare_all(
            (setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = windows[i], .gaps = true});
}
END_OF_TEST

TEST(partial_rotation)
{
    compare_all((setting){.hidden = 24, .n_heads = 2, .n_kv = 1, .head_dim = 12, .rotary = 8, .norm = true});
    compare_all((setting){.hidden = 24, .n_heads = 2, .n_kv = 1, .head_dim = 12, .rotary = 2});
}
END_OF_TEST

TEST(windows_longer_than_the_tables)
{
    fixture f;
    calm_rope rope;
    const calm_span span = {.n_tokens = 3};
    const uint32_t positions[] = {0, 2};
    const calm_span far = {.n_tokens = 2, .positions = positions};
    float out[3 * 12];
    new_block(&(setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6}, &f);
    const float *h = draw(3 * 12, 0, 1, 9);
    ck_ok(calm_rope_init(ctx, &f.config, 2, &rope));
    ck_fails(calm_block_attention(ctx, &f.block, &rope, h, &span, out, NULL), CALM_EARG, "a window of 3 positions");
    ck_fails(calm_block_attention(ctx, &f.block, &rope, h, &far, out, NULL), CALM_EARG, "a window of 3 positions");
}
END_OF_TEST

int main(void)
{
    return run_tests("attention_oracle",
                     (const TTest *[]){full_attention, grouped_queries, sliding_windows, chunks, bare_norms_and_growth,
                                       norms_over_the_whole_projection, one_matrix_for_q_k_and_v, encoders,
                                       windows_both_ways, distances, capped_scores, limited_values, learned_sinks,
                                       shares_of_sinks, positions_with_gaps, partial_rotation,
                                       windows_longer_than_the_tables, NULL});
}
