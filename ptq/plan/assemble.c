/* Assembly of one fold set of jobs.
 *
 * A candidate with an input scale s approximates W diag(s) and expects x / s.  No format stores s, so the division is
 * folded into what computes x: x is linear in the weight of a norm, in the rows of v (attention averages rows of v) and
 * in the rows of up (a gate multiplies them), so dividing row i by s_i gives x_i / s_i. */
#include "ptq/plan/assemble_impl.h"

#include <math.h>
#include <string.h>

#include "ptq/quant/qblob.h"
#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/plan/block_vectors.h"
#include "ptq/quant/grid.h"

/* ---- codes ---- */

/* Copies the bias before its first change, because all plans share the model's float biases. */
static calm_status own_bias(calm_ctx *ctx, const calm_weight *weight, calm_qlinear *linear)
{
    if (!weight->bias || linear->bias)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, linear->bias, weight->out));
    memcpy(linear->bias, weight->bias, weight->out * sizeof *linear->bias);
    return CALM_OK;
}

/* Adds a correction [out] to the bias of a linear, if it has one. */
static calm_status correct_bias(calm_ctx *ctx, const calm_weight *weight, const float *delta, calm_qlinear *linear)
{
    CALM_TRY(own_bias(ctx, weight, linear));
    for (size_t i = 0; linear->bias && i < weight->out; i++)
        linear->bias[i] += delta[i];
    return CALM_OK;
}

/* Divides the rows of a job among its linears, in the layout's order.  Codes, scales and zeros point into the job's
 * arrays, so folding changes the fetched scales themselves. */
static calm_status split_job(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job, const calm_scheme *scheme,
                             const calm_weight *weights, const calm_qjob *qjob, calm_fold_set *out)
{
    const calm_layout *layout = calm_model_layout(model);
    size_t row = 0;
    if (qjob->out != job->out || qjob->in != job->in)
        return calm_fail(ctx, CALM_EFORMAT, "%s: [%zu, %zu], but the stored candidate has [%zu, %zu]", job->name,
                         job->out, job->in, qjob->out, qjob->in);
    for (size_t i = job->first; i < job->first + job->n; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        out->linear[linear->role] = (calm_qlinear){.quantized = true,
                                                   .scheme = *scheme,
                                                   .out = linear->out,
                                                   .in = linear->in,
                                                   .group = qjob->group,
                                                   .n_groups = qjob->n_groups,
                                                   .codes = qjob->codes + row * qjob->in,
                                                   .scales = qjob->scales + row * qjob->n_groups,
                                                   .zeros = qjob->zeros ? qjob->zeros + row * qjob->n_groups : NULL,
                                                   .mins = qjob->mins ? qjob->mins + row * qjob->n_groups : NULL,
                                                   .global = qjob->global,
                                                   .act_global = qjob->act_global,
                                                   .order = qjob->order};
        if (qjob->bias_delta)
            CALM_TRY(correct_bias(ctx, &weights[linear->role], qjob->bias_delta + row, &out->linear[linear->role]));
        row += linear->out;
    }
    return CALM_OK;
}

/* Keeps a scale that cannot be folded at the input of the job's linears. */
static void leave_scale(const calm_layout *layout, const calm_job_ref *job, const float *in_scale, calm_fold_set *out)
{
    for (size_t i = job->first; i < job->first + job->n; i++)
        out->linear[layout->linears[i].role].in_scale = in_scale;
}

/* Notes a scale that was folded into rows of a float linear, which are divided again each time the job is assembled. */
static void note_scale(const calm_layout *layout, const calm_job_ref *job, const float *in_scale, calm_fold_set *out)
{
    for (size_t i = job->first; i < job->first + job->n; i++)
        out->linear[layout->linears[i].role].fed_scale = in_scale;
}

/* ---- folding ---- */

/* Returns the dtype of the checkpoint's tensor MODULE.PART. */
static calm_status stored_dtype(calm_ctx *ctx, const calm_model *model, const char *module, const char *part,
                                calm_dtype *out)
{
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s.%s", module, part));
    *out = calm_stored_dtype(model, name);
    return CALM_OK;
}

