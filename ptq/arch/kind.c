/* The registry of kinds, from kinds.def, and queries of its tables. */
#include "ptq/arch/kind.h"

#include "ptq/base/text.h"

#define CALM_KIND(name) extern const calm_kind calm_kind_##name;
#include "ptq/arch/kinds.def"

const calm_kind *const *calm_kinds(size_t *n)
{
    static const calm_kind *const all[] = {
#define CALM_KIND(name) &calm_kind_##name,
#include "ptq/arch/kinds.def"
    };
    *n = sizeof all / sizeof *all;
    return all;
}

const calm_fusion *calm_fusion_at(size_t i)
{
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    /* All fusions of a kind before those of the next. */
    for (size_t k = 0; k < n; i -= all[k++]->n_fusions)
        if (i < all[k]->n_fusions)
            return &all[k]->fusions[i];
    return NULL;
}

/* Returns the first kind in the list for a slot, a mixture or not: the usual sublayer. */
static const calm_kind *usual_kind(calm_sublayer slot, bool routed)
{
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    for (size_t i = 0; i < n; i++)
        if (all[i]->slot == slot && all[i]->routed == routed)
            return all[i];
    return NULL;
}

const calm_kind *calm_kind_dense(const calm_config *config, calm_sublayer slot)
{
    return config->varied ? config->kind[slot] : usual_kind(slot, false);
}

const calm_kind *calm_kind_of(const calm_config *config, calm_sublayer slot, bool sparse)
{
    const calm_kind *dense = calm_kind_dense(config, slot);
    return dense && slot == CALM_SUBLAYER_MLP && sparse ? usual_kind(slot, true) : dense;
}

const calm_kind *calm_kind_at(const calm_config *config, size_t block, calm_sublayer slot)
{
    return calm_kind_of(calm_config_at(config, block), slot, config->moe.sparse[block]);
}

/* Finds a job in a kind's list; NULL: the kind does not have it. */
static const calm_kind_job *find_job(const calm_kind *kind, calm_job_kind job)
{
    for (size_t i = 0; kind && i < kind->n_jobs; i++)
        if (kind->jobs[i].job == job)
            return &kind->jobs[i];
    return NULL;
}

/* Returns the kind of a job: that of the block's slot if it has the job, else the first in the list that has it. */
static const calm_kind *kind_of_job(const calm_config *config, calm_job_kind job)
{
    const calm_kind *kind = calm_kind_dense(config, calm_job_sublayer(job));
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    for (size_t i = 0; !find_job(kind, job) && i < n; i++)
        kind = all[i];
    return kind;
}

calm_sublayer calm_block_last_slot(const calm_config *config)
{
    /* A block has at least one sublayer. */
    calm_sublayer last = CALM_N_SUBLAYERS - 1;
    while (last > 0 && !calm_kind_dense(config, last))
        last--;
    return last;
}

calm_status calm_config_new_shapes(calm_ctx *ctx, calm_config *config)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, config->shapes, config->n_blocks));
    for (size_t i = 0; i < config->n_blocks; i++) {
        calm_block_shape *shape = &config->shapes[i];
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
            shape->kind[s] = calm_kind_dense(config, s);
        /* A family changes these widths in blocks that differ. */
        shape->n_heads = config->n_heads;
        shape->n_kv = config->n_kv;
        shape->head_dim = config->head_dim;
        shape->inner = config->inner;
        shape->k_is_v = config->k_is_v;
        shape->kv = config->kv;
        shape->kv_at = config->kv_at;
    }
    return CALM_OK;
}

bool calm_kinds_have_back(const calm_config *config)
{
    bool all = !config->streams.n && !config->carried && !(config->qkv_limit > 0);
    for (size_t i = 0; all && i < config->n_blocks; i++)
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
            const calm_kind *kind = calm_kind_at(config, i, s);
            all &= !kind || kind->back;
        }
    return all;
}

calm_status calm_kinds_need_back(calm_ctx *ctx, const calm_config *config, const char *option)
{
    if (config->streams.n)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s needs gradients, and calm does not compute those of %s's parallel "
                         "residual streams", option, config->arch->name);
    /* Gradients would have to pass from block to block in addition to the hidden states. */
    if (config->carried)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s needs gradients, and calm does not compute those of keys and "
                         "values that blocks share (\"num_kv_shared_layers\")", option);
    if (config->qkv_limit > 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s needs gradients, and calm does not compute those of clamped q, k "
                         "and v (\"clip_qkv\")", option);
    for (size_t i = 0; i < config->n_blocks; i++)
        for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
            const calm_kind *kind = calm_kind_at(config, i, s);
            if (kind && !kind->back)
                return calm_fail(ctx, CALM_EUNSUPPORTED, "%s needs gradients, and calm does not compute those of "
                                 "sublayers of kind %s, as in block %zu", option, kind->name, i);
        }
    return CALM_OK;
}

