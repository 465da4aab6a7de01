/* Opens one block of a plan for a learner: assembles it and copies what the learner needs.
 *
 * Assembly needs the float weights and more memory, in a separate arena that is released when the view is open. */
#include "ptq/learn/learn_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "ptq/base/threads.h"
#include "ptq/layers/distance.h"
#include "ptq/plan/assemble.h"
#include "ptq/tensor/vector.h"

/* A view that is being opened. */
typedef struct opening {
    const calm_model *model;
    const calm_plan *plan;
    const calm_learn_view_options *options;
    calm_arena *parts;               /* memory that is released afterwards         */
    calm_block before;               /* the float block                            */
    calm_fold_set sets[CALM_N_SUBLAYERS];
    calm_learn_view *v;
} opening;

/* One fold set of the block. */
typedef struct part {
    size_t begin, end;               /* its jobs begin .. end - 1                  */
    const calm_fold_set *set;        /* assembled weights                          */
    const calm_weight *floats;       /* [CALM_N_ROLES] float weights               */
    calm_weight *weight;             /* [CALM_N_ROLES] weights of the view's block */
    float **grad;                    /* [CALM_N_ROLES] gradient arrays for the backward pass */
} part;

/* ---- assembly ---- */

/* Loads the float block, assembles its weights, and makes the block that runs with them. */
static calm_status assemble(calm_ctx *ctx, opening *o)
{
    calm_plan_override override = {o->model, o->plan};
    CALM_SCOPED_OUT(ctx, o->parts);
    CALM_TRY(calm_assemble_block(ctx, o->model, o->plan, o->v->index, &o->before, o->sets));
    o->v->block = o->before;
    return calm_plan_apply(&override, ctx, o->v->index, &o->v->block);
}

/* Does the same for one expert. */
static calm_status assemble_expert(calm_ctx *ctx, opening *o, size_t expert, calm_weight floats[CALM_N_ROLES],
                                   calm_fold_set *set)
{
    const calm_mixture *applied = &o->v->block.moe;
    CALM_SCOPED_OUT(ctx, o->parts);
    CALM_TRY(calm_assemble_expert(ctx, o->model, o->plan, &o->before, expert, floats, set));
    return applied->load(applied->user, ctx, o->v->index, expert, o->v->experts[expert]);
}

/* ---- linears ---- */

/* Creates a quantized job with the codes of its linears after folding, and with its input scale if no layer before
 * could absorb it, or a float linear did. */
static calm_status start_job(calm_ctx *ctx, const opening *o, const calm_fold_set *set, size_t job, calm_qjob *out)
{
    const calm_layout *layout = calm_model_layout(o->model);
    const calm_job_ref *ref = &layout->jobs[job];
    const calm_scheme *scheme = &o->plan->jobs[job].scheme;
    const calm_job_shape shape = calm_job_shape_of(scheme, ref->out, ref->in);
    const float *in_scale = NULL;
    size_t row = 0;
    *out = (calm_qjob){.out = ref->out, .in = ref->in, .group = shape.group, .n_groups = shape.n_groups,
                       .scheme = *scheme};
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_qlinear *linear = &set->linear[layout->linears[i].role];
        in_scale = linear->in_scale ? linear->in_scale : linear->fed_scale;
    }
    CALM_TRY(calm_qjob_new(ctx, in_scale ? CALM_QJOB_SCALED : 0, out));
    if (in_scale)
        memcpy(out->in_scale, in_scale, out->in * sizeof *in_scale);
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_qlinear *from = &set->linear[layout->linears[i].role];
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

/* Returns memory for decoded weights and gradient of linear `index` of the layout, which has n weights. */
static calm_status take_room(calm_ctx *ctx, const opening *o, size_t index, size_t n, bool wanted, float **effective,
                             float **grad)
{
    const calm_learn_buffers *room = o->options->room;
    /* A room has the layout's order, in which the shared expert may come before the others. */
    const size_t at = index - calm_model_layout(o->model)->jobs[o->v->begin].first;
    *grad = NULL;
    if (room) {
        *effective = room->effective[at];
        *grad = wanted ? room->grad[at] : NULL;
        return CALM_OK;
    }
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, *effective, n));
    return wanted ? CALM_NEW_RAW(ctx, ctx->out, *grad, n) : CALM_OK;
}

