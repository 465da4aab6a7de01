/* The end of a run: evaluates the written files before they get their final name.
 *
 * If possible the figures of a run are measured on the bytes on disk, read back by the loader for any quantized
 * checkpoint, so that a fault of exporter or loader would show in the run's perplexity. */
#include <math.h>
#include <string.h>

#include "ptq/base/times.h"
#include "ptq/finish/finish.h"
#include "ptq/choose/choose.h"
#include "ptq/measure/measure.h"
#include "ptq/state/work.h"
#include "ptq/plan/assemble.h"
#include "ptq/export/export.h"

/* ---- evaluation of the written files ---- */

/* Opens the written files.  A GGUF file lacks data that calm needs for some models; then the plan is used. */
static calm_status open_written(calm_ctx *ctx, const calm_run *p, const calm_exporter *exporter, const char *dir,
                                calm_model **out)
{
    char *place;
    CALM_TRY(calm_outputs_place(ctx, &p->in.recipe->formats, exporter, dir, &place));
    const calm_status status = calm_inputs_open_written(ctx, p->in.recipe, place, out);
    if (status != CALM_EUNSUPPORTED || !exporter->file)
        return status;
    calm_log(ctx, CALM_LOG_WARNING, "%s; the evaluation leaves embedding and head float", ctx->message);
    calm_ctx_clear_failure(ctx);
    return CALM_OK;
}

/* Measures the files in `dir`, read back; or the plan, whose weights the files hold, if no format contains more than
 * the plan (only GGUF, with a float embedding and head). */
static calm_status measure_written(calm_ctx *ctx, calm_run *p, const calm_exporter *exporter, const char *dir,
                                   calm_eval_worst *worst)
{
    calm_stage_events events = {&p->events, CALM_STAGE_EVALUATE};
    CALM_SCOPED_MODEL(written);
    calm_plan_override override = {p->in.model, &p->result.plan};
    calm_subject subject = {.model = p->in.model, .override = calm_plan_apply, .user = &override};
    if (exporter)
        CALM_TRY(open_written(ctx, p, exporter, dir, &written));
    if (written)
        subject = (calm_subject){.model = written};
    p->written = written;
    const calm_status status = calm_run_measure_test(ctx, p, &p->result.eval_float, &subject, &p->result.eval_result,
                                                     calm_stage_tick, &events, worst);
    p->written = NULL;
    return status;
}

calm_status calm_run_read_eval(calm_ctx *ctx, calm_run *p)
{
    CALM_TRY(calm_run_work_read_eval(ctx, &p->in, &p->eval));
    p->result.eval = calm_window_facts_of(&p->eval);
    return CALM_OK;
}

/* Each budget's result was chosen on guard windows.  No choice depends on the evaluation's text, so its figures are
 * unbiased for all budgets. */
calm_status calm_run_test_budgets(calm_ctx *ctx, calm_run *p)
{
    const size_t n = p->in.recipe->n_budgets;
    calm_trial *trials;
    if (!p->result.evaluates)
        return CALM_OK;
    CALM_TRY(calm_run_read_eval(ctx, p));
    CALM_TRY(CALM_NEW(ctx, ctx->out, trials, n));
    for (size_t i = 0; i < n; i++) {
        const calm_pareto *spent = &p->result.pareto[i];
        trials[i] = spent->trials[spent->result];
        /* The name has the budget: several budgets may have the same result, and a run has one row per name. */
        CALM_TRY(calm_strf(ctx, ctx->out, &trials[i].name, "%g bits: %s", spent->budget, trials[i].name));
    }
    CALM_TRY(calm_trials_measure(ctx, p, trials, n, &p->eval, p->in.recipe->eval_name, CALM_STAGE_EVALUATE));
    CALM_TRY(calm_trials_put(ctx, p, trials, n, "budget"));
    for (size_t i = 0; i < n; i++)
        p->result.pareto[i].test = trials[i];
    calm_event_complete(&p->events, CALM_STAGE_EVALUATE);
    return CALM_OK;
}

/* Computes the subject of the final evaluation: the same plan with the same embedding and head has the same figures. */
static calm_status written_key(calm_ctx *ctx, const calm_run *p, const calm_exporter **exporter,
                               char key[CALM_SHA256_HEX])
{
    calm_outer_plan outer = {0};
    char plan_key[CALM_SHA256_HEX], fit[CALM_SHA256_HEX];
    calm_sha256 sha;
    CALM_TRY(calm_plan_key(ctx, &p->result.plan, key));
    if (p->choosing->head.algorithm)
        CALM_TRY(calm_outer_fit_key(ctx, &p->choosing->head, p->calib_key, fit));
    CALM_TRY(calm_outputs_measured(ctx, &p->in, &p->result.plan, exporter, &outer));
    if (!outer.scheme[CALM_OUTER_EMBEDDING].bits && !outer.scheme[CALM_OUTER_HEAD].bits)
        return CALM_OK;
    memcpy(plan_key, key, sizeof plan_key);
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-outer-1");
    calm_sha256_field(&sha, plan_key);
    for (calm_outer which = 0; which < CALM_N_OUTERS; which++)
        calm_sha256_field(&sha, CALM_SCHEME_NAME(&outer.scheme[which]));
    if (p->choosing->head.algorithm)
        calm_sha256_field(&sha, fit);
    return calm_sha256_finish(ctx, &sha, key);
}

