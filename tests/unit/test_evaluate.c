/* Evaluation of tiny models against naive sums in double over the same logits. */
#include "ptq/eval/evaluate.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 4
/* With a hidden size of 32 a head has tiles of 2^20 / 32 = 32768 tokens, and tasks have 32 rows: three tiles, two
 * tasks. */
#define WIDE_VOCAB ((size_t)70001)

static const size_t lengths[N_WINDOWS] = {11, 2, 25, 8};

static calm_model *open_vocab(uint64_t seed, bool tied, size_t vocab)
{
    tiny_model spec = tiny_default;
    calm_model *model;
    spec.seed = seed;
    spec.tied = tied;
    spec.vocab = vocab;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

static calm_model *open_tiny(uint64_t seed, bool tied)
{
    return open_vocab(seed, tied, tiny_default.vocab);
}

/* ---- the naive evaluation ---- */

static float *logits_of(const calm_subject *subject, const calm_windows *windows)
{
    const calm_model *model = subject->model;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    float *logits;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows->longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, windows, 0, windows->n, subject->override, subject->user,
                             ctx->out, &batch));
    ck_ok(CALM_NEW(ctx, ctx->out, logits, batch.rows * head.vocab));
    ck_ok(calm_head_tile_logits(ctx, &head, batch.hidden.data, batch.rows, 0, head.vocab, logits, head.vocab));
    return logits;
}

static void log_softmax(const float *logits, size_t n, double *out)
{
    double max = -INFINITY, sum = 0;
    for (size_t v = 0; v < n; v++)
        max = fmax(max, (double)logits[v]);
    for (size_t v = 0; v < n; v++)
        sum += exp((double)logits[v] - max);
    for (size_t v = 0; v < n; v++)
        out[v] = (double)logits[v] - max - log(sum);
}

