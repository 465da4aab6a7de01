/* The layer table. */
#include "ptq/model/layout.h"

#include <string.h>

#include "ptq/model/arch.h"

bool calm_has_role(const calm_config *config, calm_role role)
{
    return config->arch->names->role[role] != NULL;
}

bool calm_layout_biased(const calm_layout *layout, const calm_job_ref *job)
{
    bool any = false;
    for (size_t i = job->first; i < job->first + job->n; i++)
        any |= layout->linears[i].bias;
    return any;
}

void calm_role_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in)
{
    const size_t q_width = config->n_heads * config->head_dim, kv_width = config->n_kv * config->head_dim;
    const size_t inner = expert == CALM_NO_EXPERT       ? config->inner
                         : expert == CALM_SHARED_EXPERT ? config->moe.shared_inner
                                                        : config->moe.inner;
    /* Rows of each role; columns are the hidden size but for o and down, which lead back to it. */
    const size_t outputs[CALM_N_ROLES] = {[CALM_ROLE_Q] = q_width, [CALM_ROLE_K] = kv_width, [CALM_ROLE_V] = kv_width,
                                          [CALM_ROLE_FUSED_QKV] = q_width + 2 * kv_width,
                                          [CALM_ROLE_O] = config->hidden, [CALM_ROLE_GATE] = inner,
                                          [CALM_ROLE_UP] = inner, [CALM_ROLE_FUSED_GATE_UP] = 2 * inner,
                                          [CALM_ROLE_DOWN] = config->hidden};
    *out = outputs[role];
    *in = role == CALM_ROLE_O ? q_width : role == CALM_ROLE_DOWN ? inner : config->hidden;
}

calm_status calm_role_module(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, calm_role role,
                             long expert, calm_string_out out)
{
    const calm_names *names = config->arch->names;
    /* Of an expert only the last word of a dense module's name is left: "up_proj" of "mlp.up_proj". */
    const char *module = names->role[role], *dot = strrchr(module, '.');
    const char *word = dot ? dot + 1 : module;
    if (expert == CALM_NO_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s", prefix, names->blocks, block, module);
    if (expert == CALM_SHARED_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s.%s", prefix, names->blocks, block, names->moe.shared, word);
    return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s.%ld.%s", prefix, names->blocks, block, names->moe.experts, expert,
                     word);
}

/* Where the building is: `out` holds room for everything. */
typedef struct builder {
    const calm_config *config;
    const char *prefix;
    bool split;
    calm_layout *out;
} builder;

/* "experts.3.down" within the block, and "model.layers.0.experts.3.down". */
static calm_status name_job(calm_ctx *ctx, const builder *b, calm_job_ref *job)
{
    const char *kind = !job->halved                     ? calm_job_name(job->kind)
                       : job->place.role == CALM_PLACE_V ? "v" : "qk";
    if (job->expert == CALM_NO_EXPERT)
        CALM_TRY(calm_strf(ctx, ctx->out, &job->role, "%s", kind));
    else if (job->expert == CALM_SHARED_EXPERT)
        CALM_TRY(calm_strf(ctx, ctx->out, &job->role, "shared_expert.%s", kind));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &job->role, "experts.%ld.%s", job->expert, kind));
    return calm_strf(ctx, ctx->out, &job->name, "%s%s.%zu.%s", b->prefix, b->config->arch->names->blocks, job->block,
                     job->role);
}

/* qkv and gate_up need a norm that nothing else reads: not the residual, not a router, not another expert.  o is fed by
 * v, down by what its gate multiplies; without a gate the activation function stands between. */
static bool can_absorb(const calm_config *config, const calm_job_ref *job)
{
    const calm_names *names = config->arch->names;
    /* Where the MLP reads the same rows neither has a norm for itself. */
    if (job->kind == CALM_JOB_QKV)
        return !job->halved && !config->arch->parallel &&
               calm_has_norm(config->arch, job->block, CALM_SUBLAYER_ATTENTION, CALM_NORM_IN);
    if (job->kind == CALM_JOB_GATE_UP)
        return job->expert == CALM_NO_EXPERT && names->norm[CALM_SUBLAYER_MLP][CALM_NORM_IN] != NULL;
    return job->kind == CALM_JOB_O || names->role[CALM_ROLE_GATE] || names->role[CALM_ROLE_FUSED_GATE_UP];
}

