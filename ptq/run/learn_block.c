/* One block as a problem for a learner: its assembled weights and norms, and the loss of its output.
 *
 *   L = (1/T) sum over tokens |z_t - y_t|^2 / M
 *
 * z: the quantized block on the hidden rows that the quantized blocks before it leave, y: the float block on those of
 * the float model, M: the mean of |y_t|^2 over all tokens of all windows. */
#include "ptq/run/learn_impl.h"

#include <string.h>

#include "ptq/model/block_back.h"
#include "ptq/model/forward.h"
#include "ptq/plan/assemble.h"
#include "ptq/plan/block_vectors.h"
#include "ptq/quant/qblob.h"
#include "ptq/tensor/vector.h"

typedef struct learning {
    const calm_learn_task *task;
    const calm_layout *layout;
    size_t begin, end;               /* jobs of the block                                   */
    calm_block block;                /* as it runs; weights and norms change while it learns */
    calm_fold_set sets[CALM_N_SUBLAYERS];
    calm_block_grads grads;
    calm_learn_linear linears[CALM_N_ROLES];
    calm_learn_vector *vectors;      /* [n_vectors]                                         */
    float **vector_grads;            /* [n_vectors]                                         */
    size_t n_linears, n_vectors;
    double mean_square;              /* M                                                   */
} learning;

/* ---- the loss ---- */

/* Rows of one window of a batch. */
static calm_status window_rows(calm_ctx *ctx, const calm_batch *batch, size_t window, float **x)
{
    return calm_row_store_get(ctx, &batch->hidden, calm_batch_row(batch, window), calm_batch_tokens(batch, window), x);
}

/* The mean over tokens of the square of the targets. */
static calm_status mean_square(calm_ctx *ctx, const calm_batch *batch, double *out)
{
    double sum = 0;
    for (size_t w = 0; w < batch->n; w++) {
        CALM_SCOPED_SCRATCH(ctx);
        float *y;
        CALM_TRY(window_rows(ctx, batch, w, &y));
        sum += calm_vec_dot(calm_batch_tokens(batch, w) * batch->width, y, y);
    }
    *out = sum / (double)batch->rows;
    return CALM_OK;
}

/* Gradients are added to what the arrays hold. */
static void clear_gradients(const learning *l)
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (l->grads.weight[role])
            memset(l->grads.weight[role], 0, l->block.weight[role].out * l->block.weight[role].in * sizeof(float));
    for (size_t i = 0; i < l->n_vectors; i++)
        memset(l->vector_grads[i], 0, l->vectors[i].n * sizeof(float));
}

/* A calm_learn_loss_fn. */
static calm_status loss_of(void *user, calm_ctx *ctx, size_t window, bool gradients, double *loss)
{
    learning *l = user;
    const calm_batch *inputs = l->task->inputs;
    const calm_span span = calm_batch_span(inputs, window);
    const size_t n = span.n_tokens * inputs->width;
    const double scale = 1 / ((double)span.n_tokens * l->mean_square);
    CALM_SCOPED_SCRATCH(ctx);
    calm_block_tape *tape;
    float *x, *y, *z;
    CALM_TRY(window_rows(ctx, inputs, window, &x));
    CALM_TRY(window_rows(ctx, l->task->targets, window, &y));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, z, n));
    CALM_TRY(calm_block_forward_tape(ctx, &l->block, &l->task->run->rope, x, &span, z, &tape));
    calm_vec_axpy(n, -1, y, z);
    *loss = calm_vec_dot(n, z, z) * scale;
    if (!gradients)
        return CALM_OK;
    calm_vec_scale(n, (float)(2 * scale), z);
    clear_gradients(l);
    return calm_block_back(ctx, &l->block, &l->task->run->rope, tape, z, &l->grads, NULL);
}

/* A calm_tick_fn of the learner, whose `user` is that of the loss. */
static void tick(void *user, size_t done, size_t total)
{
    const learning *l = user;
    if (l->task->tick)
        l->task->tick(l->task->user, done, total);
}

/* ---- what is learned ---- */

/* A quantized job with the codes of its linears after folding, and its input scale where nothing could take it. */
static calm_status start_job(calm_ctx *ctx, const learning *l, size_t job, calm_qjob *out)
{
    const calm_job_ref *ref = &l->layout->jobs[job];
    const calm_scheme *scheme = &l->task->start->jobs[job].scheme;
    const calm_job_shape shape = calm_job_shape_of(scheme, ref->out, ref->in);
    const float *in_scale = NULL;
    size_t row = 0;
    *out = (calm_qjob){.out = ref->out, .in = ref->in, .group = shape.group, .n_groups = shape.n_groups,
                       .scheme = *scheme};
    for (size_t i = ref->first; i < ref->first + ref->n; i++)
        in_scale = l->sets[calm_job_sublayer(ref->kind)].linear[l->layout->linears[i].role].in_scale;
    CALM_TRY(calm_qjob_new(ctx, in_scale ? CALM_QJOB_SCALED : 0, out));
    if (in_scale)
        memcpy(out->in_scale, in_scale, out->in * sizeof *in_scale);
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_qlinear *from = &l->sets[calm_job_sublayer(ref->kind)].linear[l->layout->linears[i].role];
        const size_t cells = from->out * from->n_groups;
        out->global = from->global;
        out->act_global = from->act_global;
        memcpy(out->codes + row * out->in, from->codes, from->out * from->in);
        memcpy(out->scales + row * out->n_groups, from->scales, cells * sizeof *out->scales);
        if (out->zeros)
            memcpy(out->zeros + row * out->n_groups, from->zeros, cells);
        if (out->mins)
            memcpy(out->mins + row * out->n_groups, from->mins, cells * sizeof *out->mins);
        row += from->out;
    }
    return CALM_OK;
}