/* Rounds changed values to that dtype; does nothing for NULL. */
static calm_status round_stored(calm_ctx *ctx, const calm_model *model, const char *module, const char *part,
                                float *values, size_t n)
{
    calm_dtype dtype;
    if (!values)
        return CALM_OK;
    CALM_TRY(stored_dtype(ctx, model, module, part, &dtype));
    for (size_t i = 0; i < n; i++) {
        values[i] = calm_dtype_round(dtype, values[i]);
        if (!isfinite(values[i]))
            return calm_fail(ctx, CALM_ENUMERIC,
                             "%s.%s: value %zu is out of range of %s after an input scale or a correction was folded "
                             "in; `forbid` the candidate that asks for it", module, part, i, calm_dtype_name(dtype));
    }
    return CALM_OK;
}

/* Divides the norm before the fold set by the scale; stored_less: what the stored weight lacks (Gemma: 1). */
static calm_status fold_norm(calm_ctx *ctx, const calm_model *model, const calm_fold_set_ref *set,
                             const float *in_scale, calm_fold_set *out)
{
    const calm_config *config = calm_model_config(model);
    const calm_norm *norm = &set->block->norm[set->sublayer][CALM_NORM_IN];
    const float stored_less = norm->kind == CALM_NORM_RMS_PLUS_ONE ? 1 : 0;
    char *prefix, *module;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->norm, config->hidden));
    if (norm->b)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->norm_bias, config->hidden));
    for (size_t i = 0; i < config->hidden; i++) {
        /* A loaded norm is the factor that the model multiplies by, with Gemma's 1 added; the stored weight is without
         * it. */
        out->norm[i] = norm->w[i] / in_scale[i] - stored_less;
        if (norm->b)
            out->norm_bias[i] = norm->b[i] / in_scale[i];
    }
    CALM_TRY(calm_model_block_name(ctx, model, set->block->index, &prefix));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &module, "%s.%s", prefix,
                       config->arch->names->norm[set->sublayer][CALM_NORM_IN]));
    CALM_TRY(round_stored(ctx, model, module, "weight", out->norm, config->hidden));
    return round_stored(ctx, model, module, "bias", out->norm_bias, config->hidden);
}

/* Half a unit in the last place of bfloat16's 8 bits, the least precision of scales in all formats. */
#define FOLD_ERROR 0x1p-8
/* Returns true if `stored`, the rounded scale, is within rounding error of `wanted`, neither flushed nor overflowed.
 * Powers of two as input scales would avoid the rounding, but smoothing makes the maxima of all channels equal, and a
 * factor of up to sqrt 2 per channel would raise the largest, which costs far more than rounding a scale. */
static bool is_stored(calm_dtype dtype, double wanted, float *stored)
{
    *stored = calm_dtype_round(dtype, (float)wanted);
    return fabsf(*stored) <= (float)CALM_SCALE_MAX && fabs((double)*stored - wanted) <= FOLD_ERROR * fabs(wanted);
}

/* Returns true if all weights of a group are zero, so that any scale is right. */
static bool is_zero_group(const calm_qlinear *linear, size_t row, size_t g)
{
    const size_t first = g * linear->group, end = calm_size_min(first + linear->group, linear->in);
    const uint8_t *codes = linear->codes + row * linear->in;
    const uint8_t zero = linear->zeros ? linear->zeros[row * linear->n_groups + g]
                                       : calm_symmetric_zero(&linear->scheme);
    size_t j = first;
    if (linear->mins || calm_level_value(&linear->scheme, zero, zero) != 0)
        return false;
    while (j < end && codes[j] == zero)
        j++;
    return j == end;
}

/* scale (code - zero) / s = (scale / s) (code - zero), so codes do not change.  They were chosen for the present scale,
 * so a scale that its dtype cannot hold after the division is an error.  Engines cast scales to the checkpoint's dtype,
 * so with a float16 checkpoint float16 must hold them too. */
static calm_status fold_quantized_row(calm_ctx *ctx, const calm_weight *weight, calm_qlinear *linear, size_t row,
                                      float s, calm_dtype checkpoint)
{
    const calm_dtype dtype = checkpoint == CALM_F16 ? CALM_F16 : linear->scheme.scale_dtype;
    if (!calm_scheme_folds(&linear->scheme))
        return calm_fail(ctx, CALM_ENUMERIC,
                         "%s: scales of %s cannot be divided by the input scale of the job that reads these rows; "
                         "`forbid` that job's candidate", weight->name, CALM_SCHEME_NAME(&linear->scheme));
    for (size_t g = 0; g < linear->n_groups; g++) {
        float *scale = &linear->scales[row * linear->n_groups + g], stored;
        const double wanted = (double)*scale / (double)s;
        float *min = linear->mins ? &linear->mins[row * linear->n_groups + g] : NULL;
        if (min)
            *min = calm_min_round(&linear->scheme, (double)*min / (double)s);
        if (is_stored(linear->scheme.scale_dtype, wanted, &stored) && is_stored(dtype, wanted, &(float){0}) &&
            (!min || isfinite(*min)))
            *scale = stored;
        else if (!is_zero_group(linear, row, g))
            return calm_fail(ctx, CALM_ENUMERIC,
                             "%s: scale of row %zu, group %zu is %g after folding %g, which is out of range of %s; "
                             "`forbid` the candidate of the job that reads these rows",
                             weight->name, row, g, wanted, (double)s, calm_dtype_name(dtype));
    }
    return CALM_OK;
}

