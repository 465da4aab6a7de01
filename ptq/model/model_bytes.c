/* Computes the bytes of a model's parts in float32.
 *
 * Counted by allocation, as model.c makes them, since each is rounded up.  Quantized weights take the same memory,
 * since they are converted when they are loaded. */
#include "ptq/model/model_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/layers/distance.h"

/* One allocation for each linear with a bias. */
static size_t biases_bytes(const calm_model *model, const calm_job_ref *job)
{
    size_t bytes = 0;
    for (size_t i = job->first; i < job->first + job->n; i++)
        bytes += model->layout.linears[i].bias ? CALM_BYTES(float, model->layout.linears[i].out) : 0;
    return bytes;
}

/* The weights of a job are one allocation. */
size_t calm_model_load_jobs_bytes(const calm_model *model, size_t begin, size_t end)
{
    size_t bytes = 0;
    for (size_t job = begin; job < end; job++) {
        const calm_job_ref *ref = &model->layout.jobs[job];
        bytes += CALM_BYTES(float, ref->out * ref->in) + biases_bytes(model, ref);
    }
    return bytes;
}

size_t calm_model_load_expert_bytes(const calm_model *model, size_t index)
{
    size_t begin, end;
    if (!model->config.moe.sparse[index])
        return 0;
    /* All experts of a block have the same shapes, so the first one is measured. */
    calm_layout_fold_set(&model->layout, index, CALM_SUBLAYER_MLP, 0, &begin, &end);
    return calm_model_load_jobs_bytes(model, begin, end);
}

/* Returns the bytes of a norm or another plain tensor of a sublayer. */
static size_t plain_bytes(const calm_config *config, const calm_kind *kind, const calm_kind_plain *plain)
{
    size_t shape[CALM_PLAIN_DIMS], n = 1;
    int n_dims;
    /* n_dims is 0 where the block does not have the tensor. */
    calm_plain_shape(config, kind, plain->plain, shape, &n_dims);
    for (int i = 0; i < n_dims; i++)
        n *= shape[i];
    /* Only norms of the family's kind have a bias. */
    const size_t vectors = plain->form == CALM_PLAIN_FAMILY_NORM && config->norm_bias ? 2 : 1;
    return n_dims ? vectors * CALM_BYTES(float, n) : 0;
}

/* Returns the bytes of a sublayer's norms, and of a mixture's router and shared gate. */
static size_t small_parts_bytes(const calm_model *model, size_t index, calm_sublayer sublayer)
{
    const calm_config *config = calm_config_at(&model->config, index);
    const calm_kind *kind = calm_kind_at(&model->config, index, sublayer);
    const calm_names *names = config->arch->names;
    const size_t vectors = config->norm_bias ? 2 : 1, row = CALM_BYTES(float, config->hidden);
    size_t bytes = sublayer == calm_block_last_slot(config) ? calm_model_tail_bytes(config) : 0;
    if (!kind)
        return 0;
    bytes += calm_model_streams_bytes(config, index, sublayer);
    for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
        bytes += calm_has_norm(config->arch, index, sublayer, place) ? vectors * row : 0;
    if (sublayer == CALM_SUBLAYER_ATTENTION && names->distance)
        bytes += calm_distance_bytes(config);
    for (size_t i = 0; i < kind->n_plains; i++)
        bytes += plain_bytes(config, kind, &kind->plains[i]);
    if (sublayer == CALM_SUBLAYER_MLP && config->moe.sparse[index])
        bytes += CALM_BYTES(float, config->moe.n_experts * config->hidden) +
                 (config->moe.shared_inner && names->moe.shared_gate ? row : 0) +
                 (config->moe.choice_bias ? CALM_BYTES(float, config->moe.n_experts) : 0);
    return bytes;
}

size_t calm_model_load_sublayer_bytes(const calm_model *model, size_t index, calm_sublayer sublayer)
{
    size_t begin, end, bytes = small_parts_bytes(model, index, sublayer);
    calm_layout_sublayer(&model->layout, index, sublayer, &begin, &end);
    for (size_t job = begin; job < end; job++)
        /* The forward pass loads numbered experts, so they are not part of the sublayer's memory. */
        bytes += model->layout.jobs[job].expert < 0 ? calm_model_load_jobs_bytes(model, job, job + 1) : 0;
    return bytes;
}

size_t calm_model_load_outline_bytes(const calm_model *model, size_t index)
{
    size_t bytes = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        bytes += small_parts_bytes(model, index, s);
    /* An outline has the biases of linears, but not their weights. */
    for (size_t job = model->layout.block_begin[index]; job < model->layout.block_begin[index + 1]; job++)
        bytes += model->layout.jobs[job].expert < 0 ? biases_bytes(model, &model->layout.jobs[job]) : 0;
    return bytes;
}
