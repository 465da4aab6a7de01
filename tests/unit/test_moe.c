/* Mixtures of experts: against a loop over tokens in double, and the same bits for any waves, threads and memory. */
#include "ptq/layers/moe_impl.h"
#include "ptq/model/model.h"
#include "ptq/layers/router.h"

#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "tests/support/bounded.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N(array) (sizeof(array) / sizeof *(array))

static const size_t lengths[] = {3, 17, 1, 9};

/* A mixture block of a tiny model, and the hidden states that enter its MLP. */
typedef struct fixture {
    calm_model *model;
    calm_block block;
    calm_config config;    /* a copy that a test may change */
    calm_windows windows;
    const float *x;        /* [rows, D] */
    size_t rows;
} fixture;

static void open_fixture(const char *family, const char *extra, fixture *f)
{
    tiny_model spec = tiny_of(family);
    spec.dtype = CALM_F32;
    spec.extra = extra;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &f->model));
    ck_ok(calm_model_load_block(ctx, f->model, 1, &f->block));
    f->config = *calm_model_config(f->model);
    f->block.config = &f->config;
    f->windows = tiny_windows(lengths, N(lengths));
    f->rows = f->windows.begin[N(lengths)];
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, f->rows * 32));
    for (size_t i = 0; i < f->rows * 32; i++)
        x[i] = (float)calm_rng_normal(8, 0, i);
    f->x = x;
}

/* Returns the fixture's rows as a batch. */
static calm_batch new_batch(const fixture *f, const char *spill_dir)
{
    calm_batch batch = {.windows = &f->windows,
                        .n = f->windows.n,
                        .rows = f->rows,
                        .width = 32,
                        .spill_dir = spill_dir};
    float *x;
    ck_ok(calm_row_store_open(ctx, ctx->out, f->rows, 32, spill_dir, &batch.hidden));
    ck_ok(calm_row_store_get(ctx, &batch.hidden, 0, f->rows, &x));
    memcpy(x, f->x, f->rows * 32 * sizeof *x);
    ck_ok(calm_row_store_put(ctx, &batch.hidden, 0, f->rows, x));
    return batch;
}

static float *rows_of(calm_batch *batch)
{
    float *x, *copy;
    ck_ok(calm_row_store_get(ctx, &batch->hidden, 0, batch->rows, &x));
    ck_ok(CALM_NEW(ctx, ctx->out, copy, batch->rows * 32));
    memcpy(copy, x, batch->rows * 32 * sizeof *x);
    calm_batch_close(batch);
    return copy;
}

static float *run(const fixture *f, const char *spill_dir)
{
    calm_batch batch = new_batch(f, spill_dir);
    ck_ok(calm_moe_run(ctx, &f->block, &batch, NULL));
    return rows_of(&batch);
}

/* The same with rows that are followed by 5 carried numbers per token, which nothing reads. */
static float *run_carrying(const fixture *f, const char *spill_dir)
{
    enum { CARRIED = 5, WIDTH = 32 + CARRIED };
    calm_batch batch = {.windows = &f->windows, .n = f->windows.n, .rows = f->rows, .width = WIDTH, .carried = CARRIED,
                        .spill_dir = spill_dir};
    float *x;
    ck_ok(calm_row_store_open(ctx, ctx->out, f->rows, WIDTH, spill_dir, &batch.hidden));
    ck_ok(calm_row_store_get(ctx, &batch.hidden, 0, f->rows, &x));
    for (size_t i = 0; i < f->rows * WIDTH; i++)
        x[i] = NAN;
    for (size_t w = 0; w < batch.n; w++)
        memcpy(x + f->windows.begin[w] * WIDTH, f->x + f->windows.begin[w] * 32, lengths[w] * 32 * sizeof *x);
    ck_ok(calm_row_store_put(ctx, &batch.hidden, 0, f->rows, x));
    ck_ok(calm_moe_run(ctx, &f->block, &batch, NULL));
    ck_ok(calm_batch_drop_carried(ctx, &batch));
    return rows_of(&batch);
}