/* Divides row r of a linear by s: its scales if it is quantized, else a copy of its weights.  Weights and biases are
 * copied at the first row, because all plans share the model's.  The bias is divided too: (w x + b) / s. */
static calm_status fold_row(calm_ctx *ctx, const calm_weight *weight, calm_qlinear *linear, size_t row, float s,
                            calm_dtype checkpoint)
{
    CALM_TRY(own_bias(ctx, weight, linear));
    if (linear->bias)
        linear->bias[row] /= s;
    if (linear->quantized)
        return fold_quantized_row(ctx, weight, linear, row, s, checkpoint);
    if (!linear->w) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, linear->w, weight->out * weight->in));
        memcpy(linear->w, weight->w, weight->out * weight->in * sizeof *linear->w);
    }
    for (size_t i = 0; i < weight->in; i++)
        linear->w[row * weight->in + i] /= s;
    return CALM_OK;
}

/* With grouped queries several query heads read one kv head.  Their channels have equal scales, because one row of v
 * cannot be divided by two numbers, so the scale of the first query head counts. */
static calm_status fold_rows(calm_ctx *ctx, const calm_model *model, const calm_fold_set_ref *set,
                             const calm_feed *feed, const float *in_scale, calm_fold_set *out)
{
    const calm_role feeder = feed->role;
    const calm_weight *weight = &set->weight[feeder];
    calm_weight loaded;
    calm_dtype dtype;
    CALM_TRY(stored_dtype(ctx, model, weight->name, "weight", &dtype));
    /* The float weight of an outline is loaded only here, so it can be changed in place. */
    if (!weight->w && !out->linear[feeder].quantized && !out->linear[feeder].w) {
        CALM_TRY(calm_model_load_linear(ctx, model, weight->name, weight->out, weight->in, false, &loaded));
        out->linear[feeder].w = (float *)(uintptr_t)loaded.w;
    }
    for (size_t k = 0; k < calm_feed_rows(feed); k++)
        CALM_TRY(fold_row(ctx, weight, &out->linear[feeder], calm_feed_row(feed, k),
                          in_scale[calm_feed_channel(feed, k)], dtype));
    return round_stored(ctx, model, weight->name, "weight", out->linear[feeder].w, weight->out * weight->in);
}

#define BLOCK_NAME 64    /* bytes that hold "model.layers.47" */

size_t calm_assembled_norm_bytes(const calm_config *config, const calm_job_ref *job)
{
    const size_t vectors = config->norm_bias ? 2 : 1;
    const bool folds = job->can_absorb && job->traits->fold == CALM_FOLD_NORM;
    return folds ? vectors * CALM_BYTES(float, config->hidden) + CALM_BYTES(char, BLOCK_NAME) : 0;
}

/* Bytes of the copied bias of the linear whose rows take a job's scale; 0 if a norm takes it. */
static size_t folded_bias_bytes(const calm_config *config, const calm_job_ref *job)
{
    calm_feed feed;
    size_t out, in;
    config = calm_config_at(config, job->block);
    if (!job->can_absorb || calm_job_fold(config, job->kind, job->expert, &feed) != CALM_FOLD_ROWS ||
        !config->bias[feed.role])
        return 0;
    calm_role_shape(config, feed.role, job->expert, &out, &in);
    return CALM_BYTES(float, out);
}

unsigned calm_assembled_extras(const calm_layout *layout, const calm_job_ref *job, unsigned extras)
{
    return calm_layout_biased(layout, job) ? extras : extras & ~(unsigned)CALM_QJOB_BIASED;
}

/* Bytes of the copied biases of a job's linears. */
static size_t corrected_bias_bytes(const calm_layout *layout, const calm_job_ref *job)
{
    size_t bytes = 0;
    for (size_t i = job->first; i < job->first + job->n; i++)
        bytes += layout->linears[i].bias ? CALM_BYTES(float, layout->linears[i].out) : 0;
    return bytes;
}