/* The linears of a job as the learner sees them: codes and scales are the job's own. */
static calm_status add_linears(calm_ctx *ctx, learning *l, const calm_job_ref *ref, const calm_qjob *qjob,
                               float *const targets[CALM_N_ROLES])
{
    const calm_learner *learner = l->task->run->in.recipe->learner;
    size_t row = 0;
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_linear_ref *linear = &l->layout->linears[i];
        calm_weight *weight = &l->block.weight[linear->role];
        /* Weights of a block are constant for all but who made them, which was calm_plan_apply for this block alone. */
        float *effective = (float *)(uintptr_t)weight->w, *grad = NULL;
        if (calm_learner_changes(learner, &qjob->scheme))
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, grad, linear->out * linear->in));
        l->grads.weight[linear->role] = grad;
        l->linears[l->n_linears++] =
            (calm_learn_linear){.name = linear->module, .scheme = qjob->scheme, .out = linear->out, .in = linear->in,
                                .group = qjob->group, .n_groups = qjob->n_groups, .w = targets[linear->role],
                                .codes = qjob->codes + row * qjob->in, .scales = qjob->scales + row * qjob->n_groups,
                                .zeros = qjob->zeros ? qjob->zeros + row * qjob->n_groups : NULL,
                                .mins = qjob->mins ? qjob->mins + row * qjob->n_groups : NULL,
                                .global = qjob->global,
                                .effective = effective, .grad = grad};
        row += linear->out;
    }
    return CALM_OK;
}

/* Where the backward pass puts the gradient of a vector; NULL: biases are not learned. */
static float **gradient_of(learning *l, const calm_block_vector *vector)
{
    switch (vector->kind) {
    case CALM_VECTOR_NORM:
        return &l->grads.norm[vector->sublayer][vector->place];
    case CALM_VECTOR_Q_NORM:
        return &l->grads.q_norm;
    case CALM_VECTOR_K_NORM:
        return &l->grads.k_norm;
    case CALM_VECTOR_NORM_BIAS:
    case CALM_VECTOR_BIAS:
        break;
    }
    return NULL;
}

/* The norms of the block as the learner sees them, each in an array of its own. */
static calm_status add_vectors(calm_ctx *ctx, learning *l, const calm_block_vector *all, size_t n)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, l->vectors, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, l->vector_grads, n));
    for (size_t i = 0; i < n; i++) {
        float **slot = gradient_of(l, &all[i]), *values;
        if (!slot)
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, all[i].n));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, *slot, all[i].n));
        memcpy(values, *all[i].at, all[i].n * sizeof *values);
        *all[i].at = values;
        l->vector_grads[l->n_vectors] = *slot;
        l->vectors[l->n_vectors++] = (calm_learn_vector){all[i].name, all[i].n, all[i].dtype, all[i].offset, values,
                                                         *slot};
    }
    return CALM_OK;
}

/* Vectors that are not those of the float block, as the checkpoint stores them. */
static calm_status changed_vectors(calm_ctx *ctx, const calm_block_vector *now, const calm_block_vector *before,
                                   size_t n, calm_vectors *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, n));
    out->count = 0;
    for (size_t i = 0; i < n; i++) {
        float *values;
        if (memcmp(*now[i].at, *before[i].at, now[i].n * sizeof *values) == 0)
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, now[i].n));
        for (size_t j = 0; j < now[i].n; j++)
            values[j] = calm_dtype_round(now[i].dtype, (*now[i].at)[j] - now[i].offset);
        out->of[out->count++] = (calm_named_vector){now[i].name, now[i].n, values};
    }
    return CALM_OK;
}

calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out)
{
    const calm_model *model = task->run->in.model;
    calm_plan_override override = {model, task->start};
    learning l = {.task = task, .layout = calm_model_layout(model)};
    calm_block before;
    calm_block_vector *all, *of_float;
    float *targets[CALM_N_ROLES];
    size_t n;
    l.begin = l.layout->block_begin[task->block];
    l.end = l.layout->block_begin[task->block + 1];
    CALM_TRY(calm_assemble_block(ctx, model, task->start, task->block, &before, l.sets));
    CALM_TRY(calm_assemble_targets(ctx, model, task->start, &before, targets));
    l.block = before;
    CALM_TRY(calm_plan_apply(&override, ctx, task->block, &l.block));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, l.end - l.begin));
    for (size_t j = l.begin; j < l.end; j++) {
        CALM_TRY(start_job(ctx, &l, j, &out->jobs[j - l.begin]));
        CALM_TRY(add_linears(ctx, &l, &l.layout->jobs[j], &out->jobs[j - l.begin], targets));
    }
    CALM_TRY(calm_block_vectors(ctx, model, &l.block, &all, &n));
    CALM_TRY(calm_block_vectors(ctx, model, &before, &of_float, &n));
    CALM_TRY(add_vectors(ctx, &l, all, n));
    CALM_TRY(mean_square(ctx, task->targets, &l.mean_square));
    const calm_learn_problem problem = {.linears = l.linears, .n_linears = l.n_linears, .vectors = l.vectors,
                                        .n_vectors = l.n_vectors, .n_windows = task->inputs->n,
                                        .loss = loss_of, .tick = tick, .user = &l};
    CALM_TRY(calm_learner_run(ctx, task->run->in.recipe->learner, &problem, &out->outcome));
    return changed_vectors(ctx, all, of_float, n, &out->vectors);
}

/* ---- memory ---- */

/* What the learner takes for linears and norms of these shapes. */
static size_t learner_bytes(const calm_run *p, size_t block, const calm_scheme *scheme)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_config *config = calm_model_config(p->in.model);
    calm_learn_linear linears[CALM_N_ROLES];
    calm_learn_vector vectors[CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + 2];
    calm_learn_problem problem = {.linears = linears, .vectors = vectors};
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            const calm_linear_ref *linear = &layout->linears[i];
            linears[problem.n_linears++] =
                (calm_learn_linear){.scheme = *scheme, .out = linear->out, .in = linear->in,
                                    .n_groups = calm_scheme_groups(scheme, linear->in)};
        }
    /* Norms of every place, and of q and k over whole projections. */
    for (; problem.n_vectors < sizeof vectors / sizeof *vectors; problem.n_vectors++)
        vectors[problem.n_vectors] = (calm_learn_vector){
            .n = calm_size_max(config->hidden, config->n_heads * config->head_dim)};
    return calm_learner_run_scratch_bytes(p->in.recipe->learner, &problem);
}

/* One block whose jobs all have this scheme, besides the hidden rows of all windows. */
static size_t block_bytes(const calm_run *p, size_t block, const calm_scheme *scheme, unsigned extras, size_t n_threads)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_config *config = calm_model_config(p->in.model);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    const size_t longest = p->in.calib.longest, rows = CALM_BYTES(float, longest * config->hidden);
    /* The float block, what was assembled of it once for codes and once for weights, and blobs on the way there. */
    const size_t assembled = calm_assembled_block_bytes(p->in.model, block, scheme, extras) +
                             calm_fold_set_apply_bytes(p->in.model, begin, end, extras) +
                             calm_assemble_fold_set_scratch_bytes(p->in.model, begin, end, scheme);
    size_t bytes = assembled + calm_assembled_block_bytes(p->in.model, block, scheme, extras);
    for (size_t j = begin; j < end; j++) {
        const size_t weights = layout->jobs[j].out * layout->jobs[j].in;
        /* Targets, gradients, codes of the result; when it is kept its blob. */
        bytes += 2 * CALM_BYTES(float, weights) +
                 calm_qjob_bytes(scheme, layout->jobs[j].out, layout->jobs[j].in, extras) +
                 calm_qblob_encode_bytes(scheme, layout->jobs[j].out, layout->jobs[j].in, extras);
    }
    /* Norms as they were, as they are, as they are stored and their blob; three copies of a window's rows. */
    bytes += 64 * CALM_BYTES(float, config->hidden) + learner_bytes(p, block, scheme) + 3 * rows +
             calm_block_back_scratch_bytes(config, block, longest, 0, n_threads);
    /* The pass of all windows through the block that came of it. */
    return calm_size_max(bytes, assembled + calm_batch_block_scratch_bytes(config, block, p->in.calib.n, longest, 0,
                                                                           scheme->act_bits, n_threads));
}

size_t calm_learn_bytes(const calm_run *p, unsigned extras, bool spill, size_t n_threads)
{
    const calm_recipe *recipe = p->in.recipe;
    const calm_config *config = calm_model_config(p->in.model);
    size_t most = 0;
    if (!recipe->learner || config->moe.n_experts)
        return 0;
    for (size_t b = p->in.first_block; b < p->in.end_block; b++)
        for (size_t i = 0; i < recipe->n_schemes; i++)
            most = calm_size_max(most, block_bytes(p, b, &recipe->schemes[i], extras, n_threads));
    /* Both passes have rows of their own; those that are held out are counted too. */
    return most + (spill ? 0 : 2 * calm_row_store_bytes(p->in.calib.begin[p->in.calib.n], config->hidden));
}