static void same_bits(const fixture *f, const float *a, const float *b)
{
    ck_assert(memcmp(a, b, f->rows * 32 * sizeof *a) == 0);
}

/* ---- the slow implementation ---- */

/* Adds a term of a sum of n in any order. */
static void add_term(bounded term, size_t n, bounded *sum)
{
    sum->value += term.value;
    sum->error += term.error + (double)n * UNIT * fabs(term.value);
}

/* y [W] += p expert(s h [W]), sums of n terms; without a gate relu(up)^2. */
static void add_expert(const calm_weight *weight, const bounded *h, bounded s, bounded p, size_t n, bounded *y)
{
    const size_t inner = weight[CALM_ROLE_DOWN].in, width = weight[CALM_ROLE_DOWN].out;
    const float *gates = weight[CALM_ROLE_GATE].w;
    bounded a[64], x[32];
    for (size_t i = 0; i < width; i++)
        x[i] = bounded_times(s, h[i]);
    for (size_t m = 0; m < inner; m++) {
        const bounded up = bounded_dot(weight[CALM_ROLE_UP].w + m * width, x, width, 0);
        a[m] = gates          ? bounded_gated(bounded_dot(gates + m * width, x, width, 0), up)
               : up.value > 0 ? bounded_times(up, up)
                              : (bounded){0, up.error * up.error};
    }
    for (size_t i = 0; i < width; i++)
        add_term(bounded_times(p, bounded_dot(weight[CALM_ROLE_DOWN].w + i * inner, a, inner, 0)), n, &y[i]);
}

/* Computes scores p from logits r.  All are positive: relative errors, those of logits and four units and the argument
 * of an exponential, enter a softmax twice, and a sum of n with n units. */
static void slow_scores(const calm_moe_config *moe, const bounded *r, bounded *p)
{
    const size_t n = moe->n_experts;
    double most = r[0].value, least = r[0].value, sum = 0, off = 0;
    for (size_t e = 0; e < n; e++) {
        most = fmax(most, r[e].value);
        least = fmin(least, r[e].value);
        off = fmax(off, r[e].error);
        sum += exp(r[e].value);
    }
    const double relative = 2 * (off + (most - least + 4) * UNIT) + (double)(n + 1) * UNIT;
    for (size_t e = 0; e < n; e++)
        p[e] = moe->score == CALM_ROUTER_SIGMOID ? bounded_sigmoid(r[e])
                                                 : (bounded){exp(r[e].value) / sum, relative * exp(r[e].value) / sum};
}

/* Chooses experts by p and divides their weights by the sum where the family does; 0 for the others. */
static void slow_choice(const calm_moe_config *moe, const bounded *p, bounded *chosen)
{
    double total = 0, error = 0;
    for (size_t k = 0; k < moe->top_k; k++) {
        size_t best = moe->n_experts;
        for (size_t e = 0; e < moe->n_experts; e++)
            if (chosen[e].value == 0 && (best == moe->n_experts || p[e].value > p[best].value))
                best = e;
        chosen[best] = p[best];
        total += p[best].value;
        error += p[best].error;
    }
    for (size_t e = 0; moe->norm_top_k && e < moe->n_experts; e++) {
        const double share = chosen[e].value / total, of_total = error / total + (double)(moe->top_k + 1) * UNIT;
        chosen[e] = (bounded){share, chosen[e].error / total + share * of_total};
    }
}