size_t calm_assemble_fold_set_bytes(const calm_model *model, size_t begin, size_t end, const calm_scheme *scheme,
                                 unsigned extras)
{
    const calm_config *config = calm_model_config(model);
    const calm_layout *layout = calm_model_layout(model);
    /* A float weight is copied only if its job stays float.  All jobs are quantized here, so folding copies only norms
     * and biases. */
    size_t bytes = 0;
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        bytes += calm_qjob_bytes(scheme, job->out, job->in, calm_assembled_extras(layout, job, extras));
        if (extras & CALM_QJOB_SCALED)
            bytes += calm_assembled_norm_bytes(config, job);
        /* A bias is copied once: with corrections, before folding. */
        if (extras & CALM_QJOB_BIASED)
            bytes += corrected_bias_bytes(layout, job);
        else if (extras & CALM_QJOB_SCALED)
            bytes += folded_bias_bytes(config, job);
    }
    return bytes;
}

size_t calm_assemble_fold_set_scratch_bytes(const calm_model *model, size_t begin, size_t end,
                                            const calm_scheme *scheme)
{
    size_t most = 0;
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &calm_model_layout(model)->jobs[j];
        most = calm_size_max(most, calm_qblob_decode_scratch_bytes(scheme, job->out, job->in));
    }
    return most;
}

/* Bytes of a block's assembled jobs, without experts. */
static size_t fold_sets_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    const calm_layout *layout = calm_model_layout(model);
    size_t bytes = 0;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        bytes += layout->jobs[j].expert < 0 ? calm_assemble_fold_set_bytes(model, j, j + 1, scheme, extras) : 0;
    return bytes;
}

size_t calm_assembled_block_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    size_t bytes = fold_sets_bytes(model, block, scheme, extras);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        bytes += calm_model_load_sublayer_bytes(model, block, s);
    return bytes;
}

size_t calm_assembled_parts_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    return calm_model_load_outline_bytes(model, block) + fold_sets_bytes(model, block, scheme, extras);
}

size_t calm_assembled_expert_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras)
{
    size_t begin, end;
    if (!calm_model_config(model)->moe.sparse[block])
        return 0;
    calm_layout_fold_set(calm_model_layout(model), block, CALM_SUBLAYER_MLP, 0, &begin, &end);
    return calm_model_load_jobs_bytes(model, begin, end)
           + calm_assemble_fold_set_bytes(model, begin, end, scheme, extras);
}

calm_status calm_assemble_fold_set(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                const calm_fold_set_ref *set, calm_fold_set *out)
{
    const calm_layout *layout = calm_model_layout(model);
    const float *in_scale[CALM_N_JOBS] = {NULL};
    size_t begin, end;
    /* All jobs are fetched before folding: the rows that take a job's scale belong to another job of the set, whose
     * scales are needed. */
    memset(out, 0, sizeof *out);
    calm_layout_fold_set(layout, set->block->index, set->sublayer, set->expert, &begin, &end);
    for (size_t job = begin; job < end; job++) {
        const calm_plan_job *planned = &plan->jobs[job];
        calm_qjob qjob;
        if (!planned->quantized)
            continue;
        CALM_TRY(plan->fetch(plan->user, ctx, planned, &qjob));
        CALM_TRY(split_job(ctx, model, &layout->jobs[job], &planned->scheme, set->weight, &qjob, out));
        if (!qjob.in_scale || layout->jobs[job].can_absorb)
            in_scale[layout->jobs[job].kind] = qjob.in_scale;
        else if (plan->free_scales)
            leave_scale(layout, &layout->jobs[job], qjob.in_scale, out);
        else
            return calm_fail(ctx, CALM_EFORMAT, "%s: the stored candidate has an input scale that nothing can take",
                             layout->jobs[job].name);
    }
    /* Each scale is folded into another tensor (qkv and gate_up: norms; o: v; down: up), so the order does not
     * matter. */
    for (size_t job = begin; job < end; job++) {
        const calm_job_kind kind = layout->jobs[job].kind;
        calm_feed feed;
        if (!in_scale[kind])
            continue;
        if (calm_job_fold(set->block->config, kind, set->expert, &feed) == CALM_FOLD_NORM) {
            CALM_TRY(fold_norm(ctx, model, set, in_scale[kind], out));
            continue;
        }
        CALM_TRY(fold_rows(ctx, model, set, &feed, in_scale[kind], out));
        if (!out->linear[feed.role].quantized)
            note_scale(layout, &layout->jobs[job], in_scale[kind], out);
    }
    /* Biases are rounded once, after all changes. */
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        CALM_TRY(round_stored(ctx, model, set->weight[role].name, "bias", out->linear[role].bias,
                              set->weight[role].out));
    /* Learned vectors are in folded form already. */
    return plan->blocks && plan->blocks[set->block->index]
               ? plan->vectors(plan->user, ctx, plan->blocks[set->block->index], &out->vectors) : CALM_OK;
}