static size_t first_best(const float *x, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* Tells whether `token` is among the five largest, with the lower token first of equal ones. */
static bool among_five(const float *x, size_t n, size_t token)
{
    size_t before = 0;
    for (size_t i = 0; i < n; i++)
        before += x[i] > x[token] || (x[i] == x[token] && i < token);
    return before < 5;
}

static calm_eval_result naive(const float *logits, const float *reference, const calm_windows *windows, size_t vocab)
{
    calm_eval_result result = {0};
    double *p, *q;
    ck_ok(CALM_NEW(ctx, ctx->out, p, vocab));
    ck_ok(CALM_NEW(ctx, ctx->out, q, vocab));
    ck_ok(CALM_NEW(ctx, ctx->out, result.windows, windows->n));
    for (size_t w = 0; w < windows->n; w++)
        for (size_t row = windows->begin[w]; row + 1 < windows->begin[w + 1]; row++) {
            double kl = 0;
            log_softmax(reference + row * vocab, vocab, p);
            log_softmax(logits + row * vocab, vocab, q);
            for (size_t v = 0; v < vocab; v++)
                kl += exp(p[v]) * (p[v] - q[v]);
            const size_t best = first_best(reference + row * vocab, vocab);
            const bool agree = first_best(logits + row * vocab, vocab) == best;
            const bool near = among_five(logits + row * vocab, vocab, best);
            calm_eval_window *at = &result.windows[w];
            at->tokens++;
            at->nll -= q[windows->ids[row + 1]];
            at->kl += kl;
            at->top1 += agree;
            at->top5 += near;
            result.tokens++;
            result.nll -= q[windows->ids[row + 1]];
            result.kl += kl;
            result.top1 += agree;
            result.top5 += near;
        }
    result.nll /= (double)result.tokens;
    result.kl /= (double)result.tokens;
    result.top1 /= (double)result.tokens;
    result.top5 /= (double)result.tokens;
    result.ppl = exp(result.nll);
    return result;
}

/* ---- tests ---- */

/* The logits are the same float32 values.  An exponential is within 2 ulp, 2.4e-7 relative, and its argument is
 * rounded by 6e-8 |x|, so log sum exp is off by at most 2.4e-7 + 6e-8 E|l - max|, under 9e-7 here, where E|l - max|
 * < 10.  kl has two of these, and weights that are off as much times differences of logits whose mean is below 10:
 * under 1e-5 again. */
#define TOLERANCE 1e-5

static void check_naive(const calm_eval_result *found, const calm_eval_result *expected)
{
    ck_near(found->nll, expected->nll, TOLERANCE);
    ck_near(found->kl, expected->kl, TOLERANCE);
    ck_near(found->top1, expected->top1, 0);
    ck_near(found->top5, expected->top5, 0);
    ck_near(found->ppl, expected->ppl, TOLERANCE * expected->ppl);
    for (size_t w = 0; w < N_WINDOWS; w++) {
        ck_assert_uint_eq(found->windows[w].tokens, lengths[w] - 1);
        ck_near(found->windows[w].nll, expected->windows[w].nll, TOLERANCE * (double)lengths[w]);
        ck_near(found->windows[w].kl, expected->windows[w].kl, TOLERANCE * (double)lengths[w]);
        ck_near(found->windows[w].top1, expected->windows[w].top1, 0);
        ck_near(found->windows[w].top5, expected->windows[w].top5, 0);
    }
}

TEST(equals_a_naive_computation)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *a = open_tiny(1, true), *b = open_tiny(2, false);
    const calm_subject reference = {.model = a}, subjects[] = {{.model = b}, {.model = a}};
    calm_eval_result ref, results[2];
    ck_ok(calm_evaluate(ctx, &reference, &ref, subjects, 2, results, &windows, NULL, NULL));
    const float *logits_a = logits_of(&reference, &windows), *logits_b = logits_of(&subjects[0], &windows);
    const calm_eval_result expected = naive(logits_b, logits_a, &windows, 61);
    const calm_eval_result own = naive(logits_a, logits_a, &windows, 61);
    ck_assert_uint_eq(results[0].tokens, 10 + 1 + 24 + 7);
    check_naive(&results[0], &expected);
    ck_near(ref.nll, own.nll, TOLERANCE);
    ck_assert(expected.kl > 0.1);    /* the models differ */
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

/* Maxima, targets and sums across tiles; of models with different widths the smaller tiles count, 2^20 / 48 tokens. */
TEST(a_vocabulary_of_several_tiles)
{
    calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    tiny_model spec = tiny_default;
    calm_model *a = open_vocab(1, true, WIDE_VOCAB), *b;
    spec.hidden = 48;
    spec.vocab = WIDE_VOCAB;
    spec.tied = false;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &b));
    for (size_t i = 0; i < windows.begin[N_WINDOWS]; i++)
        windows.ids[i] *= 1166;    /* 60 * 1166 = 69960: targets in every tile */
    const calm_subject reference = {.model = a}, subjects[] = {{.model = b}, {.model = a}};
    calm_eval_result ref, results[2];
    ck_ok(calm_evaluate(ctx, &reference, &ref, subjects, 2, results, &windows, NULL, NULL));
    const float *logits_a = logits_of(&reference, &windows), *logits_b = logits_of(&subjects[0], &windows);
    const calm_eval_result expected = naive(logits_b, logits_a, &windows, WIDE_VOCAB);
    const calm_eval_result own = naive(logits_a, logits_a, &windows, WIDE_VOCAB);
    check_naive(&results[0], &expected);
    check_naive(&ref, &own);
    ck_assert(results[1].kl == 0 && results[1].top1 == 1 && results[1].top5 == 1 && results[1].nll == ref.nll);
    ck_assert(expected.kl > 0.1);
    size_t best[4] = {0};    /* rows whose first choice is in each tile */
    for (size_t row = 0; row < windows.begin[N_WINDOWS]; row++)
        best[first_best(logits_a + row * WIDE_VOCAB, WIDE_VOCAB) / 21845]++;
    ck_assert(best[0] && best[1] && best[2]);
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

/* The same model with its second tile equal to the first, so that most maxima occur twice. */
#define TILE ((size_t)32768)
static calm_model *open_doubled(uint64_t seed)
{
    tiny_model spec = tiny_default;
    calm_safetensors *set;
    calm_model *model;
    char *bytes;
    size_t n;
    spec.seed = seed;
    spec.vocab = WIDE_VOCAB;
    const char *dir = tiny_model_write(&spec), *path = test_format("%s/model.safetensors", dir);
    ck_ok(calm_read_file(ctx, path, (size_t)1 << 26, &bytes, &n));
    ck_ok(calm_safetensors_open(ctx, path, &set));
    const calm_tensor *table = calm_safetensors_find(set, "model.embed_tokens.weight");
    const size_t row = table->bytes / WIDE_VOCAB;
    uint8_t *at = memmem(bytes, n, table->data, table->bytes);
    ck_assert_ptr_nonnull(at);
    memcpy(at + TILE * row, at, TILE * row);
    calm_safetensors_close(set);
    ck_ok(calm_write_file(ctx, path, bytes, n));
    ck_ok(calm_model_open(ctx, dir, &model));
    return model;
}