static void slow_token(const fixture *f, const float *x, bounded *out)
{
    const calm_moe_config *moe = &f->config.moe;
    const calm_norm *norm = &f->block.norm[CALM_SUBLAYER_MLP][CALM_NORM_IN];
    const float *in = f->block.plain[CALM_PLAIN_EXPERTS_IN].w, *back = f->block.plain[CALM_PLAIN_EXPERTS_OUT].w;
    const float *gate = f->block.moe.shared_gate;
    const bounded one = {1, 0};
    const size_t terms = moe->top_k + 2;    /* the row itself and the shared expert */
    bounded h[32], r[16], p[16], chosen[16] = {{0, 0}}, latent[32], given[32] = {{0, 0}};
    bounded_exactly(x, 32, h);
    bounded_norm(32, norm->w, (double)norm->eps, h);
    for (size_t e = 0; e < moe->n_experts; e++)
        r[e] = bounded_dot(f->block.moe.router + e * 32, h, 32, 0);
    slow_scores(moe, r, p);
    slow_choice(moe, p, chosen);
    for (size_t i = 0; i < 32; i++)
        out[i] = (bounded){(double)x[i], (double)terms * UNIT * fabs((double)x[i])};
    for (size_t l = 0; l < moe->latent; l++)
        latent[l] = bounded_dot(in + l * 32, h, 32, 0);
    for (size_t e = 0; e < moe->n_experts; e++) {
        calm_weight weight[CALM_N_ROLES] = {{0}};
        if (chosen[e].value == 0)
            continue;
        ck_ok(f->block.moe.load(f->block.moe.user, ctx, 1, e, weight));
        add_expert(weight, moe->latent ? latent : h, moe->weighs_input ? chosen[e] : one,
                   moe->weighs_input ? one : chosen[e], terms, moe->latent ? given : out);
    }
    for (size_t i = 0; moe->latent && i < 32; i++)
        add_term(bounded_dot(back + i * moe->latent, given, moe->latent, 0), terms, &out[i]);
    if (moe->shared_inner)
        add_expert(f->block.moe.shared, h, one, gate ? bounded_sigmoid(bounded_dot(gate, h, 32, 0)) : one, terms, out);
}

/* Within the errors of float32 (tests/support/bounded.h). */
static void compare(const fixture *f)
{
    const float *found = run(f, NULL);
    for (size_t t = 0; t < f->rows; t++) {
        bounded expected[32];
        slow_token(f, f->x + t * 32, expected);
        for (size_t i = 0; i < 32; i++)
            ck_near(found[t * 32 + i], expected[i].value, expected[i].error);
    }
    calm_model_close(f->model);
}

TEST(experts_of_qwen3)
{
    fixture f;
    open_fixture("qwen3_moe", NULL, &f);
    compare(&f);
    open_fixture("qwen3_moe", NULL, &f);
    f.config.moe.norm_top_k = false;
    f.config.moe.top_k = 1;
    compare(&f);
    open_fixture("qwen3_moe", NULL, &f);
    f.config.moe.top_k = 5;    /* all of them */
    compare(&f);
}
END_OF_TEST

TEST(shared_expert_of_qwen2)
{
    fixture f;
    open_fixture("qwen2_moe", NULL, &f);
    ck_assert(f.block.moe.shared_gate && f.block.moe.shared[CALM_ROLE_DOWN].in == 40);
    compare(&f);
    open_fixture("qwen2_moe", "\"norm_topk_prob\": true", &f);
    ck_assert(f.config.moe.norm_top_k);
    compare(&f);
}
END_OF_TEST

/* Weights multiply the experts' inputs, and the shared expert has no gate. */
TEST(weighted_inputs_of_llama4)
{
    fixture f;
    for (size_t k = 1; k <= 5; k++) {
        open_fixture("llama4", NULL, &f);
        ck_assert(f.config.moe.weighs_input && !f.block.moe.shared_gate);
        f.config.moe.top_k = k;
        compare(&f);
    }
}
END_OF_TEST

/* Experts between two latent linears, and the shared expert outside of these. */
TEST(latent_of_nemotron)
{
    static const float no_bias[5];
    fixture f;
    for (size_t k = 1; k <= 5; k++) {
        open_fixture("nemotron_latent", NULL, &f);
        ck_assert_uint_eq(f.config.moe.latent, 16);
        f.block.moe.choice_bias = no_bias;
        f.config.moe.top_k = k;
        compare(&f);
    }
}
END_OF_TEST