/* Adds the linears of a job for the learner; their codes and scales point into the job. */
static calm_status add_linears(calm_ctx *ctx, const opening *o, const part *of, const calm_job_ref *ref,
                               const calm_qjob *qjob, float *const targets[CALM_N_ROLES])
{
    calm_learn_view *v = o->v;
    const bool wanted = !o->options->learner || calm_learner_changes(o->options->learner, &qjob->scheme);
    size_t row = 0;
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        const calm_linear_ref *linear = &calm_model_layout(o->model)->linears[i];
        calm_weight *weight = &of->weight[linear->role];
        float *effective, *grad;
        CALM_TRY(take_room(ctx, o, i, linear->out * linear->in, wanted, &effective, &grad));
        weight->w = effective;
        /* A linear divides its input only if no layer before absorbed the scale. */
        weight->in_scale = of->set->linear[linear->role].in_scale ? qjob->in_scale : NULL;
        of->grad[linear->role] = grad;
        v->linear_grads[v->n_linears] = grad;
        v->linears[v->n_linears++] =
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

/* Replaces *values by a copy in ctx->out, for values that are not learned; NULL stays. */
static calm_status keep_values(calm_ctx *ctx, size_t n, const float **values)
{
    float *copy;
    if (!*values)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, copy, n));
    memcpy(copy, *values, n * sizeof *copy);
    *values = copy;
    return CALM_OK;
}

/* Keeps the linears of a job that stays float, as assembled, with the input scales that they absorbed. */
static calm_status keep_linears(calm_ctx *ctx, const opening *o, const part *of, const calm_job_ref *ref)
{
    for (size_t i = ref->first; i < ref->first + ref->n; i++) {
        calm_weight *weight = &of->weight[calm_model_layout(o->model)->linears[i].role];
        CALM_TRY(keep_values(ctx, weight->out * weight->in, &weight->w));
    }
    return CALM_OK;
}

static calm_status add_part(calm_ctx *ctx, const opening *o, const part *of)
{
    float *targets[CALM_N_ROLES] = {NULL};
    if (o->options->targets)
        CALM_TRY(calm_assemble_targets(ctx, o->model, o->plan, of->floats, of->begin, of->end, targets));
    for (size_t j = of->begin; j < of->end; j++) {
        const calm_job_ref *ref = &calm_model_layout(o->model)->jobs[j];
        calm_qjob *qjob = &o->v->jobs[j - o->v->begin];
        if (!o->plan->jobs[j].quantized) {
            CALM_TRY(keep_linears(ctx, o, of, ref));
            continue;
        }
        CALM_TRY(start_job(ctx, o, of->set, j, qjob));
        CALM_TRY(add_linears(ctx, o, of, ref, qjob, targets));
    }
    return CALM_OK;
}

/* A calm_expert_fn over a view. */
static calm_status load_expert(void *user, calm_ctx *ctx, size_t block, size_t expert, calm_weight weight[CALM_N_ROLES])
{
    const calm_learn_view *v = user;
    (void)ctx;
    (void)block;
    memcpy(weight, v->experts[expert], sizeof v->experts[expert]);
    return CALM_OK;
}

/* Keeps the biases of an expert's linears, which are not among the block's vectors. */
static calm_status keep_biases(calm_ctx *ctx, calm_weight weight[CALM_N_ROLES])
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        CALM_TRY(keep_values(ctx, weight[role].out, &weight[role].bias));
    return CALM_OK;
}