/* The first of equal maxima counts, also in different tiles. */
TEST(the_first_of_equal_maxima)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *doubled = open_doubled(1), *plain = open_vocab(1, true, WIDE_VOCAB);
    const calm_subject reference = {.model = doubled}, subject = {.model = plain};
    calm_eval_result result;
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &result, &windows, NULL, NULL));
    const calm_eval_result expected = naive(logits_of(&subject, &windows), logits_of(&reference, &windows), &windows,
                                            WIDE_VOCAB);
    check_naive(&result, &expected);
    ck_assert(expected.top1 > 0.2 && expected.top1 < 0.8 && expected.top5 > expected.top1);
    calm_model_close(doubled);
    calm_model_close(plain);
}
END_OF_TEST

/* Multiplies the norm before the MLP of block 1 by 1 + 2^-10. */
static calm_status nudge(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    calm_norm *norm = &block->norm[CALM_SUBLAYER_MLP][CALM_NORM_IN];
    float *w;
    (void)user;
    if (index != 1)
        return CALM_OK;
    CALM_TRY(CALM_NEW(task, task->out, w, norm->width));
    for (size_t i = 0; i < norm->width; i++)
        w[i] = norm->w[i] * (1 + 0x1p-10f);
    norm->w = w;
    return CALM_OK;
}

/* The same, and records the blocks that it was asked for. */
static calm_status nudge_and_note(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    size_t *asked = user;
    asked[index]++;
    return nudge(NULL, task, index, block);
}

/* A model that differs from the reference from block 1 on shares the reference's rows up to there: block 0 is not
 * run again, and all figures have the same bits.  There are so many windows that they form several batches. */
TEST(from_the_block_that_differs)
{
    enum { WINDOWS = 90, LENGTH = 300 };
    size_t each[WINDOWS], asked[2][2] = {{0}};
    for (size_t w = 0; w < WINDOWS; w++)
        each[w] = LENGTH;
    const calm_windows windows = tiny_windows(each, WINDOWS);
    calm_model *model = open_tiny(4, true);
    const size_t n_batches = (WINDOWS + calm_evaluation_batch(calm_model_config(model), WINDOWS, LENGTH) - 1) /
                             calm_evaluation_batch(calm_model_config(model), WINDOWS, LENGTH);
    const calm_subject reference = {.model = model},
                       subjects[] = {{.model = model, .override = nudge_and_note, .user = asked[0]},
                                     {.model = model, .override = nudge_and_note, .user = asked[1], .first_block = 1}};
    calm_eval_result ref, results[2];
    ck_ok(calm_evaluate(ctx, &reference, &ref, subjects, 2, results, &windows, NULL, NULL));
    ck_assert_uint_gt(n_batches, 1);
    ck_assert(asked[0][0] == n_batches && asked[0][1] == n_batches && asked[1][0] == 0 && asked[1][1] == n_batches);
    ck_assert(results[0].kl > 1e-7 && results[0].kl == results[1].kl && results[0].nll == results[1].nll);
    ck_assert_mem_eq(results[0].windows, results[1].windows, WINDOWS * sizeof *results[0].windows);
    calm_model_close(model);
}
END_OF_TEST

/* Errors of the exponentials (2^-24 = 6e-8 in the mean, of either sign) enter both log sum exp of a token: at most
 * 8.5e-8 by root mean square if one token has all the mass; those of the weights are multiplied by differences of
 * logits of 1e-3.  The mean over 42 tokens is then off by 1.3e-8.  The tolerance is seven times that, 8 % of this
 * divergence. */