/* ---- routing ---- */

static void choose(const fixture *f, const float *logits, size_t n, calm_route *routes)
{
    ck_ok(calm_router_choose(ctx, &f->block, logits, n, routes));
}

/* Errors of weights in units of 2^-24, relative, which add up since all values are positive: an exponential has 4 (the
 * differences of these logits are exact, and exp(0) is 1), a sum of n terms n - 1, a quotient one.  1 / the sum of all
 * is a factor of three equal scores, and of all that are divided by their sum, so its error does not count there. */
#define OF_EQUAL  ((2 + 1) * 0x1p-24)
#define OF_SHARES ((1 + (4 + 1) + 2 + 1) * 0x1p-24)
#define OF_SCORES ((4 + 4 + 1) * 0x1p-24)

TEST(choice)
{
    fixture f;
    calm_route routes[5];
    open_fixture("qwen3_moe", NULL, &f);
    const float ties[] = {1, 3, 3, 2, 3}, far[] = {-200, 80, -90, 81, 0};
    f.config.moe.top_k = 3;
    choose(&f, ties, 1, routes);    /* the lower number first */
    ck_assert(routes[0].expert == 1 && routes[1].expert == 2 && routes[2].expert == 4);
    ck_near(routes[0].weight, 1.0 / 3, OF_EQUAL / 3);
    choose(&f, far, 1, routes);
    ck_assert(routes[0].expert == 3 && routes[1].expert == 1 && routes[2].expert == 4);
    ck_near(routes[0].weight, 1 / (1 + exp(-1)), OF_SHARES / (1 + exp(-1)));
    ck_assert(routes[2].weight < 1e-30f);
    f.config.moe.top_k = 5;    /* all, also those with probability 0 */
    choose(&f, far, 1, routes);
    ck_assert(routes[3].expert + routes[4].expert == 2 && routes[4].weight == 0);
    f.config.moe.norm_top_k = false;
    f.config.moe.top_k = 2;
    choose(&f, ties, 1, routes);
    const double score = exp(3) / (exp(1) + 3 * exp(3) + exp(2));
    ck_near(routes[1].weight, score, OF_SCORES * score);
    calm_model_close(f.model);
}
END_OF_TEST

TEST(logits_that_are_not_numbers)
{
    fixture f;
    calm_route routes[5];
    open_fixture("qwen3_moe", NULL, &f);
    const float bad[][5] = {{1, 2, NAN, 0, 0}, {NAN, NAN, NAN, NAN, NAN}, {0, 0, 0, 0, INFINITY}, {NAN, 1, 2, 3, 4}};
    for (size_t i = 0; i < N(bad); i++)
        ck_fails(calm_router_choose(ctx, &f.block, bad[i], 1, routes), CALM_ENUMERIC,
                 "block 1: a router logit is not finite");
    calm_model_close(f.model);
}
END_OF_TEST

