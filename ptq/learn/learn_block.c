/* One block as a problem for a learner: its assembled weights and norms, and the loss of its output.
 *
 *   L = (1/T) sum over tokens |z_t - y_t|^2 / M
 *
 * over the T tokens of a step: one window, or several short ones that the learner joins.
 * All tokens have equal weight: `calibration.weight` applies only to the fits that the learner starts from.
 * z: output of the quantized block on the hidden states after the quantized blocks before it, y: output of the float
 * block on those of the float model, M: the mean of |y_t|^2 over all tokens of all windows. */
#include "ptq/learn/learn_impl.h"
#include "ptq/ranks/ranks.h"

#include "ptq/base/scope.h"
#include "ptq/model/forward.h"
#include "ptq/plan/assemble.h"
#include "ptq/quant/qblob.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/vector.h"

typedef struct learning {
    const calm_learn_task *task;
    calm_learn_view view;            /* weights and norms change while it learns */
    double mean_square;              /* M                                        */
    size_t *step_begin;              /* [n_steps + 1] windows of the batch that one step takes */
    size_t n_steps;                  /* number of steps that use every window once */
    double last;                     /* loss of the last step                    */
} learning;

/* ---- the loss ---- */

calm_status calm_learn_rows(calm_ctx *ctx, const calm_batch *batch, size_t window, float **x)
{
    return calm_row_store_get(ctx, &batch->hidden, calm_batch_row(batch, window), calm_batch_tokens(batch, window), x);
}

calm_status calm_learn_mean_square(calm_ctx *ctx, const calm_batch *batch, double *out)
{
    double sum = 0;
    for (size_t w = 0; w < batch->n; w++) {
        CALM_SCOPED_SCRATCH(ctx);
        float *y;
        CALM_TRY(calm_learn_rows(ctx, batch, w, &y));
        sum += calm_vec_dot(calm_batch_tokens(batch, w) * batch->width, y, y);
    }
    *out = sum / (double)batch->rows;
    return CALM_OK;
}

/* Adds one window's part of a step's loss to *loss; each token has weight `scale`. */
static calm_status add_window(calm_ctx *ctx, const learning *l, size_t window, double scale, bool gradients,
                              double *loss)
{
    const calm_batch *inputs = l->task->inputs;
    const calm_span span = calm_batch_span(inputs, window);
    const size_t n = span.n_tokens * inputs->width;
    CALM_SCOPED_SCRATCH(ctx);
    calm_block_tape *tape;
    float *x, *y, *z;
    CALM_TRY(calm_learn_rows(ctx, inputs, window, &x));
    CALM_TRY(calm_learn_rows(ctx, l->task->targets, window, &y));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, n));
    CALM_TRY(calm_block_forward_tape(ctx, &l->view.block, &l->task->run->rope, x, &span, z, &tape));
    calm_vec_axpy(n, -1, y, z);
    *loss += calm_vec_dot(n, z, z) * scale;
    if (!gradients)
        return CALM_OK;
    calm_vec_scale(n, (float)(2 * scale), z);
    return calm_block_back(ctx, &l->view.block, &l->task->run->rope, tape, z, &l->view.grads, NULL);
}

/* A calm_learn_loss_fn; its window number is the number of a step, which may have several windows. */
static calm_status loss_of(void *user, calm_ctx *ctx, size_t step, bool gradients, double *loss)
{
    learning *l = user;
    const calm_batch *inputs = l->task->inputs;
    const size_t begin = l->step_begin[step], end = l->step_begin[step + 1];
    const size_t rows = calm_batch_row(inputs, end - 1) + calm_batch_tokens(inputs, end - 1) -
                        calm_batch_row(inputs, begin);
    CALM_SCOPED_OPERANDS(ctx, gradients ? calm_bf16_of_steps(ctx->operands) : ctx->operands);
    *loss = 0;
    if (gradients)
        calm_learn_view_clear(&l->view);
    for (size_t w = begin; w < end; w++)
        CALM_TRY(add_window(ctx, l, w, 1 / ((double)rows * l->mean_square), gradients, loss));
    if (gradients)
        calm_learn_view_complete(&l->view);
    l->last = *loss;
    return CALM_OK;
}

/* Divides the windows among steps. */
static calm_status divide(calm_ctx *ctx, learning *l)
{
    const calm_batch *inputs = l->task->inputs;
    const size_t end = inputs->first + inputs->n, tokens = calm_learner_tokens(l->task->run->in.recipe->learner);
    CALM_TRY(CALM_NEW(ctx, ctx->out, l->step_begin, inputs->n + 1));
    for (size_t w = inputs->first; w < end; l->step_begin[++l->n_steps] = w - inputs->first)
        w = calm_windows_range_end(inputs->windows, w, end, tokens);
    return CALM_OK;
}