/* ---- weights from codes ---- */

/* Multiplies the weights of a job by its input scale, and divides the rows that take the scale by it. */
static void fold_target(const calm_model *model, const calm_job_ref *job, const calm_weight *weight,
                        const float *in_scale, float *const w[CALM_N_ROLES])
{
    const calm_config *config = calm_config_at(calm_model_config(model), job->block);
    calm_feed feed;
    for (size_t i = job->first; i < job->first + job->n; i++) {
        const calm_linear_ref *linear = &calm_model_layout(model)->linears[i];
        for (size_t row = 0; row < linear->out; row++)
            for (size_t j = 0; j < linear->in; j++)
                w[linear->role][row * linear->in + j] *= in_scale[j];
    }
    if (!job->can_absorb || calm_job_fold(config, job->kind, job->expert, &feed) != CALM_FOLD_ROWS)
        return;
    const size_t in = weight[feed.role].in;
    for (size_t k = 0; k < calm_feed_rows(&feed); k++)
        for (size_t j = 0; j < in; j++)
            w[feed.role][calm_feed_row(&feed, k) * in + j] /= in_scale[calm_feed_channel(&feed, k)];
}

calm_status calm_assemble_targets(calm_ctx *ctx, const calm_model *model, const calm_plan *plan,
                                  const calm_weight weight[CALM_N_ROLES], size_t begin, size_t end,
                                  float *w[CALM_N_ROLES])
{
    const calm_layout *layout = calm_model_layout(model);
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        w[role] = NULL;
    for (size_t j = begin; j < end; j++)
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            const calm_role role = layout->linears[i].role;
            const size_t n = weight[role].out * weight[role].in;
            CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w[role], n));
            memcpy(w[role], weight[role].w, n * sizeof *w[role]);
        }
    for (size_t j = begin; j < end; j++) {
        /* Only the job's input scale is needed; its codes are freed with the arena. */
        CALM_SCOPED_RESULTS(ctx);
        calm_qjob qjob = {.in_scale = NULL};
        if (plan->jobs[j].quantized)
            CALM_TRY(plan->fetch(plan->user, ctx, &plan->jobs[j], &qjob));
        if (qjob.in_scale)
            fold_target(model, &layout->jobs[j], weight, qjob.in_scale, w);
    }
    return CALM_OK;
}

calm_weight *calm_fold_set_weights(calm_block *block, calm_sublayer sublayer, calm_fold_set_ref *set)
{
    const bool mixture = sublayer == CALM_SUBLAYER_MLP && block->moe.router;
    calm_weight *weight = mixture ? block->moe.shared : block->weight;
    *set = (calm_fold_set_ref){block, sublayer, mixture ? CALM_SHARED_EXPERT : CALM_NO_EXPERT, weight};
    return weight;
}

static calm_status assemble_sublayers(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, calm_block *block,
                                      calm_fold_set sublayer[CALM_N_SUBLAYERS])
{
    calm_fold_set_ref set;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        calm_fold_set_weights(block, s, &set);
        CALM_TRY(calm_assemble_fold_set(ctx, model, plan, &set, &sublayer[s]));
    }
    return CALM_OK;
}

calm_status calm_assemble_block(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS])
{
    CALM_TRY(calm_model_load_block(ctx, model, index, block));
    return assemble_sublayers(ctx, model, plan, block, sublayer);
}

calm_status calm_assemble_parts(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                calm_block *block, calm_fold_set sublayer[CALM_N_SUBLAYERS])
{
    CALM_TRY(calm_model_load_outline(ctx, model, index, block));
    return assemble_sublayers(ctx, model, plan, block, sublayer);
}

calm_status calm_assemble_expert(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, const calm_block *block,
                                 size_t expert, calm_weight weight[CALM_N_ROLES], calm_fold_set *out)
{
    const calm_fold_set_ref set = {block, CALM_SUBLAYER_MLP, (long)expert, weight};
    CALM_TRY(block->moe.load(block->moe.user, ctx, block->index, expert, weight));
    return calm_assemble_fold_set(ctx, model, plan, &set, out);
}
