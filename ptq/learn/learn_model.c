/* Tuning the whole model: group scales and norms of all blocks by gradients of KL(float || model), with fixed codes;
 * for encoders, which predict nothing, also biases, by gradients of 1 - cosine of the sentence embeddings.
 *
 *   loss of a window = mean over its predictions of KL(p || q);  one window per step, Adam (algorithms/adam.h)
 *   loss of sentences = mean of 1 - cosine(q, f);  sentences of 512 tokens together per step
 *   `learn_loss` mini: adds the loss of the relations of the last attention (ptq/layers/attention_relations.c)
 *
 * Gradients are computed block by block (learn_divergence.c), and a block's scales change at once, since the step does
 * not read them again.  Every few steps the loss of windows that are not learned from is measured; the state of least
 * loss is the result.  If this loss is well above the start's, steps are too large: tuning continues from the best
 * state with a quarter of the rate. */
#include <math.h>

#include "ptq/base/threads.h"
#include "ptq/learn/learn_impl.h"

/* If the loss exceeds the start's by the first factor, the rate is multiplied by the second.  A smaller excess is
 * normal: good steps raise the loss at first, and it falls below the start's when they get shorter. */
#define RISEN   1.1
#define SHORTER .25
/* Raised whenever tuning gives other numbers; enters the keys. */
#define REVISION 3

/* State of tuning. */
typedef struct tuning {
    calm_tuning of;
    size_t held, from;           /* windows 0 .. held - 1 are measured; the first learned from */
    double rate;                 /* rate of the first step                                   */
    size_t before;               /* number of steps before Adam's last reset                 */
    double begun, seen;          /* start in seconds; sum of the steps' losses since the last measurement */
    size_t n_seen;
} tuning;

static calm_status step(calm_ctx *ctx, tuning *s, size_t first, size_t end, double rate, size_t t)
{
    double kl;
    float *d;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, d, calm_tuning_rows(s->of.of.p) * s->of.floats.width));
    CALM_TRY(calm_tuning_divergence(ctx, &s->of, first, end, d, &kl));
    s->seen += kl;
    calm_event_figure(&s->of.of.p->events, CALM_STAGE_LEARN, kl);
    s->n_seen++;
    for (size_t b = calm_model_config(s->of.of.p->in.model)->n_blocks; b-- > s->of.first;) {
        CALM_TRY(calm_tuning_back(ctx, &s->of, b, first, end, d));
        if (s->of.tunes[b])
            CALM_TRY(calm_tune_step(ctx, s->of.tunes[b], rate, t));
    }
    return CALM_OK;
}

/* ---- all steps ---- */

/* Measures the mean divergence of the held-out windows. */
static calm_status look(calm_ctx *ctx, tuning *s, double *out)
{
    *out = 0;
    for (size_t first = 0, end; first < s->held; first = end) {
        double kl;
        end = calm_tuning_end(s->of.of.p, first, s->held);
        CALM_TRY(calm_tuning_divergence(ctx, &s->of, first, end, NULL, &kl));
        *out += kl * ((double)(end - first) / (double)s->held);
    }
    return CALM_OK;
}

static void for_all(const tuning *s, void (*fn)(calm_tune *tune))
{
    for (size_t b = 0; b < calm_model_config(s->of.of.p->in.model)->n_blocks; b++)
        if (s->of.tunes[b])
            fn(s->of.tunes[b]);
}

static const char *name_of_loss(const tuning *s)
{
    return calm_inputs_encode(&s->of.of.p->in) ? "1 - cosine" : "KL";
}

/* Returns the rate of step t, which falls linearly. */
static double rate_of(const tuning *s, size_t t)
{
    return s->rate * (1 - (double)(t - 1) / (double)s->of.of.p->in.recipe->tune_steps);
}

static void log_look(calm_ctx *ctx, tuning *s, size_t t, const calm_learn_outcome *out, double loss)
{
    const size_t n = (size_t)s->of.of.p->in.recipe->tune_steps;
    calm_log(ctx, CALM_LOG_INFO, "tuning, step %zu of %zu: %s %.5f on %zu held-out windows (at first %.5f), %.5f on "
             "those learned from, rate %.2g, %.0f s left", t, n, name_of_loss(s), loss, s->held, out->before,
             s->seen / (double)s->n_seen, rate_of(s, t), (calm_seconds() - s->begun) * (double)(n - t) / (double)t);
    s->seen = 0;
    s->n_seen = 0;
}

/* Measures the held-out windows after step t, and keeps the state as the best, continues, or returns to the best. */
static calm_status look_after(calm_ctx *ctx, tuning *s, size_t t, calm_learn_outcome *out)
{
    double loss;
    CALM_TRY(look(ctx, s, &loss));
    log_look(ctx, s, t, out, loss);
    if (loss > RISEN * out->before) {
        if (t < (size_t)s->of.of.p->in.recipe->tune_steps)
            calm_log(ctx, CALM_LOG_INFO, "tuning, step %zu: the loss rose, so steps are a quarter as large from the "
                     "best state on", t);
        for_all(s, calm_tune_restart);
        s->rate *= SHORTER;
        s->before = t;
    } else if (loss < out->after) {
        out->after = loss;
        for_all(s, calm_tune_keep);
    }
    return CALM_OK;
}