/* A calm_tick_fn of the learner, with the `user` of the loss. */
static void tick(void *user, size_t done, size_t total)
{
    const learning *l = user;
    calm_event_figure(&l->task->run->events, CALM_STAGE_LEARN, l->last);
    if (l->task->tick)
        l->task->tick(l->task->user, done, total);
}

calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out)
{
    const calm_learner *learner = task->run->in.recipe->learner;
    const calm_learn_view_options options = {.learner = learner, .targets = true};
    learning *l;
    /* The loader of experts points to the view, so the view must not move. */
    CALM_TRY(CALM_NEW(ctx, ctx->out, l, 1));
    l->task = task;
    CALM_TRY(calm_learn_view_open(ctx, task->run->in.model, task->start, task->block, &options, &l->view));
    CALM_TRY(calm_learn_mean_square(ctx, task->targets, &l->mean_square));
    CALM_TRY(divide(ctx, l));
    const calm_learn_view *v = &l->view;
    const calm_learn_problem problem = {.linears = v->linears, .n_linears = v->n_linears, .vectors = v->vectors,
                                        .n_vectors = v->n_vectors, .n_windows = l->n_steps,
                                        .loss = loss_of, .tick = tick, .user = l};
    CALM_TRY(calm_learner_run(ctx, learner, &problem, &out->outcome));
    out->jobs = v->jobs;
    return calm_learn_view_vectors(ctx, v, &out->vectors);
}

/* ---- memory ---- */

/* A calm_learn_bytes_fn; `user` is the learner. */
static size_t learner_bytes(const calm_learn_problem *shapes, const void *user)
{
    return calm_learner_run_scratch_bytes(user, shapes);
}

/* Returns the bytes for one block whose jobs all have this scheme, without the hidden states of all windows. */
static size_t block_bytes(const calm_run *p, size_t block, const calm_scheme *scheme, unsigned extras, size_t n_threads)
{
    const calm_model *model = p->in.model;
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_model_config(model);
    const size_t longest = p->in.calib.longest, rows = CALM_BYTES(float, longest * config->hidden);
    const size_t experts = config->moe.sparse[block] ? calm_assembled_expert_bytes(model, block, scheme, extras) : 0;
    size_t weights = 0, kept = 0, held = calm_learn_view_open_bytes(model, block, scheme, extras);
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        for (size_t i = job->first; i < job->first + job->n; i++)
            weights += CALM_BYTES(float, layout->linears[i].out * layout->linears[i].in);
        kept += calm_qblob_encode_bytes(scheme, job->out, job->in, extras);
    }
    /* Targets, decoded weights, gradients. */
    held += 3 * weights + CALM_BYTES(learning, 1) + CALM_BYTES(size_t, p->in.calib.n + 1);
    const size_t steps = calm_learn_sum_bytes(model, block, scheme, learner_bytes, p->in.recipe->learner) + 3 * rows +
                         calm_block_back_scratch_bytes(config, block, longest, 0, n_threads);
    const size_t most = held + calm_size_max(calm_learn_view_opening_bytes(model, block, scheme, extras),
                                                 calm_size_max(steps, kept));
    /* The pass of all windows through the learned block. */
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    const size_t assembled = calm_assembled_block_bytes(model, block, scheme, extras) +
                             calm_fold_set_apply_bytes(model, begin, end, extras) +
                             calm_assemble_fold_set_scratch_bytes(model, begin, end, scheme);
    return calm_size_max(most,
                         assembled + calm_batch_block_scratch_bytes(config, block, p->in.calib.n, longest, 2 * experts,
                                                                    scheme->act_bits, n_threads));
}

size_t calm_learn_bytes(const calm_run *p, unsigned extras, bool spill, size_t n_threads)
{
    const calm_recipe *recipe = p->in.recipe;
    const calm_config *config = calm_model_config(p->in.model);
    size_t most = 0;
    if (!recipe->learner)
        return 0;
    for (size_t b = p->in.first_block; b < p->in.end_block; b++)
        for (size_t i = 0; i < recipe->n_schemes; i++)
            most = calm_size_max(most, block_bytes(p, b, &recipe->schemes[i], extras, n_threads));
    if (p->several)
        most += calm_rank_rows_bytes(p->in.calib.longest, config->hidden);
    /* Both passes have hidden states of the windows that are not held out. */
    const size_t rows = p->in.calib.begin[p->in.calib.n] - p->in.calib.begin[calm_inputs_held_windows(&p->in)];
    return most + (spill ? 0 : 2 * calm_row_store_bytes(rows, config->hidden));
}
