/* Builds the layer table. */
#include "ptq/arch/layout.h"

#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"

bool calm_layout_biased(const calm_layout *layout, const calm_job_ref *job)
{
    bool any = false;
    for (size_t i = job->first; i < job->first + job->n; i++)
        any |= layout->linears[i].bias;
    return any;
}

calm_status calm_role_module(calm_ctx *ctx, const calm_config *config, const char *prefix, size_t block, calm_role role,
                             long expert, calm_string_out out)
{
    const calm_names *names = config->arch->names;
    const char *module = names->role[role];
    if (expert >= 0)
        return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s.%ld.%s", prefix, names->blocks, block, names->moe.experts,
                         expert, calm_expert_word(names, role));
    if (expert == CALM_NO_EXPERT)
        return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s", prefix, names->blocks, block, module);
    /* The last word of the dense module's name: "up_proj" of "mlp.up_proj". */
    const char *dot = strrchr(module, '.');
    return calm_strf(ctx, ctx->out, out, "%s%s.%zu.%s.%s", prefix, names->blocks, block, names->moe.shared,
                     dot ? dot + 1 : module);
}

/* State of the construction; `out` has space for everything. */
typedef struct builder {
    const calm_config *config;
    const char *prefix;
    bool split;
    calm_layout *out;
} builder;

/* Makes the names "experts.3.down" (in the block) and "model.layers.0.experts.3.down". */
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

/* Can the job's input scale be folded?  Into a norm only if nothing else reads its output. */
static bool can_absorb(const calm_config *config, const calm_job_ref *job)
{
    calm_feed feed;
    switch (calm_job_fold(config, job->kind, job->expert, &feed)) {
    case CALM_FOLD_ROWS:
        return true;
    case CALM_FOLD_NORM:
        return !job->halved && !calm_kind_input_shared(config, job->block, calm_job_sublayer(job->kind));
    default:
        return false;
    }
}

/* Of a split job v or the other linears; else everything. */
typedef enum half { WHOLE, REST, APART } half;

/* Appends a row of the table, and one for each of its linears that the family has. */
static calm_status add_half(calm_ctx *ctx, const builder *b, size_t block, calm_job_kind kind, long expert, half which)
{
    const calm_config *config = calm_config_at(b->config, block);
    const calm_kind_job *traits = calm_job_traits(config, kind);
    calm_layout *out = b->out;
    calm_job_ref *job = &out->jobs[out->n_jobs++];
    *job = (calm_job_ref){.block = block, .kind = kind, .expert = expert, .first = out->n_linears,
                          .halved = which != WHOLE,
                          .traits = traits,
                          .place = {which == APART ? CALM_PLACE_V : traits->place, block, config->n_blocks,
                                    config->n_heads / config->n_kv, expert >= 0}};
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_linear_ref *linear = &out->linears[out->n_linears];
        /* Roles are listed in the order in which a job stacks them, so linears are numbered in that order. */
        if (calm_role_job(role) != kind || !calm_expert_has_role(config, role, expert) ||
            (which != WHOLE && (role == traits->apart) != (which == APART)))
            continue;
        *linear = (calm_linear_ref){
            .role = role, .bias = expert == CALM_NO_EXPERT        ? config->bias[role]
                                  : expert == CALM_SHARED_EXPERT ? config->moe.shared_bias
                                                                 : config->moe.bias};
        CALM_TRY(calm_role_module(ctx, b->config, b->prefix, block, role, expert, &linear->module));
        calm_role_shape(config, role, expert, &linear->out, &linear->in);
        job->out += linear->out;
        job->in = linear->in;
        out->n_linears++;
        job->n++;
    }
    job->can_absorb = can_absorb(config, job);
    return name_job(ctx, b, job);
}

static calm_status add_job(calm_ctx *ctx, const builder *b, size_t block, calm_job_kind kind, long expert)
{
    const calm_config *config = calm_config_at(b->config, block);
    const calm_kind_job *traits = calm_job_traits(config, kind);
    /* A job without linears in this block is not listed. */
    if (!calm_job_exists(config, kind))
        return CALM_OK;
    /* Only v can differ, so two jobs are enough; a fused matrix of all three has one type. */
    const bool halves = b->split && traits->splits && calm_has_role(config, traits->apart);
    if (!halves)
        return add_half(ctx, b, block, kind, expert, WHOLE);
    /* Next to each other and in the order of their rows, so that linears keep the numbers of an unsplit job. */
    CALM_TRY(add_half(ctx, b, block, kind, expert, REST));
    return add_half(ctx, b, block, kind, expert, APART);
}