/* Rows of an expert are in order, each with its weight, and the windows' bounds divide them at the right places. */
TEST(tokens_by_expert)
{
    fixture f;
    calm_routing routing;
    open_fixture("qwen3_moe", NULL, &f);
    calm_batch batch = new_batch(&f, NULL);
    ck_ok(calm_moe_route(ctx, &f.block, &batch, NULL, &routing));
    ck_assert_uint_eq(routing.begin[5], f.rows * 2);
    for (size_t e = 0; e < 5; e++) {
        const size_t *window = routing.window + e * (batch.n + 1);
        ck_assert(window[0] == routing.begin[e] && window[batch.n] == routing.begin[e + 1]);
        for (size_t at = routing.begin[e]; at < routing.begin[e + 1]; at++) {
            const size_t row = routing.token[at];
            const calm_route *routes = routing.routes + row * 2, *mine = routes[0].expert == e ? routes : routes + 1;
            ck_assert(mine->expert == e && mine->weight == routing.weight[at]);
            ck_assert(at == routing.begin[e] || routing.token[at - 1] < row);
        }
        for (size_t w = 0; w < batch.n; w++)
            for (size_t at = window[w]; at < window[w + 1]; at++)
                ck_assert(routing.token[at] >= f.windows.begin[w] && routing.token[at] < f.windows.begin[w + 1]);
    }
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- waves, threads, memory ---- */

TEST(waves_of_any_size)
{
    fixture f;
    open_fixture("qwen2_moe", NULL, &f);
    const float *expected = run(&f, NULL);
    static const size_t sizes[][5] = {{1, 1, 1, 1, 1}, {5}, {2, 3}, {4, 1}};
    for (size_t i = 0; i < N(sizes); i++) {
        calm_batch batch = new_batch(&f, NULL);
        calm_routing routing;
        calm_moe_sum sum;
        ck_ok(calm_moe_route(ctx, &f.block, &batch, NULL, &routing));
        ck_ok(calm_moe_begin(ctx, f.block.config, &batch, ctx->out, &sum));
        for (size_t k = 0, first = 0; first < 5; first += sizes[i][k++])
            ck_ok(calm_moe_experts(ctx, &f.block, &batch, &routing, first, sizes[i][k], NULL, &sum));
        ck_ok(calm_moe_end(ctx, &f.block, &batch, NULL, &sum));
        same_bits(&f, rows_of(&batch), expected);
    }
    calm_model_close(f.model);
}
END_OF_TEST

TEST(size_of_a_wave)
{
    fixture f;
    size_t begin[] = {0, 4, 4, 10, 11, 20};
    open_fixture("qwen3_moe", NULL, &f);
    const calm_routing routing = {.begin = begin};
    const size_t row = 32 * sizeof(float);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 0, 0), 1);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 0, 4 * row), 2);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 0, 10 * row - 1), 2);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 0, 10 * row), 3);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 0, 100 * row), 5);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 3, 100 * row), 2);
    ck_assert_uint_eq(calm_moe_wave(&f.block, &routing, 4, 0), 1);
    calm_model_close(f.model);
}
END_OF_TEST

TEST(threads_and_files)
{
    static const char *const families[] = {"qwen2_moe", "qwen3_moe", "nemotron_latent"};
    for (size_t i = 0; i < N(families); i++) {
        fixture f;
        open_fixture(families[i], NULL, &f);
        const float *expected = run(&f, NULL);
        for (int threads = 1; threads <= 3; threads += 2) {
            ctx->n_threads = threads;
            same_bits(&f, run(&f, NULL), expected);
            same_bits(&f, run(&f, test_directory()), expected);
        }
        ctx->n_threads = 1;
        calm_model_close(f.model);
    }
}
END_OF_TEST

TEST(rows_next_to_what_is_carried)
{
    fixture f;
    open_fixture("qwen3_moe", NULL, &f);
    const float *expected = run(&f, NULL);
    same_bits(&f, expected, run_carrying(&f, NULL));
    same_bits(&f, expected, run_carrying(&f, test_directory()));
    calm_model_close(f.model);
}
END_OF_TEST

/* ---- experts that are read, observed, or fail ---- */

typedef struct counting_loader {
    const calm_mixture *moe;
    size_t n_reads[5];
    size_t fails;    /* this expert cannot be read; 5: none */
} counting_loader;

static calm_status count_and_load(void *user, calm_ctx *task, size_t block, size_t expert,
                                  calm_weight weight[CALM_N_ROLES])
{
    counting_loader *loader = user;
    loader->n_reads[expert]++;
    if (expert == loader->fails)
        return calm_fail(task, CALM_EIO, "expert %zu is gone", expert);
    return loader->moe->load(loader->moe->user, task, block, expert, weight);
}