static calm_status add_expert(calm_ctx *ctx, opening *o, size_t expert)
{
    calm_learn_view *v = o->v;
    calm_weight floats[CALM_N_ROLES] = {{0}};
    calm_fold_set set;
    part of = {.set = &set, .floats = floats, .weight = v->experts[expert], .grad = v->expert_grads[expert].weight};
    CALM_TRY(assemble_expert(ctx, o, expert, floats, &set));
    calm_layout_fold_set(calm_model_layout(o->model), v->index, CALM_SUBLAYER_MLP, (long)expert, &of.begin, &of.end);
    CALM_TRY(add_part(ctx, o, &of));
    return keep_biases(ctx, v->experts[expert]);
}

/* Adds the MLP of a sparse block: its shared expert, its experts, and the values that are not learned. */
static calm_status add_mixture(calm_ctx *ctx, opening *o)
{
    calm_learn_view *v = o->v;
    const calm_config *config = calm_model_config(o->model);
    const size_t n = config->moe.n_experts;
    part shared = {.set = &o->sets[CALM_SUBLAYER_MLP], .floats = o->before.moe.shared, .weight = v->block.moe.shared,
                   .grad = v->grads.shared.weight};
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->experts, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->expert_grads, n));
    v->grads.experts = v->expert_grads;
    for (size_t e = 0; e < n; e++)
        CALM_TRY(add_expert(ctx, o, e));
    calm_layout_fold_set(calm_model_layout(o->model), v->index, CALM_SUBLAYER_MLP, CALM_SHARED_EXPERT, &shared.begin,
                         &shared.end);
    CALM_TRY(add_part(ctx, o, &shared));
    CALM_TRY(keep_biases(ctx, v->block.moe.shared));
    CALM_TRY(keep_values(ctx, n * config->hidden, &v->block.moe.router));
    CALM_TRY(keep_values(ctx, config->hidden, &v->block.moe.shared_gate));
    CALM_TRY(keep_values(ctx, n, &v->block.moe.choice_bias));
    v->block.moe.load = load_expert;
    v->block.moe.user = v;
    return CALM_OK;
}

/* Keeps the other tensors of a kind of sublayer (sinks, taps, decays, a router's bias), and the position bias of
 * attention scores. */
static calm_status keep_plains(calm_ctx *ctx, opening *o)
{
    calm_block *block = &o->v->block;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const calm_kind *kind = calm_block_kind(block, s);
        for (size_t i = 0; kind && i < kind->n_plains; i++) {
            calm_norm *plain = &block->plain[kind->plains[i].plain];
            if (kind->plains[i].form == CALM_PLAIN_TENSOR)
                CALM_TRY(keep_values(ctx, plain->width, &plain->w));
        }
    }
    return keep_values(ctx, block->config->n_heads * CALM_DISTANCE_WIDTH, &block->distance);
}

/* Keeps the tensors after the sublayers, which are not learned. */
static calm_status keep_tail(calm_ctx *ctx, opening *o)
{
    calm_tail *tail = &o->v->block.tail;
    calm_weight *const linears[] = {&tail->gate, &tail->projection, &tail->context};
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++)
        CALM_TRY(keep_values(ctx, linears[i]->out * linears[i]->in, &linears[i]->w));
    CALM_TRY(keep_values(ctx, tail->norm.width, &tail->norm.w));
    return keep_values(ctx, tail->context_norm.width, &tail->context_norm.w);
}

/* ---- vectors ---- */

static bool is_bias(const calm_block_vector *vector)
{
    return vector->kind == CALM_VECTOR_BIAS || vector->kind == CALM_VECTOR_NORM_BIAS;
}

/* Returns the place of a vector's gradient array in the view's grads. */
static float **gradient_of(calm_learn_view *v, const calm_block_vector *vector)
{
    switch (vector->kind) {
    case CALM_VECTOR_NORM:
        return &v->grads.norm[vector->sublayer][vector->place];
    case CALM_VECTOR_NORM_BIAS:
        return &v->grads.norm_bias[vector->sublayer][vector->place];
    case CALM_VECTOR_PLAIN:
        return &v->grads.plain[vector->plain];
    case CALM_VECTOR_BIAS:
        break;
    }
    return &v->grads.bias[vector->role];
}