TEST(nearly_equal_models)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(4, true);
    const calm_subject reference = {.model = model}, subject = {.model = model, .override = nudge};
    calm_eval_result ref, result;
    ck_ok(calm_evaluate(ctx, &reference, &ref, &subject, 1, &result, &windows, NULL, NULL));
    const calm_eval_result expected = naive(logits_of(&subject, &windows), logits_of(&reference, &windows), &windows,
                                            61);
    ck_assert(expected.kl > 1e-6 && expected.kl < 2e-6);
    ck_near(result.kl, expected.kl, 9e-8);
    calm_model_close(model);
}
END_OF_TEST

TEST(a_model_does_not_differ_from_itself)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(3, true), *twin = open_tiny(3, true);
    const calm_subject reference = {.model = model}, subjects[] = {{.model = model}, {.model = twin}};
    calm_eval_result ref, results[2];
    ck_ok(calm_evaluate(ctx, &reference, &ref, subjects, 2, results, &windows, NULL, NULL));
    for (size_t i = 0; i < 2; i++) {
        ck_assert(results[i].kl == 0 && results[i].top1 == 1 && results[i].top5 == 1);
        ck_assert(results[i].nll == ref.nll && results[i].ppl == ref.ppl);
    }
    ck_assert(ref.kl == 0 && ref.top1 == 1);
    calm_model_close(model);
    calm_model_close(twin);
}
END_OF_TEST

TEST(without_a_reference)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(1, true);
    const calm_subject subject = {.model = model};
    calm_eval_result result;
    ck_ok(calm_evaluate(ctx, NULL, NULL, &subject, 1, &result, &windows, NULL, NULL));
    ck_assert(isnan(result.kl) && isnan(result.top1) && isnan(result.top5));
    const float *logits = logits_of(&subject, &windows);
    ck_near(result.nll, naive(logits, logits, &windows, 61).nll, TOLERANCE);
    calm_model_close(model);
}
END_OF_TEST

static void check_threads(size_t vocab)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *a = open_vocab(1, true, vocab), *b = open_vocab(2, true, vocab);
    const calm_subject reference = {.model = a}, subject = {.model = b};
    calm_eval_result first, other;
    ctx->n_threads = 1;
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &first, &windows, NULL, NULL));
    ctx->n_threads = 4;
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &other, &windows, NULL, NULL));
    ck_assert(first.nll == other.nll && first.kl == other.kl && first.top1 == other.top1 && first.top5 == other.top5);
    ck_assert(memcmp(first.windows, other.windows, N_WINDOWS * sizeof *first.windows) == 0);
    calm_model_close(a);
    calm_model_close(b);
}

TEST(same_bytes_for_every_number_of_threads)
{
    check_threads(61);
    check_threads(WIDE_VOCAB);
}
END_OF_TEST

/* ---- the positions with the largest divergence ---- */

static int by_kl(const void *a, const void *b)
{
    const calm_eval_position *x = a, *y = b;
    if (x->kl != y->kl)
        return x->kl > y->kl ? -1 : 1;
    if (x->window != y->window)
        return x->window < y->window ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

/* Computes all positions by falling kl; the list must be their beginning. */
static size_t naive_positions(const calm_subject *reference, const calm_subject *subject, const calm_windows *windows,
                              calm_eval_position *out)
{
    const float *a = logits_of(reference, windows), *b = logits_of(subject, windows);
    double p[61], q[61];
    size_t n = 0;
    for (size_t w = 0; w < windows->n; w++)
        for (size_t row = windows->begin[w]; row + 1 < windows->begin[w + 1]; row++) {
            const uint32_t id = windows->ids[row + 1];
            calm_eval_position *at = &out[n++];
            log_softmax(a + row * 61, 61, p);
            log_softmax(b + row * 61, 61, q);
            *at = (calm_eval_position){.window = w, .token = row - windows->begin[w] + 1, .nll = -q[id],
                                       .reference_nll = -p[id], .id = id,
                                       .best = (uint32_t)first_best(b + row * 61, 61),
                                       .reference_best = (uint32_t)first_best(a + row * 61, 61)};
            for (size_t v = 0; v < 61; v++)
                at->kl += exp(p[v]) * (p[v] - q[v]);
        }
    qsort(out, n, sizeof *out, by_kl);
    return n;
}

TEST(the_worst_positions)
{
    calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *a = open_tiny(1, true), *b = open_tiny(11, false);
    const calm_subject reference = {.model = a}, subject = {.model = b};
    calm_eval_position expected[64];
    windows.ids[windows.begin[1]]++;    /* no two windows begin alike and have equal rows */
    const size_t n = naive_positions(&reference, &subject, &windows, expected);
    ck_assert_uint_eq(n, 10 + 1 + 24 + 7);
    for (size_t most = 1; most < 60; most += 19) {    /* 1, 20, 39, 58: all of them */
        calm_eval_result ref, result, plain;
        calm_eval_worst worst;
        ck_ok(calm_evaluate_worst(ctx, &reference, &ref, &subject, &result, &windows, most, NULL, NULL, &worst));
        ck_assert_uint_eq(worst.n, most < n ? most : n);
        ck_assert_uint_eq(worst.n_kl, n);
        for (size_t i = 0; i < n; i++) {    /* in the text's order */
            const calm_eval_position *e = &expected[i];
            size_t at = e->token - 1;
            for (size_t w = 0; w < e->window; w++)
                at += lengths[w] - 1;
            ck_near(worst.kl[at], e->kl, TOLERANCE);
        }
        for (size_t i = 0; i < worst.n; i++) {
            const calm_eval_position *f = &worst.each[i], *e = &expected[i];
            if (i + 1 < n)    /* no two are so near that rounding could swap them */
                ck_assert(e->kl - expected[i + 1].kl > 2 * TOLERANCE);
            ck_assert(f->window == e->window && f->token == e->token && f->id == e->id);
            ck_assert(f->best == e->best && f->reference_best == e->reference_best);
            ck_near(f->kl, e->kl, TOLERANCE);
            ck_near(f->nll, e->nll, TOLERANCE);
            ck_near(f->reference_nll, e->reference_nll, TOLERANCE);
        }
        ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &plain, &windows, NULL, NULL));
        ck_assert(plain.kl == result.kl && plain.nll == result.nll && plain.top5 == result.top5);
    }
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

