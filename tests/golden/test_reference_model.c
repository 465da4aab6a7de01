/* The bundled model against numbers of another program (docs/method.md, section 6): perplexity of the float model on
 * the bundled test text, and perplexity and KL divergence after rounding all weights to int4.
 *
 * Windows have 512 tokens; the first 200 of the text are used.  Float32 logits of two programs differ by about 1e-5.
 * That moves a token's loss, the difference of log sum exp and a logit, by 2e-5 at most, and the perplexity by 2e-5 of
 * itself if all 102,200 tokens have the same sign.  The KL divergence of a token moves by 1e-5 sum |p - q| for the
 * logits of q and about as much for those of p; sum |p - q| is at most sqrt(2 KL) (Pinsker).  The numbers of the other
 * program are rounded to half a unit of their last digit.  Bfloat16 scales change all three by far more (below).
 *
 * CALM_WHOLE_TEXT=1 also evaluates the whole text, against recipes/models/qwen-demo/reference.json. */
#include <stdio.h>

#include "algorithms/algorithm.h"
#include "ptq/eval/evaluate.h"
#include "ptq/plan/assemble.h"
#include "ptq/io/json.h"
#include "ptq/tokenizer/tokenizer.h"
#include "tests/support/harness.h"

#define WINDOW 512
#define WINDOWS 200
#define LOGIT 1e-5

static const char *bundled(const char *name)
{
    return test_format("%s/recipes/%s", CALM_SOURCE_DIR, name);
}

/* Opens the model and reads the first `n` windows of the test text; 0: all windows. */
static calm_model *open_bundled(size_t n, calm_windows *windows)
{
    calm_model *model;
    calm_tokenizer *tokenizer;
    ck_ok(calm_model_open(ctx, bundled("models/qwen-demo"), &model));
    ck_ok(calm_tokenizer_open(ctx, bundled("models/qwen-demo/tokenizer.json"), &tokenizer));
    const calm_windows_options how = {.seqlen = WINDOW, .n_windows = n, .seed = -1,
                                      .vocab = calm_model_config(model)->vocab};
    ck_ok(calm_windows_read(ctx, tokenizer, bundled("text/wikitext2-test.txt"), &how, windows));
    calm_tokenizer_close(tokenizer);
    return model;
}

/* ---- uniform rounding to nearest ---- */

/* Rounds a job when the plan needs it. */
static calm_status fetch(void *user, calm_ctx *task, const calm_plan_job *planned, calm_qjob *out)
{
    const calm_block *block = planned->source;
    const calm_model *model = user;
    const calm_layout *layout = calm_model_layout(model);
    const calm_job_ref *ref = &layout->jobs[layout->block_begin[block->index]];
    const calm_stats none = {0};
    calm_linear linears[CALM_N_ROLES];
    calm_job job = {.name = "job", .linears = linears, .stats = &none, .scheme = planned->scheme};
    calm_algorithm *rtn;
    while (strcmp(ref->role, planned->entry_name) != 0)    /* find the plan's job in the block */
        ref++;
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_weight *weight = &block->weight[layout->linears[i].role];
        linears[job.n_linears++] = (calm_linear){weight->name, weight->out, weight->in, weight->w,
                                                      weight->bias != NULL};
    }
    CALM_TRY(calm_algorithm_parse(task, "rtn", &rtn));
    return calm_algorithm_run(task, rtn, &job, out);
}

/* Plans every job of every block with one scheme, from the float weights. */
static calm_plan rounded_plan(calm_model *model, const char *scheme)
{
    const size_t n_blocks = calm_model_config(model)->n_blocks;
    const calm_layout *layout = calm_model_layout(model);
    calm_plan plan = {.n_jobs = layout->n_jobs, .fetch = fetch, .user = model};
    calm_block *blocks;
    ck_ok(CALM_NEW(ctx, ctx->out, plan.jobs, plan.n_jobs));
    ck_ok(CALM_NEW(ctx, ctx->out, blocks, n_blocks));
    for (size_t i = 0; i < plan.n_jobs; i++) {
        const calm_job_ref *job = &layout->jobs[i];
        plan.jobs[i] = (calm_plan_job){.quantized = true, .entry_name = job->role, .source = &blocks[job->block]};
        ck_ok(calm_scheme_parse(ctx, scheme, &plan.jobs[i].scheme));
    }
    for (size_t i = 0; i < n_blocks; i++)
        ck_ok(calm_model_load_block(ctx, model, i, &blocks[i]));
    return plan;
}

/* ---- tests ---- */

/* Scales are float16, as for the published numbers; bfloat16 would give .03209 / 33.262. */
TEST(first_windows)
{
    calm_windows windows;
    calm_eval_result reference, rounded;
    calm_model *model = open_bundled(WINDOWS, &windows);
    calm_plan plan = rounded_plan(model, "w4a16_g128_f16s");
    calm_plan_override override = {model, &plan};
    const calm_subject as_it_is = {.model = model},
                       subject = {.model = model, .override = calm_plan_apply, .user = &override};
    ck_ok(calm_evaluate(ctx, &as_it_is, &reference, &subject, 1, &rounded, &windows, NULL, NULL));
    ck_assert_uint_eq(windows.n_tokens, 400738);
    ck_assert_uint_eq(reference.tokens, WINDOWS * (WINDOW - 1));
    ck_near(reference.ppl, 32.2946, 2 * LOGIT * reference.ppl + 0.5e-4);
    ck_near(rounded.ppl, 33.174, 2 * LOGIT * rounded.ppl + 0.5e-3);
    ck_near(rounded.kl, 0.03167, 2 * LOGIT * sqrt(2 * rounded.kl) + 0.5e-5);
    calm_model_close(model);
}
END_OF_TEST

TEST(whole_text)
{
    const char *wanted = getenv("CALM_WHOLE_TEXT");
    calm_windows windows;
    calm_eval_result result;
    calm_json *expected;
    if (!wanted || !*wanted) {
        puts("SKIP: a part: the whole text (CALM_WHOLE_TEXT=1)");
        return;
    }
    calm_model *model = open_bundled(0, &windows);
    const calm_subject subject = {.model = model};
    ck_ok(calm_evaluate(ctx, NULL, NULL, &subject, 1, &result, &windows, NULL, NULL));
    ck_ok(calm_json_read(ctx, bundled("models/qwen-demo/reference.json"), 1 << 20, &expected));
    const calm_json *row = calm_json_get(expected, "window_512");
    ck_assert_int_eq((int64_t)windows.n_tokens, calm_json_int(calm_json_get(expected, "tokens"), 0));
    ck_assert_int_eq((int64_t)result.tokens, calm_json_int(calm_json_get(row, "predicted"), 0));
    ck_near(result.ppl, calm_json_number(calm_json_get(row, "ppl"), 0), 2 * LOGIT * result.ppl);
    calm_json_free(expected);
    calm_model_close(model);
}
END_OF_TEST

/* This takes minutes under sanitizers, and the tiny models of other tests run the same code. */
static bool is_too_slow(void)
{
#ifdef CALM_SANITIZED
    return true;
#else
    return false;
#endif
}

int main(void)
{
    if (is_too_slow()) {
        puts("SKIP: too slow under sanitizers (tests/run)");
        return 77;
    }
    return run_tests("reference_model", (const TTest *[]){first_windows, whole_text, NULL});
}