/* What a job is to mixes; v counts where it is its own job. */
static calm_place_role place_role(calm_job_kind kind, bool v)
{
    return v ? CALM_PLACE_V : kind == CALM_JOB_O ? CALM_PLACE_O : kind == CALM_JOB_DOWN ? CALM_PLACE_DOWN
                                                                                        : CALM_PLACE_OTHER;
}

/* Of a job that is halved, v or the rest; else everything. */
typedef enum half { WHOLE, QK, V } half;

/* The next row of the table, and a row for each of its linears that the family has. */
static calm_status add_half(calm_ctx *ctx, const builder *b, size_t block, calm_job_kind kind, long expert, half which)
{
    const calm_config *config = b->config;
    calm_layout *out = b->out;
    calm_job_ref *job = &out->jobs[out->n_jobs++];
    *job = (calm_job_ref){.block = block, .kind = kind, .expert = expert, .first = out->n_linears,
                          .halved = which != WHOLE,
                          .place = {place_role(kind, which == V), block, config->n_blocks,
                                    config->n_heads / config->n_kv, expert >= 0}};
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_linear_ref *linear = &out->linears[out->n_linears];
        /* Roles are listed in the order in which a job stacks them, so linears are numbered in that order. */
        if (calm_role_job(role) != kind || !calm_has_role(b->config, role) ||
            (which != WHOLE && (role == CALM_ROLE_V) != (which == V)))
            continue;
        *linear = (calm_linear_ref){.role = role, .bias = b->config->bias[role] && expert == CALM_NO_EXPERT};
        CALM_TRY(calm_role_module(ctx, b->config, b->prefix, block, role, expert, &linear->module));
        calm_role_shape(b->config, role, expert, &linear->out, &linear->in);
        job->out += linear->out;
        job->in = linear->in;
        out->n_linears++;
        job->n++;
    }
    job->can_absorb = can_absorb(b->config, job);
    return name_job(ctx, b, job);
}

static calm_status add_job(calm_ctx *ctx, const builder *b, size_t block, calm_job_kind kind, long expert)
{
    /* Only v can differ, so that two jobs are enough; a fused matrix of all three has one type. */
    const bool halves = b->split && kind == CALM_JOB_QKV && calm_has_role(b->config, CALM_ROLE_V);
    if (!halves)
        return add_half(ctx, b, block, kind, expert, WHOLE);
    /* Side by side and in the order of their rows, so that linears keep the numbers that they have in one job. */
    CALM_TRY(add_half(ctx, b, block, kind, expert, QK));
    return add_half(ctx, b, block, kind, expert, V);
}

/* Both jobs of one MLP; they fold into each other and so stand side by side. */
static calm_status add_mlp(calm_ctx *ctx, const builder *b, size_t block, long expert)
{
    CALM_TRY(add_job(ctx, b, block, CALM_JOB_GATE_UP, expert));
    return add_job(ctx, b, block, CALM_JOB_DOWN, expert);
}

/* All jobs of a block, in the order in which calibration meets their inputs. */
static calm_status add_block(calm_ctx *ctx, const builder *b, size_t block)
{
    const calm_moe_config *moe = &b->config->moe;
    /* Attention first, then the shared expert, then the others: calm_layout_sublayer splits at the first MLP job. */
    b->out->block_begin[block] = b->out->n_jobs;
    CALM_TRY(add_job(ctx, b, block, CALM_JOB_QKV, CALM_NO_EXPERT));
    CALM_TRY(add_job(ctx, b, block, CALM_JOB_O, CALM_NO_EXPERT));
    if (!moe->sparse[block])
        return add_mlp(ctx, b, block, CALM_NO_EXPERT);
    if (moe->shared_inner)
        CALM_TRY(add_mlp(ctx, b, block, CALM_SHARED_EXPERT));
    for (size_t e = 0; e < moe->n_experts; e++)
        CALM_TRY(add_mlp(ctx, b, block, (long)e));
    return CALM_OK;
}