/* Returns the unit of a bias, its root mean square; 0 for norms, and for a bias of zeros, which is not learned. */
static float unit_of(const calm_block_vector *vector, const float *values)
{
    return is_bias(vector) ? (float)sqrt(calm_vec_dot(vector->n, values, values) / (double)vector->n) : 0;
}

/* Copies norms and biases, and those of the float block; adds norms, and with options->biases biases, to the vectors
 * that are learned. */
static calm_status add_vectors(calm_ctx *ctx, opening *o)
{
    calm_learn_view *v = o->v;
    calm_block_vector *of_float;
    CALM_TRY(calm_block_vectors(ctx, o->model, &v->block, &v->all, &v->n_all));
    CALM_TRY(calm_block_vectors(ctx, o->model, &o->before, &of_float, &v->n_all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->floats, v->n_all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->vectors, v->n_all));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->vector_grads, v->n_all));
    for (size_t i = 0; i < v->n_all; i++) {
        const calm_block_vector *vector = &v->all[i];
        float **slot = gradient_of(v, vector), *values;
        v->floats[i] = *of_float[i].at;
        CALM_TRY(keep_values(ctx, vector->n, &v->floats[i]));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, vector->n));
        memcpy(values, *vector->at, vector->n * sizeof *values);
        *vector->at = values;
        const float unit = unit_of(vector, values);
        if (is_bias(vector) && !(o->options->biases && unit > 0))
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, *slot, vector->n));
        v->vector_grads[v->n_vectors] = *slot;
        v->vectors[v->n_vectors++] =
            (calm_learn_vector){.name = vector->name, .n = vector->n, .dtype = vector->dtype, .offset = vector->offset,
                                .unit = unit, .values = values, .grad = *slot};
    }
    return CALM_OK;
}

calm_status calm_learn_view_vectors(calm_ctx *ctx, const calm_learn_view *v, calm_vectors *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, v->n_all));
    out->count = 0;
    for (size_t i = 0; i < v->n_all; i++) {
        const calm_block_vector *now = &v->all[i];
        float *values;
        if (memcmp(*now->at, v->floats[i], now->n * sizeof *values) == 0)
            continue;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, now->n));
        for (size_t j = 0; j < now->n; j++)
            values[j] = calm_dtype_round(now->dtype, (*now->at)[j] - now->offset);
        out->of[out->count++] = (calm_named_vector){now->name, now->n, values};
    }
    return CALM_OK;
}

/* ---- the norm that q, k and v read ---- */

static bool reads_input(const calm_learn_view *v, calm_role role)
{
    const calm_job_kind job = calm_role_job(role);
    return calm_job_sublayer(job) == CALM_SUBLAYER_ATTENTION && calm_job_traits(v->block.config, job)->outer;
}

/* For x = p n, y = W x: p dL/dp = sum over outputs of dL/dW W.  If all linears that read x have gradients, the norm's
 * gradient follows from theirs, which saves the products that take dL/dy back to x: a twentieth of a step. */
static void imply_input_norm(calm_learn_view *v)
{
    const calm_norm *norm = &v->block.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN];
    float **slot = &v->grads.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN];
    bool all = norm->w && !norm->b;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        all &= !reads_input(v, role) || !v->block.weight[role].w || v->grads.weight[role];
    if (!all)
        return;
    v->input_norm_grad = *slot;
    *slot = NULL;
}

void calm_learn_view_complete(const calm_learn_view *v)
{
    const calm_norm *norm = &v->block.norm[CALM_SUBLAYER_ATTENTION][CALM_NORM_IN];
    float *sum = v->input_norm_grad;
    if (!sum)
        return;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_weight *weight = &v->block.weight[role];
        if (!reads_input(v, role))
            continue;
        for (size_t row = 0; weight->w && row < weight->out; row++)
            calm_vec_mul_add(weight->in, v->grads.weight[role] + row * weight->in, weight->w + row * weight->in,
                             sum);
    }
    /* The logarithm of a factor of 0 cannot be learned, so its gradient is set to 0. */
    for (size_t j = 0; j < norm->width; j++)
        sum[j] = norm->w[j] == 0 ? 0 : sum[j] / norm->w[j];
}

