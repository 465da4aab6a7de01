/* Attention against a slow one in double: every score by itself, no blocks of rows, no vector kernels.
 *
 *   T tokens   h heads of width d over h_kv for keys and values   D hidden size
 *
 * Tolerance: each float32 sum has at most n = max(D, T, d) terms, so its relative error is below n 2^-24 of the sum of
 * magnitudes; four such sums follow one another (q and k, scores, context, output) and |terms| add up to a few times the
 * result: 16 n 2^-24 of the largest output, at least 1e-5. */
#include "ptq/base/rng.h"
#include "ptq/model/arch.h"
#include "ptq/model/block.h"
#include "tests/support/harness.h"

typedef struct setting {
    size_t hidden, n_heads, n_kv, head_dim, window;
    bool norm, bias;
} setting;

static float *draw(size_t n, double mean, double spread, uint64_t stream)
{
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(mean + spread * calm_rng_normal(7, stream, i));
    return x;
}

static calm_weight draw_weight(size_t out, size_t in, bool bias, uint64_t stream)
{
    return (calm_weight){.name = "w", .out = out, .in = in, .w = draw(out * in, 0, 1.5 / sqrt((double)in), stream),
                         .bias = bias ? draw(out, 0, 0.5, stream + 100) : NULL};
}

static void new_block(const setting *s, calm_config *config, size_t *window, calm_block *block)
{
    const size_t q = s->n_heads * s->head_dim, kv = s->n_kv * s->head_dim;
    *window = s->window;
    *config = (calm_config){.hidden = s->hidden, .n_heads = s->n_heads, .n_kv = s->n_kv, .head_dim = s->head_dim, .n_blocks = 1,
                            .norm_eps = 1e-6f, .rope_theta = 10000.0, .window = window};
    *block = (calm_block){.config = config};
    block->weight[CALM_ROLE_Q] = draw_weight(q, s->hidden, s->bias, 1);
    block->weight[CALM_ROLE_K] = draw_weight(kv, s->hidden, s->bias, 2);
    block->weight[CALM_ROLE_V] = draw_weight(kv, s->hidden, s->bias, 3);
    block->weight[CALM_ROLE_O] = draw_weight(s->hidden, q, s->bias, 4);
    block->q_norm = s->norm ? draw(s->head_dim, 1, 0.2, 5) : NULL;
    block->k_norm = s->norm ? draw(s->head_dim, 1, 0.2, 6) : NULL;
}

/* ---- the slow one ---- */

static double *new_doubles(size_t n)
{
    double *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    return x;
}

static double *project(const calm_weight *weight, const double *x, size_t n_tokens)
{
    double *y = new_doubles(n_tokens * weight->out);
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t o = 0; o < weight->out; o++) {
            double sum = weight->bias ? (double)weight->bias[o] : 0;
            for (size_t i = 0; i < weight->in; i++)
                sum += (double)weight->w[o * weight->in + i] * x[t * weight->in + i];
            y[t * weight->out + o] = sum;
        }
    return y;
}