/* Appends all jobs of a sublayer or of one expert, contiguously, since they fold into each other. */
static calm_status add_jobs(calm_ctx *ctx, const builder *b, size_t block, const calm_kind *kind, long expert)
{
    for (size_t i = 0; i < kind->n_jobs; i++)
        CALM_TRY(add_job(ctx, b, block, kind->jobs[i].job, expert));
    return CALM_OK;
}

/* Appends all jobs of a block, in the order in which calibration observes their inputs. */
static calm_status add_block(calm_ctx *ctx, const builder *b, size_t block)
{
    const calm_moe_config *moe = &b->config->moe;
    /* The mixer first, then the shared expert, then the others: calm_layout_sublayer() splits at the first MLP job. */
    b->out->block_begin[block] = b->out->n_jobs;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const calm_kind *kind = calm_kind_at(b->config, block, s);
        /* A slot may be empty. */
        if (kind && !kind->routed)
            CALM_TRY(add_jobs(ctx, b, block, kind, CALM_NO_EXPERT));
        if (!kind || !kind->routed)
            continue;
        if (moe->shared_inner)
            CALM_TRY(add_jobs(ctx, b, block, kind, CALM_SHARED_EXPERT));
        for (size_t e = 0; e < moe->n_experts; e++)
            CALM_TRY(add_jobs(ctx, b, block, kind, (long)e));
    }
    return CALM_OK;
}

/* Returns an upper bound of the jobs of a block. */
static size_t count_jobs(const calm_config *config, size_t block, bool split)
{
    const calm_moe_config *moe = &config->moe;
    size_t n = 0;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        const calm_kind *kind = calm_kind_at(config, block, s);
        /* A split mixer has one more job; experts are never split. */
        n += !kind            ? 0
             : !kind->routed  ? kind->n_jobs + (split && s == CALM_SUBLAYER_ATTENTION)
                              : kind->n_jobs * (moe->n_experts + (moe->shared_inner > 0));
    }
    return n;
}

static int compare_linears(const void *a, const void *b)
{
    return strcmp(((const calm_named_linear *)a)->linear->module, ((const calm_named_linear *)b)->linear->module);
}

/* Sorts all linears by their modules' names, for calm_layout_find(). */
static calm_status sort_linears(calm_ctx *ctx, calm_layout *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->by_name, out->n_linears));
    for (size_t j = 0; j < out->n_jobs; j++)
        for (size_t i = out->jobs[j].first; i < out->jobs[j].first + out->jobs[j].n; i++)
            out->by_name[i] = (calm_named_linear){&out->linears[i], &out->jobs[j]};
    qsort(out->by_name, out->n_linears, sizeof *out->by_name, compare_linears);
    return CALM_OK;
}

/* The searched name: the first n characters. */
typedef struct part_of_text {
    const char *text;
    size_t n;
} part_of_text;

static int compare_text(const void *text, const void *linear)
{
    const part_of_text *name = text;
    const char *module = ((const calm_named_linear *)linear)->linear->module;
    const int order = strncmp(name->text, module, name->n);
    return order ? order : -(int)(module[name->n] != '\0');
}

const calm_named_linear *calm_layout_find(const calm_layout *layout, const char *name, size_t n)
{
    const part_of_text text = {name, n};
    return bsearch(&text, layout->by_name, layout->n_linears, sizeof *layout->by_name, compare_text);
}

calm_status calm_layout_build(calm_ctx *ctx, const calm_config *config, const char *prefix, bool split,
                              calm_layout *out)
{
    const builder b = {config, prefix, split, out};
    /* Counted first: the arrays have the size that many experts need, and do not grow. */
    size_t n_jobs = 0;
    *out = (calm_layout){0};
    for (size_t i = 0; i < config->n_blocks; i++)
        n_jobs += count_jobs(config, i, split);
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->jobs, n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->linears, CALM_JOB_LINEARS * n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->block_begin, config->n_blocks + 1));
    CALM_TRY(calm_head_module(ctx, config->arch->names, prefix, &out->head));
    for (size_t i = 0; i < config->n_blocks; i++)
        CALM_TRY(add_block(ctx, &b, i));
    out->block_begin[config->n_blocks] = out->n_jobs;
    return sort_linears(ctx, out);
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
    /* A job's name ends with its role; the part before it is the block's name. */
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