/* ---- open ---- */

static size_t count_linears(const calm_layout *layout, size_t block)
{
    size_t n = 0;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        n += layout->jobs[j].n;
    return n;
}

static calm_status open_parts(calm_ctx *ctx, opening *o)
{
    calm_learn_view *v = o->v;
    const calm_layout *layout = calm_model_layout(o->model);
    const size_t n = count_linears(layout, v->index);
    CALM_TRY(assemble(ctx, o));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->jobs, v->end - v->begin));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->linears, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, v->linear_grads, n));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        part of = {.set = &o->sets[s], .floats = o->before.weight, .weight = v->block.weight, .grad = v->grads.weight};
        if (s == CALM_SUBLAYER_MLP && v->block.moe.router) {
            CALM_TRY(add_mixture(ctx, o));
            continue;
        }
        calm_layout_fold_set(layout, v->index, s, CALM_NO_EXPERT, &of.begin, &of.end);
        CALM_TRY(add_part(ctx, o, &of));
    }
    CALM_TRY(keep_plains(ctx, o));
    CALM_TRY(keep_tail(ctx, o));
    CALM_TRY(add_vectors(ctx, o));
    imply_input_norm(v);
    return CALM_OK;
}

/* A calm_row_range_fn over the rows of a linear. */
static void decode_rows(size_t first, size_t n, void *user)
{
    const calm_learn_linear *linear = user;
    const size_t cell = first * linear->n_groups;
    const calm_qjob rows = {.out = n, .in = linear->in, .group = linear->group, .n_groups = linear->n_groups,
                            .scheme = linear->scheme, .codes = linear->codes + first * linear->in,
                            .scales = linear->scales + cell,
                            .zeros = linear->zeros ? (uint8_t *)(uintptr_t)linear->zeros + cell : NULL,
                            .mins = linear->mins ? (float *)(uintptr_t)linear->mins + cell : NULL,
                            .global = linear->global};
    calm_qjob_dequantize(&rows, linear->effective + first * linear->in);
}

void calm_learn_view_decode(calm_ctx *ctx, const calm_learn_view *v)
{
    for (size_t i = 0; i < v->n_linears; i++)
        calm_parallel_each_rows(ctx, v->linears[i].out, decode_rows, &v->linears[i]);
}

calm_status calm_learn_view_open(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                 const calm_learn_view_options *options, calm_learn_view *out)
{
    const calm_layout *layout = calm_model_layout(model);
    CALM_SCOPED_ARENA(parts);
    CALM_SCOPED_SCRATCH(ctx);
    opening o = {.model = model, .plan = plan, .options = options, .parts = &parts, .v = out};
    *out = (calm_learn_view){.index = index, .begin = layout->block_begin[index],
                             .end = layout->block_begin[index + 1]};
    CALM_TRY(open_parts(ctx, &o));
    if (!options->room)
        calm_learn_view_decode(ctx, out);
    return CALM_OK;
}

void calm_learn_view_clear(const calm_learn_view *v)
{
    for (size_t i = 0; i < v->n_linears; i++)
        if (v->linear_grads[i])
            memset(v->linear_grads[i], 0, v->linears[i].out * v->linears[i].in * sizeof(float));
    for (size_t i = 0; i < v->n_vectors; i++)
        memset(v->vector_grads[i], 0, v->vectors[i].n * sizeof(float));
}

/* ---- room ---- */

/* Returns the number of weights of the largest linear with this number in its block, over all blocks; 0 beyond the
 * last.  Linears of a block are consecutive. */
static size_t largest(const calm_model *model, size_t number)
{
    const calm_layout *layout = calm_model_layout(model);
    size_t most = 0;
    for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++) {
        const size_t begin = layout->block_begin[b], end = layout->block_begin[b + 1];
        if (begin == end || number >= layout->jobs[end - 1].first + layout->jobs[end - 1].n - layout->jobs[begin].first)
            continue;
        const calm_linear_ref *linear = &layout->linears[layout->jobs[begin].first + number];
        most = calm_size_max(most, linear->out * linear->in);
    }
    return most;
}