/* Runs all steps; out->after is the loss of the best state. */
static calm_status run_steps(calm_ctx *ctx, tuning *s, calm_learn_outcome *out)
{
    const calm_recipe *recipe = s->of.of.p->in.recipe;
    const size_t n = (size_t)recipe->tune_steps, n_windows = s->of.floats.n;
    CALM_TRY(look(ctx, s, &out->before));
    out->after = out->before;
    s->begun = calm_seconds();
    s->rate = recipe->tune_rate;
    for (size_t t = 1, first = s->from, end; t <= n; t++, first = end < n_windows ? end : s->from) {
        end = calm_tuning_end(s->of.of.p, first, n_windows);
        CALM_TRY(step(ctx, s, first, end, rate_of(s, t), t - s->before));
        calm_event(&s->of.of.p->events, CALM_STAGE_LEARN, t, n);
        if (t % CALM_LEARN_LOOK_STEPS == 0 || t == n)
            CALM_TRY(look_after(ctx, s, t, out));
    }
    return CALM_OK;
}

/* Does the same; numbers that are not finite end tuning with the best state so far.  out->kept: nothing was better. */
static calm_status tune(calm_ctx *ctx, tuning *s, calm_learn_outcome *out)
{
    *out = (calm_learn_outcome){.before = NAN, .after = NAN};
    const calm_status status = run_steps(ctx, s, out);
    for_all(s, calm_tune_restore);
    if (status == CALM_ENUMERIC) {
        calm_log(ctx, CALM_LOG_WARNING, "tuning ends: %s", ctx->message);
        calm_ctx_clear_failure(ctx);
    } else {
        CALM_TRY(status);
    }
    if (!(out->after < out->before))
        CALM_TRY(calm_strf(ctx, ctx->out, &out->kept, "no step lowered the divergence of the held-out windows"));
    return CALM_OK;
}

/* ---- begin and end ---- */

/* Stores all blocks or none, so that a run that is killed here tunes again from the start. */
static calm_status keep(calm_ctx *ctx, tuning *s, const calm_learn_outcome *outcome, double seconds)
{
    const size_t n_blocks = calm_model_config(s->of.of.p->in.model)->n_blocks;
    calm_store *store = s->of.of.p->in.store;
    CALM_SCOPED_TRANSACTION(ctx, store);
    for (size_t b = 0; b < n_blocks; b++) {
        CALM_SCOPED_RESULTS(ctx);
        CALM_SCOPED_SCRATCH(ctx);
        calm_learn_result result = {.jobs = s->of.views[b].jobs, .outcome = *outcome};
        if (!s->of.tunes[b])
            continue;
        CALM_TRY(calm_learn_view_vectors(ctx, &s->of.views[b], &result.vectors));
        CALM_TRY(calm_learn_keep(ctx, &s->of.of, b, &result, seconds / (double)n_blocks));
    }
    return calm_store_commit(ctx, store);
}

/* Runs the float model, then tunes, with all memory in arenas that are released at the end. */
static calm_status run(calm_ctx *ctx, tuning *s)
{
    const double begun = calm_seconds();
    calm_learn_outcome outcome;
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    if (calm_cluster_ranks(s->of.of.p->cluster) > 1)
        calm_log(ctx, CALM_LOG_INFO, "tuning takes one step after the other: rank 0 alone, the others wait");
    CALM_TRY(calm_tuning_open(ctx, &s->of));
    CALM_TRY(tune(ctx, s, &outcome));
    if (outcome.kept)
        calm_log(ctx, CALM_LOG_WARNING, "tuning: the result stays as it was: %s", outcome.kept);
    return keep(ctx, s, &outcome, calm_seconds() - begun);
}

/* Does the store have all blocks? */
static bool is_there(const calm_learn_stage *s)
{
    bool all = true;
    for (size_t b = s->p->in.first_block; b < s->p->in.end_block; b++)
        all &= !s->blocks[b] || s->there[b];
    return all;
}

calm_status calm_learn_model(calm_ctx *ctx, calm_run *p)
{
    const calm_plan start = p->result.plan;
    const size_t held = calm_learn_model_held(p);
    tuning s = {.of = {.of = {.p = p, .suffix = CALM_TUNED_SUFFIX, .start = &start, .facts = &p->result.tuned},
                       .floats.hidden.file = -1, .entering.hidden.file = -1,
                       .mini = p->in.recipe->learn_loss == CALM_LEARN_MINI},
                .held = held, .from = calm_learn_model_from(p)};
    calm_learn_stage *stage = &s.of.of;
    calm_plan plan;
    char *learner;
    CALM_TRY(calm_strf(ctx, ctx->out, &learner, CALM_TUNER "@%d(steps=%lld,rate=%g,held=%zu%s)", REVISION,
                       p->in.recipe->tune_steps, p->in.recipe->tune_rate, held, s.of.mini ? ",loss=mini" : ""));
    stage->learner = learner;
    CALM_TRY(calm_learn_look_up(ctx, stage, true));
    if (!is_there(stage)) {
        p->result.tuned = (calm_learned_facts){.operations = p->result.tuned.operations};
        const calm_status status = run(ctx, &s);
        calm_batch_close(&s.of.floats);
        calm_batch_close(&s.of.entering);
        CALM_TRY(status);
    }
    calm_event_complete(&p->events, CALM_STAGE_LEARN);
    calm_memory_note(ctx, &p->held.learn);
    CALM_TRY(calm_learn_plan(ctx, stage, p->in.end_block, &plan));
    if (p->result.tuned.n > p->result.tuned.kept)
        CALM_TRY(calm_learn_judge(ctx, stage, &plan));
    calm_memory_note(ctx, &p->held.evaluate);
    return CALM_OK;
}