/* With a router of zeros every logit is exactly zero in any order of sums, so all tokens tie and go to experts 0 and
 * 1; the others are not read. */
TEST(experts_nobody_chose)
{
    fixture f;
    const float router[5 * 32] = {0};
    open_fixture("qwen3_moe", NULL, &f);
    const calm_mixture moe = f.block.moe;
    counting_loader loader = {.moe = &moe, .fails = 5};
    f.block.moe.router = router;
    f.block.moe.load = count_and_load;
    f.block.moe.user = &loader;
    run(&f, NULL);
    ck_assert(loader.n_reads[0] == 1 && loader.n_reads[1] == 1);
    ck_assert_uint_eq(loader.n_reads[2] + loader.n_reads[3] + loader.n_reads[4], 0);
    f.block.moe.load = moe.load;
    f.block.moe.user = moe.user;
    compare(&f);
}
END_OF_TEST

TEST(an_expert_that_cannot_be_read)
{
    fixture f;
    open_fixture("qwen3_moe", NULL, &f);
    const calm_mixture moe = f.block.moe;
    counting_loader loader = {.moe = &moe, .fails = 2};
    f.config.moe.top_k = 5;
    f.block.moe.load = count_and_load;
    f.block.moe.user = &loader;
    for (int threads = 1; threads <= 3; threads += 2) {
        calm_batch batch = new_batch(&f, test_directory());
        ctx->n_threads = threads;
        ck_fails(calm_moe_run(ctx, &f.block, &batch, NULL), CALM_EIO, "expert 2 is gone");
        calm_batch_close(&batch);
    }
    calm_model_close(f.model);
}
END_OF_TEST

typedef struct seen_rows {
    const fixture *f;
    size_t n[5], outputs[5], shared;
    uint32_t last[5];
} seen_rows;

static calm_status look(void *user, calm_ctx *task, const calm_observation *seen)
{
    seen_rows *all = user;
    (void)task;
    if (seen->expert == CALM_SHARED_EXPERT)
        all->shared += seen->hook == CALM_HOOK_DOWN_IN ? seen->n_rows : 0;
    if (seen->expert < 0)
        return CALM_OK;
    const size_t e = (size_t)seen->expert;
    for (size_t i = 0; i < seen->n_rows && seen->hook == CALM_HOOK_GATE_UP_IN; i++) {
        float h[32];
        ck_assert(all->n[e] == 0 || seen->rows[i] > all->last[e]);
        calm_norm_rows(&all->f->block.norm[CALM_SUBLAYER_MLP][CALM_NORM_IN], all->f->x + seen->rows[i] * 32, 1, h);
        ck_assert(memcmp(h, seen->x + i * 32, sizeof h) == 0);
        all->last[e] = seen->rows[i];
        all->n[e]++;
    }
    ck_assert_uint_eq(seen->width, seen->hook == CALM_HOOK_GATE || seen->hook == CALM_HOOK_DOWN_IN ? 24 : 32);
    all->outputs[e] += seen->hook == CALM_HOOK_MLP_OUT ? seen->n_rows : 0;
    return CALM_OK;
}

TEST(observers_see_each_expert_its_rows)
{
    fixture f;
    calm_routing routing;
    open_fixture("qwen2_moe", NULL, &f);
    calm_batch batch = new_batch(&f, NULL);
    ck_ok(calm_moe_route(ctx, &f.block, &batch, NULL, &routing));
    seen_rows seen = {.f = &f};
    const calm_observer observer = {look, &seen};
    ck_ok(calm_moe_run(ctx, &f.block, &batch, &observer));
    for (size_t e = 0; e < 5; e++) {
        ck_assert_uint_eq(seen.n[e], routing.begin[e + 1] - routing.begin[e]);
        ck_assert_uint_eq(seen.outputs[e], seen.n[e]);
    }
    ck_assert_uint_eq(seen.shared, f.rows);
    same_bits(&f, rows_of(&batch), run(&f, NULL));
    calm_model_close(f.model);
}
END_OF_TEST