static size_t most_linears(const calm_model *model)
{
    size_t most = 0;
    for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++)
        most = calm_size_max(most, count_linears(calm_model_layout(model), b));
    return most;
}

calm_status calm_learn_room_new(calm_ctx *ctx, const calm_model *model, calm_learn_buffers *out)
{
    out->n = most_linears(model);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->effective, out->n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->grad, out->n));
    for (size_t i = 0; i < out->n; i++) {
        const size_t n = largest(model, i);
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->effective[i], n));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->grad[i], n));
    }
    return CALM_OK;
}

size_t calm_learn_room_new_bytes(const calm_model *model)
{
    const size_t n = most_linears(model);
    size_t bytes = 2 * CALM_BYTES(float *, n);
    for (size_t i = 0; i < n; i++)
        bytes += 2 * CALM_BYTES(float, largest(model, i));
    return bytes;
}

/* ---- memory ---- */

/* Number of biases of a block's linears. */
#define BIASES ((size_t)6)
/* Bound of the vectors in memory: norms of every place and of q and k, and biases; each for the block, the float block,
 * its gradient, its stored form and its name. */
#define VECTORS ((size_t)64)

size_t calm_learn_view_open_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_model_config(model);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    const size_t n = count_linears(layout, block);
    const bool sparse = config->moe.sparse[block];
    size_t bytes = CALM_BYTES(calm_qjob, end - begin) + CALM_BYTES(calm_learn_linear, n) + CALM_BYTES(float *, n) +
                   VECTORS * CALM_BYTES(float, calm_size_max(config->hidden, config->n_heads * config->head_dim));
    for (size_t j = begin; j < end; j++)
        bytes += calm_qjob_bytes(scheme, layout->jobs[j].out, layout->jobs[j].in, extras);
    /* Values that are not learned: plain tensors, the router, the position bias of scores. */
    bytes += calm_model_load_outline_bytes(model, block);
    if (sparse)
        bytes += config->moe.n_experts * (sizeof(calm_weight[CALM_N_ROLES]) + sizeof(calm_expert_grads)) + 128 +
                 CALM_BYTES(float, (config->moe.n_experts + 1) * config->hidden);
    return bytes;
}

size_t calm_learn_view_opening_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    const calm_layout *layout = calm_model_layout(model);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    const size_t experts = calm_model_config(model)->moe.sparse[block] ? calm_model_config(model)->moe.n_experts : 0;
    /* The float block, the assembled block once for codes and once for weights, and blobs while they are read. */
    return 2 * (calm_assembled_block_bytes(model, block, scheme, extras) +
                experts * calm_assembled_expert_bytes(model, block, scheme, extras)) +
           calm_fold_set_apply_bytes(model, begin, end, extras) +
           calm_assemble_fold_set_scratch_bytes(model, begin, end, scheme);
}

size_t calm_learn_sum_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                            calm_learn_bytes_fn *bytes, const void *user)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_model_config(model);
    calm_learn_linear linear;
    /* Norms of every place, and of q and k over whole projections; of encoders also biases: of q, k, v, o, up, which
     * has the inner width, and down. */
    calm_learn_vector vectors[2 * CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + 2 + BIASES];
    const size_t n = config->arch->encoder ? sizeof vectors / sizeof *vectors
                                           : CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + 2;
    for (size_t i = 0; i < n; i++)
        vectors[i] = (calm_learn_vector){.n = calm_size_max(config->hidden, config->n_heads * config->head_dim)};
    if (config->arch->encoder)
        vectors[0].n = config->inner;
    size_t sum = bytes(&(calm_learn_problem){.vectors = vectors, .n_vectors = n}, user);
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            linear = (calm_learn_linear){.scheme = *scheme, .out = layout->linears[i].out, .in = layout->linears[i].in,
                                         .n_groups = calm_scheme_groups(scheme, layout->linears[i].in)};
            sum += bytes(&(calm_learn_problem){.linears = &linear, .n_linears = 1}, user);
        }
    return sum;
}