/* ---- jobs ---- */

const calm_kind_job *calm_job_traits(const calm_config *config, calm_job_kind job)
{
    /* Two kinds may have the same job with different properties. */
    return find_job(kind_of_job(config, job), job);
}

bool calm_job_is_last(const calm_config *config, calm_job_kind job, calm_role *role)
{
    const calm_kind *kind = kind_of_job(config, job);
    calm_role own = 0;
    /* The last job has one linear (kind.h), the first role that exists. */
    while (calm_role_job(own) != job || !calm_has_role(config, own))
        if (++own == CALM_N_ROLES)
            return false;
    if (role)
        *role = own;
    return kind->jobs[kind->n_jobs - 1].job == job;
}

bool calm_slot_has_job(const calm_config *config, calm_sublayer slot, calm_job_kind job)
{
    return find_job(calm_kind_dense(config, slot), job) != NULL;
}

bool calm_job_exists(const calm_config *config, calm_job_kind job)
{
    bool any = false;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        any |= calm_role_job(role) == job && calm_has_role(config, role);
    return any;
}

calm_job_kind calm_slot_first_job(const calm_config *config, calm_sublayer slot)
{
    return calm_kind_dense(config, slot)->jobs[0].job;
}

calm_job_kind calm_job_scored_from(const calm_config *config, calm_job_kind job)
{
    /* The first job's input is the sublayer's (kind.h). */
    const calm_kind *kind = kind_of_job(config, job);
    return kind->jobs[kind->n_jobs - 1].job == job ? job : kind->jobs[0].job;
}

calm_job_kind calm_slot_last_job(const calm_config *config, calm_sublayer slot)
{
    /* The product of the last job is added to the residual. */
    const calm_kind *kind = calm_kind_dense(config, slot);
    return kind->jobs[kind->n_jobs - 1].job;
}

unsigned calm_scored_inputs(const calm_config *config, calm_sublayer sublayer, unsigned jobs, bool unit)
{
    /* The score of the unit runs the sublayer from the input of its first job, whichever jobs are computed. */
    unsigned inputs = unit ? 1u << calm_slot_first_job(config, sublayer) : 0;
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
        inputs |= jobs & 1u << kind ? 1u << calm_job_scored_from(config, kind) : 0;
    return inputs;
}

/* Returns the descriptor of a job in the first kind that has it. */
static const calm_kind_job *find_traits(calm_job_kind job)
{
    /* Only names are known here, no block. */
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    const calm_kind_job *found = NULL;
    for (size_t i = 0; !found && i < n; i++)
        found = find_job(all[i], job);
    return found;
}

const char *calm_job_fused(const calm_names *names, calm_job_kind job)
{
    const calm_kind_job *traits = find_traits(job);
    const char *last = NULL;
    size_t n = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (calm_role_job(role) == job && names->role[role]) {
            last = names->role[role];
            n++;
        }
    /* Engines expect their own names of the parts: a family with other names has other fused modules too. */
    return n > 1 && (!traits->fused_last || calm_text_listed(traits->fused_last, '|', last)) ? traits->fused : NULL;
}

bool calm_job_biased(const calm_config *config, calm_job_kind job)
{
    /* The config has no bias for roles that the family does not have. */
    bool any = false;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        any |= calm_role_job(role) == job && config->bias[role];
    return any;
}

calm_fold calm_job_fold(const calm_config *config, calm_job_kind job, long expert, calm_feed *feed)
{
    /* Only the kind decides here; the layout checks that the norm exists and has no other reader. */
    const calm_kind *kind = kind_of_job(config, job);
    const calm_fold fold = find_job(kind, job)->fold;
    if (fold != CALM_FOLD_ROWS)
        return fold;
    return kind->feed(config, job, expert, feed) ? fold : CALM_FOLD_NONE;
}

const char *calm_kind_input_shared(const calm_config *config, size_t block, calm_sublayer slot)
{
    if (!calm_has_norm(config->arch, block, slot, CALM_NORM_IN))
        return "it has a sublayer without a norm before it, whose input is the residual stream itself";
    if (calm_kind_at(config, block, slot)->routed)
        return "a router and experts read the same rows";
    /* The MLP, or the low-rank branch next to attention (streams.h). */
    return config->arch->parallel || (config->streams.n && slot == CALM_SUBLAYER_ATTENTION)
               ? "its sublayers read the same rows" : NULL;
}