/* A model has no divergence from itself: all positions are equal, and the first ones stay. */
TEST(equal_positions_keep_their_order)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(3, true);
    const calm_subject reference = {.model = model};
    calm_eval_result result;
    calm_eval_worst worst;
    ck_ok(calm_evaluate_worst(ctx, &reference, NULL, &reference, &result, &windows, 12, NULL, NULL, &worst));
    ck_assert_uint_eq(worst.n, 12);
    for (size_t i = 0; i < 12; i++) {
        ck_assert(worst.each[i].kl == 0);
        ck_assert_uint_eq(worst.each[i].window, i < 10 ? 0 : i - 9);
        ck_assert_uint_eq(worst.each[i].token, i < 10 ? i + 1 : 1);
    }
    calm_model_close(model);
}
END_OF_TEST

static calm_status break_norm(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    static float broken[32];
    (void)user, (void)task, (void)index;
    for (size_t i = 0; i < 32; i++)
        broken[i] = INFINITY;
    block->norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN].w = broken;
    return CALM_OK;
}

static calm_status refuse(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    (void)user, (void)block;
    return index == 1 ? calm_fail(task, CALM_EFORMAT, "no block %zu today", index) : CALM_OK;
}

TEST(failures)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(1, true), *wider;
    tiny_model spec = tiny_default;
    calm_eval_result results[2];
    const calm_subject broken = {.model = model, .override = break_norm},
                       failing = {.model = model, .override = refuse};
    ck_fails(calm_evaluate(ctx, NULL, NULL, &broken, 1, results, &windows, NULL, NULL), CALM_ENUMERIC, "not finite");
    ck_fails(calm_evaluate(ctx, NULL, NULL, &failing, 1, results, &windows, NULL, NULL), CALM_EFORMAT,
             "no block 1 today");
    spec.vocab = 70;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &wider));
    const calm_subject reference = {.model = wider}, subject = {.model = model};
    ck_fails(calm_evaluate(ctx, &reference, NULL, &subject, 1, results, &windows, NULL, NULL), CALM_EARG,
             "has a vocabulary of 61");
    calm_model_close(model);
    calm_model_close(wider);
}
END_OF_TEST

/* The last event. */
typedef struct heard {
    size_t last, total;
    bool rising;
} heard;

static void hear(void *user, size_t done, size_t total)
{
    heard *h = user;
    h->rising = h->rising && done >= h->last;
    h->last = done;
    h->total = total;
}

