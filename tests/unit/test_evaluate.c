/* Evaluation of tiny models against naive sums in double over the same logits. */
#include "ptq/eval/evaluate.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_WINDOWS 4

static const size_t lengths[N_WINDOWS] = {11, 2, 25, 8};

static calm_model *open_tiny(uint64_t seed, bool tied)
{
    tiny_model spec = tiny_default;
    calm_model *model;
    spec.seed = seed;
    spec.tied = tied;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    return model;
}

/* ---- the naive one ---- */

static float *logits_of(const calm_model *model, const calm_windows *windows)
{
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    float *logits;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows->longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, windows, 0, windows->n, NULL, NULL, ctx->out, &batch));
    ck_ok(CALM_NEW(ctx, ctx->out, logits, batch.rows * head.vocab));
    calm_head_logits(&head, batch.hidden, batch.rows, logits);
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

static calm_eval_result naive(const float *logits, const float *reference, const calm_windows *windows)
{
    calm_eval_result result = {0};
    ck_ok(CALM_NEW(ctx, ctx->out, result.windows, windows->n));
    for (size_t w = 0; w < windows->n; w++)
        for (size_t row = windows->begin[w]; row + 1 < windows->begin[w + 1]; row++) {
            double p[61], q[61], kl = 0;
            log_softmax(reference + row * 61, 61, p);
            log_softmax(logits + row * 61, 61, q);
            for (size_t v = 0; v < 61; v++)
                kl += exp(p[v]) * (p[v] - q[v]);
            const bool agree = first_best(logits + row * 61, 61) == first_best(reference + row * 61, 61);
            calm_eval_window *at = &result.windows[w];
            at->tokens++;
            at->nll -= q[windows->ids[row + 1]];
            at->kl += kl;
            at->top1 += agree;
            result.tokens++;
            result.nll -= q[windows->ids[row + 1]];
            result.kl += kl;
            result.top1 += agree;
        }
    result.nll /= (double)result.tokens;
    result.kl /= (double)result.tokens;
    result.top1 /= (double)result.tokens;
    result.ppl = exp(result.nll);
    return result;
}

/* ---- tests ---- */

/* The logits are the same float32 values; exponentials are within 2 ulp, 2.4e-7 of 1, and enter nll as log of their sum and
 * kl as weights of differences of logits, which are of order 1 to 10 here. */
#define TOLERANCE 1e-5

TEST(equals_a_naive_computation)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *a = open_tiny(1, true), *b = open_tiny(2, false);
    const calm_subject reference = {.model = a}, subjects[] = {{.model = b}, {.model = a}};
    calm_eval_result ref, results[2];
    ck_ok(calm_evaluate(ctx, &reference, &ref, subjects, 2, results, &windows, NULL, NULL));
    const float *logits_a = logits_of(a, &windows), *logits_b = logits_of(b, &windows);
    const calm_eval_result expected = naive(logits_b, logits_a, &windows), own = naive(logits_a, logits_a, &windows);
    ck_assert_uint_eq(results[0].tokens, 10 + 1 + 24 + 7);
    ck_near(results[0].nll, expected.nll, TOLERANCE);
    ck_near(results[0].kl, expected.kl, TOLERANCE);
    ck_near(results[0].top1, expected.top1, 0);
    ck_near(results[0].ppl, expected.ppl, TOLERANCE * expected.ppl);
    ck_near(ref.nll, own.nll, TOLERANCE);
    for (size_t w = 0; w < N_WINDOWS; w++) {
        ck_assert_uint_eq(results[0].windows[w].tokens, lengths[w] - 1);
        ck_near(results[0].windows[w].nll, expected.windows[w].nll, TOLERANCE * (double)lengths[w]);
        ck_near(results[0].windows[w].kl, expected.windows[w].kl, TOLERANCE * (double)lengths[w]);
        ck_near(results[0].windows[w].top1, expected.windows[w].top1, 0);
    }
    ck_assert(expected.kl > 0.1);    /* the models differ, so the comparison says something */
    calm_model_close(a);
    calm_model_close(b);
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
        ck_assert(results[i].kl == 0 && results[i].top1 == 1);
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
    ck_assert(isnan(result.kl) && isnan(result.top1));
    ck_near(result.nll, naive(logits_of(model, &windows), logits_of(model, &windows), &windows).nll, TOLERANCE);
    calm_model_close(model);
}
END_OF_TEST

TEST(same_bytes_for_every_number_of_threads)
{
    const calm_windows windows = tiny_windows(lengths, N_WINDOWS);
    calm_model *a = open_tiny(1, true), *b = open_tiny(2, true);
    const calm_subject reference = {.model = a}, subject = {.model = b};
    calm_eval_result first, other;
    ctx->n_threads = 1;
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &first, &windows, NULL, NULL));
    ctx->n_threads = 4;
    ck_ok(calm_evaluate(ctx, &reference, NULL, &subject, 1, &other, &windows, NULL, NULL));
    ck_assert(first.nll == other.nll && first.kl == other.kl && first.top1 == other.top1);
    ck_assert(memcmp(first.windows, other.windows, N_WINDOWS * sizeof *first.windows) == 0);
    calm_model_close(a);
    calm_model_close(b);
}
END_OF_TEST

static calm_status break_norm(void *user, calm_ctx *task, size_t index, calm_block *block)
{
    static float broken[32];
    (void)user, (void)task, (void)index;
    for (size_t i = 0; i < 32; i++)
        broken[i] = INFINITY;
    block->norm[0] = broken;
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
    const calm_subject broken = {model, break_norm, NULL}, failing = {model, refuse, NULL};
    ck_fails(calm_evaluate(ctx, NULL, NULL, &broken, 1, results, &windows, NULL, NULL), CALM_ENUMERIC, "not finite");
    ck_fails(calm_evaluate(ctx, NULL, NULL, &failing, 1, results, &windows, NULL, NULL), CALM_EFORMAT, "no block 1 today");
    spec.vocab = 70;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &wider));
    const calm_subject reference = {.model = wider}, subject = {.model = model};
    ck_fails(calm_evaluate(ctx, &reference, NULL, &subject, 1, results, &windows, NULL, NULL), CALM_EARG,
             "has a vocabulary of 61");
    calm_model_close(model);
    calm_model_close(wider);
}
END_OF_TEST

/* What tick has heard. */
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

TEST(paired_comparison)
{
    /* Per-token KL of b minus a per window: 0.1, 0.3, 0.2; mean 0.2, standard deviation 0.1, error 0.1 / sqrt 3. */
    calm_eval_window wa[] = {{10, 0, 1, 0}, {20, 0, 1, 0}, {5, 0, 2, 0}}, wb[] = {{10, 0, 2, 0}, {20, 0, 7, 0}, {5, 0, 3, 0}};
    const calm_eval_result a = {.windows = wa}, b = {.windows = wb};
    double delta, se;
    calm_eval_compare(&a, &b, 3, &delta, &se);
    ck_near(delta, 0.2, 1e-15);
    ck_near(se, 0.1 / sqrt(3), 1e-15);
    calm_eval_compare(&b, &a, 3, &delta, &se);
    ck_near(delta, -0.2, 1e-15);
    calm_eval_compare(&a, &b, 1, &delta, &se);
    ck_near(delta, 0.1, 1e-15);
    ck_assert(isnan(se));
}
END_OF_TEST

int main(void)
{
    return run_tests("evaluate", (const TTest *[]){
        equals_a_naive_computation, a_model_does_not_differ_from_itself, without_a_reference,
        same_bytes_for_every_number_of_threads, failures, ticks_reach_the_end, paired_comparison, NULL});
}
