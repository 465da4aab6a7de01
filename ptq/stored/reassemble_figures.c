/* Reads the figures of a stored run for its card, and stores the rows of the written files. */
#include "ptq/stored/stored_impl.h"

#include <string.h>

#include "ptq/finish/finish.h"

/* Copies the figures of an evaluation, without its windows, because nothing is compared again. */
static void take_measure(const calm_value *v, calm_measure *out)
{
    if (v[9].integer)
        *out = (calm_measure){CALM_STORE_EMBEDDINGS,
                              .embeddings = {.n = (size_t)v[6].integer, .pairs = (size_t)v[14].integer,
                                             .error = calm_value_as_real(&v[10]), .cosine = calm_value_as_real(&v[11]),
                                             .cosine_min = calm_value_as_real(&v[12]),
                                             .spearman = calm_value_as_real(&v[13])}};
    else
        *out = (calm_measure){CALM_STORE_PREDICTIONS,
                              .predictions = {.kl = calm_value_as_real(&v[3]), .ppl = calm_value_as_real(&v[4]),
                                              .top1 = calm_value_as_real(&v[5])}};
}

/* Copies a trial of the guard: on its first windows, or on more. */
static void take_trial(const calm_value *v, bool more, calm_result *r, calm_trial *trial)
{
    const size_t windows = (size_t)v[6].integer;
    const double delta = calm_value_as_real(&v[1]), se = calm_value_as_real(&v[2]);
    if (more) {
        trial->more = (calm_trial_more){.windows = windows, .id = v[7].integer, .delta = delta, .se = se};
        take_measure(v, &trial->more.measure);
        return;
    }
    r->guard.n = windows;
    trial->id = v[7].integer;
    trial->delta = delta;
    trial->se = se;
    take_measure(v, &trial->measure);
}

/* Copies the figures of an evaluation that the run used: of the guard to the trial of that name, of the evaluation's
 * text to float model and result.  Names without a trial are skipped: an older calm may have measured plans that this
 * version does not. */
static calm_status take_evaluation(calm_ctx *ctx, void *user, const calm_value *v)
{
    calm_result *r = user;
    const char *subject = calm_value_as_string(&v[0]), *role = calm_value_as_string(&v[15]);
    (void)ctx;
    if (!subject || !role)
        return CALM_OK;
    const bool more = strcmp(role, "guard_more") == 0;
    for (size_t i = 0; (more || strcmp(role, "guard") == 0) && i < r->n_trials; i++)
        if (strcmp(r->trials[i].name, subject) == 0)
            take_trial(v, more, r, &r->trials[i]);
    if (strcmp(role, "test") == 0 && strcmp(subject, "float") == 0)
        take_measure(v, &r->eval_float);
    if (strcmp(role, "test") != 0 || strcmp(subject, r->name) != 0)
        return CALM_OK;
    take_measure(v, &r->eval_result);
    r->eval.n = (size_t)v[6].integer;
    r->eval.longest = (size_t)v[8].integer;
    r->evaluates = v[7].integer > 0;
    return CALM_OK;
}

/* Copies one window of the result on the evaluation's text; the float model's divergence from itself is 0. */
static calm_status take_window(calm_ctx *ctx, void *user, const calm_value *v)
{
    calm_result *r = user;
    (void)ctx;
    if (v[0].integer < 0 || (size_t)v[0].integer >= r->eval.n)
        return CALM_OK;
    calm_eval_window *window = &r->eval_result.predictions.windows[v[0].integer];
    *window = (calm_eval_window){.tokens = (size_t)v[1].integer, .kl = calm_value_as_real(&v[2])};
    r->eval_float.predictions.windows[v[0].integer].tokens = window->tokens;
    return CALM_OK;
}

/* Reads the windows of the evaluation's text, for the standard error. */
static calm_status restore_windows(calm_ctx *ctx, calm_assembly *a)
{
    calm_result *r = &a->result;
    const calm_value params[] = {calm_value_int(a->run.id), calm_value_text(r->name)};
    if (!r->evaluates || r->eval_result.kind != CALM_STORE_PREDICTIONS)
        return CALM_OK;
    if (r->eval.n > INT32_MAX)    /* also a negative count */
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has %zu windows of the test text", a->recipe.store,
                         (long long)a->run.id, r->eval.n);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->eval_float.predictions.windows, r->eval.n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->eval_result.predictions.windows, r->eval.n));
    return calm_store_each(ctx, a->in.store, "SELECT w.number, w.tokens, w.kl FROM evaluation_window w"
                           " JOIN run_evaluation v ON v.evaluation_id = w.evaluation_id"
                           " WHERE v.run_id = ?1 AND v.role = 'test' AND v.subject = ?2", params, 2, take_window, r);
}

calm_status calm_assembly_figures(calm_ctx *ctx, calm_assembly *a)
{
    const calm_value run = calm_value_int(a->run.id);
    /* With the names and differences of this run. */
    CALM_TRY(calm_store_each(ctx, a->in.store,
                             "SELECT v.subject, coalesce(v.delta_kl, v.delta_one_minus_cosine), v.delta_se, e.kl,"
                             " e.ppl, e.top1, e.n_windows, e.id, e.window_tokens, e.kind = 'embeddings', e.error,"
                             " e.cosine, e.cosine_min, e.spearman, e.pairs, v.role"
                             " FROM run_evaluation v JOIN evaluation e ON e.id = v.evaluation_id"
                             " WHERE v.run_id = ?1", &run, 1, take_evaluation, &a->result));
    return restore_windows(ctx, a);
}

/* ---- written files ---- */

/* Opens the store for writing, only now: a run may write to it while a checkpoint is assembled.  *kept: the store
 * cannot be written, as on a read-only disk, and stays open for reading; the written files are complete all the
 * same. */
static calm_status open_to_record(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a, bool *kept)
{
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = o->command, .wait_seconds = -1};
    calm_store_close(a->in.store);
    const calm_status status = calm_store_open(ctx, o->store, &how, &a->in.store);
    *kept = status == CALM_EIO;
    if (*kept) {
        calm_log(ctx, CALM_LOG_WARNING, "%s is written, but the store does not list it: %s", o->output, ctx->message);
        calm_ctx_clear_failure(ctx);
        CALM_TRY(calm_store_open(ctx, o->store, NULL, &a->in.store));
    }
    a->result.store = a->in.store;
    return ctx->status;
}

calm_status calm_assembly_record(calm_ctx *ctx, const calm_assemble_options *o, calm_assembly *a)
{
    bool kept;
    CALM_TRY(open_to_record(ctx, o, a, &kept));
    if (kept)
        return CALM_OK;
    CALM_TRY(calm_checkpoint_put(ctx, &a->result));
    if (a->run.bytes_after || strcmp(a->run.status, "finished") != 0 || !a->run.result ||
        strcmp(a->run.result, a->result.name) != 0)
        return CALM_OK;
    const calm_store_outcome outcome = {.status = a->run.status, .result = a->run.result, .reason = a->run.reason,
                                        .bits_per_weight = a->run.bits_per_weight,
                                        .bytes_before = a->result.bytes_before,
                                        .bytes_after = a->result.bytes_after};
    return calm_store_run_end(ctx, a->in.store, a->run.id, &outcome);
}