TEST(ticks_reach_the_end)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *model = open_tiny(1, true);
    const calm_subject reference = {.model = model}, subject = {.model = model};
    calm_eval_result result;
    heard h = {.rising = true};
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &result, &windows, hear, &h));
    ck_assert(h.rising && h.last == h.total && h.total > 0);
    calm_model_close(model);
}
END_OF_TEST

/* The number of events, and the largest step between two. */
typedef struct steps {
    size_t n, last, largest;
} steps;

static void hear_step(void *user, size_t done, size_t total)
{
    steps *s = user;
    (void)total;
    s->n++;
    s->largest = calm_size_max(s->largest, done - s->last);
    s->last = done;
}

/* The vocabulary has 256 times the weights of a block, so most of the work is logits, which send their own events. */
TEST(ticks_count_the_vocabulary)
{
    static const size_t same[N_WINDOWS] = {[0 ... N_WINDOWS - 1] = 20};
    const calm_windows windows = tiny_windows(same, N_WINDOWS);
    tiny_model spec = tiny_default;
    calm_model *model;
    calm_eval_result result;
    steps s = {0};
    spec.vocab = 1 << 17;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const calm_subject reference = {.model = model}, subject = {.model = model};
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &result, &windows, hear_step, &s));
    const size_t total = 2 * N_WINDOWS;
    ck_assert_uint_eq(s.last, total);
    ck_assert_uint_gt(s.n, 4);
    ck_assert_uint_le(s.largest, total / 2);
    calm_model_close(model);
}
END_OF_TEST

/* Two subjects, one with the reference's checkpoint; most of the memory is for the head's products. */
TEST(memory)
{
    static const size_t same[] = {70, 70, 70, 70};
    const calm_windows windows = tiny_windows(same, 4);
    tiny_model spec = tiny_default;
    calm_model *a, *b;
    calm_eval_result reference, results[2];
    spec.hidden = 256;
    spec.head_dim = 64;
    spec.vocab = 4096;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &a));
    spec.seed++;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &b));
    const calm_config *config = calm_model_config(a);
    const calm_subject one = {.model = a}, subjects[] = {{.model = b}, {.model = a}};
    calm_evaluation_shape shape = {.config = config, .n_windows = 4, .longest = 70, .n = 2, .has_reference = true,
                                   .n_checkpoints = 2};
    shape.block_bytes = calm_batch_block_scratch_bytes(config, 0, 4, 70, 0, false, 1);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        shape.block_bytes += calm_model_load_sublayer_bytes(a, 0, s);
    ck_assert_uint_eq(calm_evaluation_batch(config, 4, 70), 4);
    ck_assert_uint_eq(calm_evaluation_batch(config, 1000, 70), calm_evaluation_rows(config) / 70);
    ck_assert_uint_eq(calm_evaluation_batch(config, 3, 0), 3);
    ctx->n_threads = 1;
    ck_memory_of_workers(calm_evaluate(ctx, &one, &reference, subjects, 2, results, &windows, NULL, NULL),
                         calm_evaluate_bytes(&shape), calm_evaluate_scratch_bytes(&shape, 1), 4, 0);
    calm_eval_worst worst;
    shape.n = 1;
    shape.n_kl = 4 * 70;
    shape.worst = 30;
    ck_memory_of_workers(calm_evaluate_worst(ctx, &one, &reference, subjects, results, &windows, 30, NULL, NULL,
                                             &worst),
                         calm_evaluate_bytes(&shape), calm_evaluate_scratch_bytes(&shape, 1), 4, 0);
    shape.n_kl = shape.worst = 0;
    shape.has_reference = false;
    shape.n_checkpoints = 1;
    ck_memory_of_workers(calm_evaluate(ctx, NULL, NULL, subjects, 1, results, &windows, NULL, NULL),
                         calm_evaluate_bytes(&shape), calm_evaluate_scratch_bytes(&shape, 1), 4, 0);
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

int main(void)
{
    return run_tests("evaluate", (const TTest *[]){
        equals_a_naive_computation, a_vocabulary_of_several_tiles, the_first_of_equal_maxima,
        nearly_equal_models, from_the_block_that_differs, a_model_does_not_differ_from_itself, without_a_reference,
        same_bytes_for_every_number_of_threads, the_worst_positions, equal_positions_keep_their_order, failures,
        ticks_reach_the_end, ticks_count_the_vocabulary, memory, NULL});
}