TEST(no_memory)
{
    fixture f;
    open_fixture("qwen2_moe", NULL, &f);
    const float *expected = run(&f, NULL);
    size_t n_failures = 0;
    for (long n = 1;; n++, n_failures++) {
        calm_batch batch = new_batch(&f, NULL);
        ctx->scratch->fail_in = n;
        const calm_status status = calm_moe_run(ctx, &f.block, &batch, NULL);
        ctx->scratch->fail_in = 0;
        if (status == CALM_OK) {
            same_bits(&f, rows_of(&batch), expected);
            break;
        }
        ck_assert_int_eq(status, CALM_ENOMEM);
        calm_ctx_clear_failure(ctx);
    }
    ck_assert_uint_gt(n_failures, 5);
    calm_model_close(f.model);
}
END_OF_TEST

/* Parts of the sublayer on the calling thread only: routing, an expert's rows, the end. */
TEST(memory)
{
    static const char *const families[] = {"qwen2_moe", "qwen3_moe", "nemotron_latent"};
    for (size_t i = 0; i < N(families); i++) {
        fixture f;
        open_fixture(families[i], NULL, &f);
        calm_batch batch = new_batch(&f, NULL);
        calm_routing routing;
        calm_moe_sum sum;
        const size_t each = calm_moe_expert_scratch_bytes(&f.config, f.rows);
        ctx->n_threads = 1;
        ck_memory_of_workers(calm_moe_route(ctx, &f.block, &batch, NULL, &routing),
                             calm_moe_route_bytes(&f.config, f.rows, N(lengths)),
                             calm_moe_route_scratch_bytes(&f.config, 17), 3, 0);
        ck_ok(calm_moe_route(ctx, &f.block, &batch, NULL, &routing));
        ck_ok(calm_moe_begin(ctx, f.block.config, &batch, ctx->out, &sum));
        test_memory_begin();
        ck_ok(calm_moe_experts(ctx, &f.block, &batch, &routing, 0, 5, NULL, &sum));
        const test_memory held = test_memory_end();
        size_t outputs = CALM_BYTES(float *, 5);
        for (size_t e = 0; e < 5; e++)
            outputs += calm_moe_experts_scratch_bytes(&f.config, 1, routing.begin[e + 1] - routing.begin[e]) -
                       CALM_BYTES(float *, 1);
        ck_assert_uint_eq(held.scratch, outputs);
        ck_assert_uint_le(outputs, calm_moe_experts_scratch_bytes(&f.config, 5, f.rows));
        ck_assert_uint_le(held.most, outputs + each + 4 * CALM_ARENA_CHUNK);
        ck_assert_uint_eq(calm_moe_expert_scratch_bytes(&f.config, CALM_MOE_ROWS),
                          calm_moe_expert_scratch_bytes(&f.config, 2 * CALM_MOE_ROWS));
        ck_assert_int_eq(calm_moe_end_scratch_bytes(&f.config, 17) > 0, f.config.moe.shared_inner > 0);
        ck_memory_of_workers(calm_moe_end(ctx, &f.block, &batch, NULL, &sum), 0,
                             calm_moe_end_scratch_bytes(&f.config, 17), 2, 0);
        calm_batch_close(&batch);
        calm_model_close(f.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("moe",
                     (const TTest *[]){experts_of_qwen3, shared_expert_of_qwen2, weighted_inputs_of_llama4,
                                       latent_of_nemotron, choice,
                                       logits_that_are_not_numbers,
                                       tokens_by_expert, waves_of_any_size, size_of_a_wave, threads_and_files,
                                       rows_next_to_what_is_carried,
                                       experts_nobody_chose, an_expert_that_cannot_be_read,
                                       observers_see_each_expert_its_rows, no_memory, memory, NULL});
}