calm_status calm_layout_build(calm_ctx *ctx, const calm_config *config, const char *prefix, bool split,
                              calm_layout *out)
{
    const builder b = {config, prefix, split, out};
    /* Counted first: the arrays are as large as a mixture of many experts needs, and do not grow. */
    size_t n_jobs = 0;
    *out = (calm_layout){0};
    for (size_t i = 0; i < config->n_blocks; i++)
        /* Split, an attention has one more; experts are never split. */
        n_jobs += 2 + split + 2 * (config->moe.sparse[i] ? config->moe.n_experts + (config->moe.shared_inner > 0) : 1);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->linears, 3 * n_jobs));    /* a job has at most three */
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->block_begin, config->n_blocks + 1));
    CALM_TRY(calm_head_module(ctx, config->arch->names, prefix, &out->head));
    for (size_t i = 0; i < config->n_blocks; i++)
        CALM_TRY(add_block(ctx, &b, i));
    out->block_begin[config->n_blocks] = out->n_jobs;
    return CALM_OK;
}

void calm_layout_sublayer(const calm_layout *layout, size_t block, calm_sublayer sublayer, size_t *begin, size_t *end)
{
    size_t split = layout->block_begin[block];
    while (split < layout->block_begin[block + 1] &&
           calm_job_sublayer(layout->jobs[split].kind) == CALM_SUBLAYER_ATTENTION)
        split++;
    *begin = sublayer == CALM_SUBLAYER_ATTENTION ? layout->block_begin[block] : split;
    *end = sublayer == CALM_SUBLAYER_ATTENTION ? split : layout->block_begin[block + 1];
}

void calm_layout_fold_set(const calm_layout *layout, size_t block, calm_sublayer sublayer, long expert, size_t *begin,
                       size_t *end)
{
    size_t last;
    calm_layout_sublayer(layout, block, sublayer, begin, &last);
    while (*begin < last && layout->jobs[*begin].expert != expert)
        ++*begin;
    for (*end = *begin; *end < last && layout->jobs[*end].expert == expert;)
        ++*end;
}

/* ---- units ---- */

const char *calm_unit_name(calm_unit unit)
{
    static const char *const names[CALM_N_UNITS] = {"job", "sublayer", "block"};
    return names[unit];
}

void calm_layout_unit(const calm_layout *layout, calm_unit unit, size_t job, size_t *begin, size_t *end)
{
    const calm_job_ref *ref = &layout->jobs[job];
    *begin = job;
    *end = job + 1;
    if (unit == CALM_UNIT_SUBLAYER)
        calm_layout_fold_set(layout, ref->block, calm_job_sublayer(ref->kind), ref->expert, begin, end);
    if (unit == CALM_UNIT_BLOCK) {
        *begin = layout->block_begin[ref->block];
        *end = layout->block_begin[ref->block + 1];
    }
}

calm_status calm_layout_unit_name(calm_ctx *ctx, const calm_layout *layout, calm_unit unit, size_t job, char **out)
{
    const calm_job_ref *ref = &layout->jobs[job];
    /* A job's name ends in its role, so what is before it is the block's. */
    const int block = (int)(strlen(ref->name) - strlen(ref->role) - 1);    /* "model.layers.0" */
    if (unit == CALM_UNIT_BLOCK)
        return calm_strf(ctx, ctx->out, out, "%.*s", block, ref->name);
    if (unit == CALM_UNIT_JOB)
        return calm_strf(ctx, ctx->out, out, "%s", ref->name);
    if (ref->expert == CALM_NO_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%.*s.%s", block, ref->name,
                         calm_sublayer_name(calm_job_sublayer(ref->kind)));
    return calm_strf(ctx, ctx->out, out, "%.*s", (int)(strrchr(ref->name, '.') - ref->name), ref->name);
}