/* Norm over the head and rotation by position, of one head of one token. */
static void position_head(const calm_config *config, const float *norm, double *x, size_t t)
{
    const size_t d = config->head_dim;
    double sumsq = 0;
    for (size_t c = 0; c < d; c++)
        sumsq += x[c] * x[c];
    for (size_t c = 0; norm && c < d; c++)
        x[c] *= (double)norm[c] / sqrt(sumsq / (double)d + (double)config->norm_eps);
    for (size_t c = 0; c < d / 2; c++) {
        /* Frequency and angle are float32 by the field's convention. */
        const float frequency = (float)pow(config->rope_theta, -2.0 * (double)c / (double)d);
        const double angle = (double)((float)t * frequency), a = x[c], b = x[c + d / 2];
        x[c] = a * cos(angle) - b * sin(angle);
        x[c + d / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void attend(const calm_config *config, const double *q, const double *k, const double *v, size_t t, size_t head,
                   double *scores, double *context)
{
    const size_t d = config->head_dim, kv = head / (config->n_heads / config->n_kv), kv_width = config->n_kv * d;
    const size_t window = config->window[0];
    double sum = 0;
    for (size_t j = 0; j <= t; j++) {
        double dot = 0;
        for (size_t c = 0; c < d; c++)
            dot += q[(t * config->n_heads + head) * d + c] * k[j * kv_width + kv * d + c];
        scores[j] = window && j + window <= t ? 0 : exp(dot / sqrt((double)d));
        sum += scores[j];
    }
    for (size_t c = 0; c < d; c++) {
        double value = 0;
        for (size_t j = 0; j <= t; j++)
            value += scores[j] / sum * v[j * kv_width + kv * d + c];
        context[(t * config->n_heads + head) * d + c] = value;
    }
}

static double *slow_attention(const calm_block *block, const float *h, size_t n_tokens)
{
    const calm_config *config = block->config;
    double *x = new_doubles(n_tokens * config->hidden), *scores = new_doubles(n_tokens);
    for (size_t i = 0; i < n_tokens * config->hidden; i++)
        x[i] = (double)h[i];
    double *q = project(&block->weight[CALM_ROLE_Q], x, n_tokens), *k = project(&block->weight[CALM_ROLE_K], x, n_tokens);
    double *v = project(&block->weight[CALM_ROLE_V], x, n_tokens);
    double *context = new_doubles(n_tokens * config->n_heads * config->head_dim);
    for (size_t t = 0; t < n_tokens; t++) {
        for (size_t head = 0; head < config->n_heads; head++)
            position_head(config, block->q_norm, q + (t * config->n_heads + head) * config->head_dim, t);
        for (size_t head = 0; head < config->n_kv; head++)
            position_head(config, block->k_norm, k + (t * config->n_kv + head) * config->head_dim, t);
    }
    for (size_t t = 0; t < n_tokens; t++)
        for (size_t head = 0; head < config->n_heads; head++)
            attend(config, q, k, v, t, head, scores, context);
    return project(&block->weight[CALM_ROLE_O], context, n_tokens);
}

/* ---- comparison ---- */

static void compare(const setting *s, size_t n_tokens)
{
    calm_config config;
    calm_block block;
    calm_rope rope;
    size_t window;
    float *out;
    new_block(s, &config, &window, &block);
    const float *h = draw(n_tokens * s->hidden, 0, 1, 9);
    ck_ok(calm_rope_init(ctx, &config, n_tokens, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, out, n_tokens * s->hidden));
    ck_ok(calm_block_attention(ctx, &block, &rope, h, n_tokens, out, NULL));
    const double *expected = slow_attention(&block, h, n_tokens);
    const size_t terms = n_tokens > s->hidden ? n_tokens : s->hidden;
    double largest = 0, worst = 0;
    for (size_t i = 0; i < n_tokens * s->hidden; i++) {
        largest = fmax(largest, fabs(expected[i]));
        worst = fmax(worst, fabs((double)out[i] - expected[i]));
    }
    const double tolerance = largest * fmax(16 * (double)terms * 0x1p-24, 1e-5);
    ck_assert_msg(worst <= tolerance, "T %zu, heads %zu/%zu of %zu, window %zu: off by %g, tolerance %g", n_tokens, s->n_heads,
                  s->n_kv, s->head_dim, s->window, worst, tolerance);
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
        compare_all((setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6, .window = windows[i], .norm = true});
}
END_OF_TEST

TEST(windows_longer_than_the_tables)
{
    calm_config config;
    calm_block block;
    calm_rope rope;
    size_t window;
    float out[3 * 12];
    new_block(&(setting){.hidden = 12, .n_heads = 2, .n_kv = 1, .head_dim = 6}, &config, &window, &block);
    ck_ok(calm_rope_init(ctx, &config, 2, &rope));
    ck_fails(calm_block_attention(ctx, &block, &rope, draw(3 * 12, 0, 1, 9), 3, out, NULL), CALM_EARG, "a window of 3 tokens");
}
END_OF_TEST

int main(void)
{
    return run_tests("attention_oracle", (const TTest *[]){full_attention, grouped_queries, sliding_windows,
                                                           windows_longer_than_the_tables, NULL});
}
