/* Sensitivities of all units from one backward pass.
 *
 * Let e_t be the error of a quantized unit in row t of its block's output.  To the second order, the divergence of the
 * model is 1/2 sum e_t^T H_ts e_s, H = J^T F J of the predictions (ptq/eval/predict_sample.h).  For a random v, d = J^T
 * v has E[d d^T] = H, so (sum_t d_t . e_t)^2 / 2 is unbiased, but it has only one degree of freedom per window.  The
 * errors of different rows are nearly uncorrelated, so the terms t = s,
 *
 *   KL = 1/2 sum_t (d_t . e_t)^2
 *
 * which have one degree of freedom per token, omit little (docs/evidence/sensitivity.csv).  d at a block's output
 * serves every unit and candidate of the block; e is measured, so it includes what is not linear within the block. */
#include <math.h>

#include "ptq/plan/assemble.h"
#include "ptq/choose/choose_impl.h"
#include "ptq/tensor/vector.h"

/* The probes to estimate. */
typedef struct estimates {
    calm_run *p;
    calm_unit unit;
    const calm_probe *probes;    /* [n] */
    double *sums;                /* [n] sums of squares */
    size_t n, first_block;       /* the first block that has a probe */
} estimates;

/* Adds the windows in pass->work to the estimate of probe `i`, a unit of block `b`. */
static calm_status add_probe(calm_ctx *ctx, estimates *s, calm_gradient_pass *pass, size_t i, size_t b)
{
    const calm_model *model = s->p->in.model;
    const size_t width = pass->work.width, rows = pass->work.rows;
    calm_trial trial;
    float *y, *z;
    CALM_SCOPED_ARENA(plan);
    CALM_SCOPED_OUT(ctx, &plan);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_run_probe_trial(ctx, s->p, s->unit, &s->probes[i], &trial));
    calm_plan_override override = {model, &trial.plan};
    CALM_TRY(calm_batch_assign(ctx, &pass->inputs[b], &pass->work));
    CALM_TRY(calm_batch_load_block(ctx, model, &s->p->rope, b, calm_plan_apply, &override, &pass->work));
    CALM_TRY(calm_row_store_get(ctx, &pass->work.hidden, 0, rows, &z));
    CALM_TRY(calm_row_store_get(ctx, &pass->inputs[b + 1].hidden, 0, rows, &y));
    /* The float output is subtracted in place, because z has its own rows. */
    for (size_t t = 0; t < rows; t++) {
        calm_vec_axpy(width, -1, y + t * width, z + t * width);
        const double along = calm_vec_dot(width, pass->d + t * width, z + t * width);
        s->sums[i] += along * along;
    }
    calm_gradient_pass_tick(pass);
    return CALM_OK;
}

/* A calm_gradient_visit. */
static calm_status add_probes(calm_ctx *ctx, calm_gradient_pass *pass, size_t b)
{
    estimates *s = pass->user;
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    for (size_t i = 0; i < s->n; i++)
        if (layout->jobs[s->probes[i].job].block == b)
            CALM_TRY(add_probe(ctx, s, pass, i, b));
    return CALM_OK;
}

/* Lists in s the probes whose candidates exist and have no estimate; computes their dropped codes again. */
static calm_status list_unknown(calm_ctx *ctx, estimates *s, const calm_probe *probes, size_t n)
{
    const calm_layout *layout = calm_model_layout(s->p->in.model);
    calm_probe *of;
    CALM_TRY(CALM_NEW(ctx, ctx->out, of, n));
    s->probes = of;
    s->first_block = calm_model_config(s->p->in.model)->n_blocks;
    for (size_t i = 0; i < n; i++) {
        const calm_candidate *candidate = calm_candidate_at(&s->p->in, probes[i].job, probes[i].entry);
        CALM_SCOPED_ARENA(plan);
        CALM_SCOPED_OUT(ctx, &plan);
        calm_trial trial;
        CALM_TRY(calm_run_probe_trial(ctx, s->p, s->unit, &probes[i], &trial));
        if (trial.missing || isfinite(candidate->scores.value[calm_unit_point(s->unit)][CALM_SCORE_GRADIENT_KL]))
            continue;
        calm_recompute_mark(&trial.plan);
        of[s->n++] = probes[i];
        s->first_block = calm_size_min(s->first_block, layout->jobs[probes[i].job].block);
    }
    return calm_recompute_marked(ctx, s->p);
}

/* Runs all groups of windows, and puts the estimates as scores in one transaction. */
static calm_status run_all(calm_ctx *ctx, estimates *s)
{
    calm_gradient_pass pass = {.run = s->p, .n_windows = calm_inputs_gradient_windows(&s->p->in),
                               .key = "choice.sensitivity", .stage = CALM_STAGE_PROBE,
                               /* Back to the input of the next block, which is the output of the first probed one. */
                               .first_block = s->first_block + 1, .visit = add_probes, .user = s, .n_visits = s->n};
    const double tokens = (double)(s->p->in.calib.begin[pass.n_windows] - pass.n_windows);
    CALM_TRY(CALM_NEW(ctx, ctx->out, s->sums, s->n));
    CALM_TRY(calm_gradient_pass_run(ctx, &pass));
    CALM_SCOPED_TRANSACTION(ctx, s->p->in.store);
    for (size_t i = 0; i < s->n; i++)
        CALM_TRY(calm_run_probe_keep(ctx, s->p, s->unit, &s->probes[i], CALM_SCORE_GRADIENT_KL,
                                     s->sums[i] / 2 / tokens));
    return calm_store_commit(ctx, s->p->in.store);
}

calm_status calm_run_gradient(calm_ctx *ctx, calm_run *p, calm_unit unit, const calm_probe *probes, size_t n)
{
    estimates s = {.p = p, .unit = unit};
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(list_unknown(ctx, &s, probes, n));
    if (s.n)
        CALM_TRY(run_all(ctx, &s));
    calm_event_complete(&p->events, CALM_STAGE_PROBE);
    return CALM_OK;
}