size_t calm_feed_rows(const calm_feed *feed)
{
    /* Fewer than the input's channels where readers share heads. */
    return feed->heads * feed->width;
}

size_t calm_feed_row(const calm_feed *feed, size_t k)
{
    /* Rows between two heads may feed something else. */
    return feed->first + k / feed->width * feed->stride + k % feed->width;
}

size_t calm_feed_channel(const calm_feed *feed, size_t k)
{
    /* The channel of the first reader; readers are adjacent. */
    return k / feed->width * feed->readers * feed->width + k % feed->width;
}

size_t calm_feed_number(const calm_feed *feed, size_t channel)
{
    /* The head that serves the reader, at the same position in the head. */
    return channel / feed->width / feed->readers * feed->width + channel % feed->width;
}

/* ---- roles ---- */

bool calm_has_role(const calm_config *config, calm_role role)
{
    /* A family names either a fused matrix or its parts. */
    const calm_kind *kind = calm_kind_dense(config, calm_job_sublayer(calm_role_job(role)));
    if (!config->arch->names->role[role])
        return false;
    /* In a model whose blocks differ, the block's kind decides too. */
    if (config->varied && !find_job(kind, calm_role_job(role)))
        return false;
    return !kind || !kind->has || kind->has(config, role);
}

bool calm_expert_has_role(const calm_config *config, calm_role role, long expert)
{
    /* The shared expert is like the MLP of a dense block. */
    const calm_names *names = config->arch->names;
    return expert >= 0 && names->moe.words ? names->moe.words[role] != NULL : calm_has_role(config, role);
}

size_t calm_expert_width(const calm_config *config, long expert)
{
    /* The shared expert has the width of the model. */
    return expert >= 0 && config->moe.latent ? config->moe.latent : config->hidden;
}

void calm_role_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    /* A role may have another width in another kind. */
    kind_of_job(config, calm_role_job(role))->shape(config, role, expert, out, in);
}

/* ---- hook points ---- */

/* Finds a role of the family whose linear reads the hook point's activations. */
static bool find_reader(const calm_config *config, calm_hook hook, calm_role *role)
{
    for (*role = 0; *role < CALM_N_ROLES; ++*role)
        if (calm_job_input(calm_role_job(*role)) == hook && calm_has_role(config, *role))
            return true;
    return false;
}

/* Is the hook point one of the kind's own? */
static bool lists_hook(const calm_kind *kind, calm_hook hook)
{
    for (size_t i = 0; i < kind->n_hooks; i++)
        if (kind->hooks[i] == hook)
            return true;
    return false;
}

size_t calm_hook_width(const calm_config *config, calm_hook hook, long expert)
{
    size_t n, out, in;
    calm_role role;
    const calm_kind *const *all = calm_kinds(&n);
    /* All linears of a job have the same input width. */
    if (find_reader(config, hook, &role)) {
        calm_role_shape(config, role, expert, &out, &in);
        return in;
    }
    for (size_t i = 0; i < n; i++)
        if (lists_hook(all[i], hook))
            return all[i]->hook_width(config, hook, expert);
    if (hook == CALM_HOOK_LAYER_INPUT)
        return config->per_layer;
    /* Outputs of sublayers, experts and blocks. */
    return calm_expert_width(config, expert);
}

bool calm_hook_in_slot(const calm_config *config, calm_sublayer slot, long expert, calm_hook hook)
{
    const calm_kind *kind = calm_kind_dense(config, slot);
    if (!kind)
        return false;
    /* The tail follows the last sublayer of a block, not experts; mixtures observe only their own hook points. */
    if (hook == CALM_HOOK_LAYER_INPUT && (!config->per_layer || config->moe.n_experts))
        return false;
    if (hook == CALM_HOOK_BLOCK_OUT || hook == CALM_HOOK_LAYER_INPUT)
        return slot == calm_block_last_slot(config) && expert == CALM_NO_EXPERT;
    if (hook == calm_sublayer_output(slot))
        return true;
    if (lists_hook(kind, hook))
        return kind->hook_width(config, hook, expert) > 0;
    for (size_t i = 0; i < kind->n_jobs; i++)
        if (calm_job_input(kind->jobs[i].job) == hook && calm_job_exists(config, kind->jobs[i].job))
            return true;
    return false;
}

/* ---- plain tensors ---- */

bool calm_plain_shape(const calm_config *config, const calm_kind *kind, calm_plain plain,
                      size_t shape[CALM_PLAIN_DIMS], int *n_dims)
{
    *n_dims = 0;
    /* A tensor without a name does not exist in this family. */
    if (config->arch->names->plain[plain])
        kind->plain_shape(config, plain, shape, n_dims);
    return *n_dims > 0;
}