/* Adds an 8-bit KV cache to the key; its scales depend on the calibration windows. */
static calm_status add_cache_key(calm_ctx *ctx, const calm_run *p, const calm_exporter *exporter,
                                 char key[CALM_SHA256_HEX])
{
    char plan_key[CALM_SHA256_HEX];
    calm_sha256 sha;
    if (!p->in.recipe->kv_cache || !exporter->caches)
        return CALM_OK;
    memcpy(plan_key, key, sizeof plan_key);
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-kv-fp8-1");
    calm_sha256_field(&sha, plan_key);
    calm_sha256_field(&sha, p->in.calib.sha256);
    return calm_sha256_finish(ctx, &sha, key);
}

/* Sets *out to whether both evaluations are stored, the result's with its tokens of largest divergence: a trial, or an
 * earlier version, may have stored the figures of the same plan on the same windows without them. */
static calm_status is_complete(calm_ctx *ctx, const calm_run *p, const int64_t ids[2], bool *out)
{
    *out = ids[0] && ids[1];
    if (!*out || calm_inputs_encode(&p->in) || p->eval.longest < 2)
        return CALM_OK;
    return calm_store_divergence_exists(ctx, p->in.store, ids[1], out);
}

/* Evaluates float model and result.  Evaluations are found by content, like candidates, so that a repeated or continued
 * run reads both from the store. */
static calm_status evaluate(calm_ctx *ctx, calm_run *p, const char *dir)
{
    const char *text = p->in.recipe->eval_name;
    const calm_exporter *exporter;
    char plan_key[CALM_SHA256_HEX];
    int64_t ids[2] = {0, 0};
    calm_eval_worst worst;
    bool complete;
    if (!p->result.evaluates)
        return CALM_OK;
    CALM_TRY(calm_run_read_eval(ctx, p));
    CALM_TRY(written_key(ctx, p, &exporter, plan_key));
    CALM_TRY(add_cache_key(ctx, p, exporter, plan_key));
    CALM_TRY(calm_run_find_evaluation(ctx, p, "float", &p->eval, &p->result.eval_float, &ids[0]));
    CALM_TRY(calm_run_find_evaluation(ctx, p, plan_key, &p->eval, &p->result.eval_result, &ids[1]));
    CALM_TRY(is_complete(ctx, p, ids, &complete));
    if (!complete) {
        CALM_TRY(measure_written(ctx, p, exporter, dir, &worst));
        CALM_TRY(calm_run_put_evaluation(ctx, p, "float", "float", text, &p->eval, &p->result.eval_float, &ids[0]));
        CALM_TRY(calm_run_put_evaluation(ctx, p, plan_key, p->result.name, text, &p->eval, &p->result.eval_result,
                                         &ids[1]));
        CALM_TRY(calm_run_put_divergence(ctx, p, &worst, ids[1]));
    }
    calm_event_complete(&p->events, CALM_STAGE_EVALUATE);
    /* The run refers to both evaluations, found or measured, because v_runs shows a run by these two rows. */
    const calm_store_verdict verdicts[2] = {{p->result.run_id, ids[0], "test", "float", NAN, NAN},
                                            {p->result.run_id, ids[1], "test", p->result.name, NAN, NAN}};
    CALM_TRY(calm_store_verdict_put(ctx, p->in.store, &verdicts[0]));
    return calm_store_verdict_put(ctx, p->in.store, &verdicts[1]);
}

/* Evaluates the files in `dir`, and compares the figures with the recipe's gates.  Called between weights and card
 * (calm_written_fn).  A gate that does not hold is no failure here: the checkpoint is completed, and the caller asks
 * calm_gates_verdict. */
static calm_status evaluate_and_judge(calm_ctx *ctx, void *user, const char *dir)
{
    calm_run *p = user;
    calm_memory_note(ctx, &p->held.assemble);    /* assembly ends here, and evaluation begins */
    {
        CALM_SCOPED_TIME(&p->result.times, CALM_TIME_EVALUATION);
        CALM_TRY(evaluate(ctx, p, dir));
    }
    CALM_TRY(calm_gates_measure(ctx, &p->result));
    return calm_gates_put(ctx, &p->result);
}

/* ---- the stage ---- */

calm_status calm_run_export(calm_ctx *ctx, calm_run *p)
{
    bool quantizes;
    /* Copied tensors are mapped, which the memory account does not count; free pages of arenas would add to them. */
    calm_memory_release(ctx->memory);
    CALM_TRY(calm_outputs_quantize_head(ctx, &p->in, &p->result.plan, &quantizes));
    if (quantizes)
        CALM_TRY(calm_run_fit_head(ctx, p));
    const calm_checkpoint checkpoint = {.in = &p->in, .result = &p->result, .events = &p->events,
                                        .fit = &p->choosing->head,
                                        .written = evaluate_and_judge, .user = p};
    CALM_TRY(calm_checkpoint_write(ctx, &checkpoint));
    calm_memory_note(ctx, &p->held.evaluate);
    return calm_checkpoint_put(ctx, &p->result);
}
