/* Plans for tiny models. */
#include "tests/support/tiny_plan.h"

#include "ptq/base/rng.h"
#include "ptq/arch/kind.h"
#include "ptq/quant/qblob.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"

#define MOST_COLUMNS 4096    /* columns of a group */

/* Fetches a copy: it belongs to the assembly, which changes its scales. */
static calm_status fetch(void *user, calm_ctx *task, const calm_plan_job *job, calm_qjob *out)
{
    const tiny_plan *p = user;
    *out = p->qjobs[job - p->plan.jobs];
    const float *scales = out->scales;
    CALM_TRY(CALM_NEW(task, task->out, out->scales, out->out * out->n_groups));
    memcpy(out->scales, scales, out->out * out->n_groups * sizeof *scales);
    return CALM_OK;
}

static calm_status fetch_blob(void *user, calm_ctx *task, const calm_plan_job *job, calm_qjob *out)
{
    const tiny_plan *p = user;
    const size_t index = (size_t)(job - p->plan.jobs);
    return calm_qblob_decode(task, "blob", p->blobs[index], p->n_bytes[index], out);
}

void tiny_plan_pack(tiny_plan *p)
{
    ck_ok(CALM_NEW(ctx, ctx->out, p->blobs, p->plan.n_jobs));
    ck_ok(CALM_NEW(ctx, ctx->out, p->n_bytes, p->plan.n_jobs));
    for (size_t j = 0; j < p->plan.n_jobs; j++)
        if (p->plan.jobs[j].quantized)
            ck_ok(calm_qblob_encode(ctx, &p->qjobs[j], &p->blobs[j], &p->n_bytes[j]));
    p->plan.fetch = fetch_blob;
}

void tiny_plan_open(tiny_plan *out, const char *dir)
{
    ck_ok(calm_model_open(ctx, dir, &out->model));
    out->loaded = -1;
    out->plan = (calm_plan){.n_jobs = calm_model_layout(out->model)->n_jobs, .fetch = fetch, .user = out};
    ck_ok(CALM_NEW(ctx, ctx->out, out->plan.jobs, out->plan.n_jobs));
    ck_ok(CALM_NEW(ctx, ctx->out, out->qjobs, out->plan.n_jobs));
}

const calm_weight *tiny_plan_weights(const calm_block *block, long expert)
{
    calm_weight (*weight)[CALM_N_ROLES];
    if (expert == CALM_NO_EXPERT)
        return block->weight;
    if (expert == CALM_SHARED_EXPERT)
        return block->moe.shared;
    ck_ok(CALM_NEW(ctx, ctx->out, weight, 1));
    ck_ok(block->moe.load(block->moe.user, ctx, block->index, (size_t)expert, *weight));
    return *weight;
}

/* Draws one scale per channel; the query heads of a kv head share o's, as folding into v requires. */
static float draw_scale(const calm_config *config, const calm_job_ref *job, size_t index, size_t i, tiny_scales kind)
{
    const size_t d = config->head_dim, per_kv = config->n_heads / config->n_kv;
    const size_t channel = job->kind == CALM_JOB_O ? i / (d * per_kv) * d + i % d : i;
    const double exponent = 2 * calm_rng_normal(3, index, channel);
    return (float)exp2(kind == TINY_POWERS_OF_TWO ? rint(exponent) : exponent);
}

/* Returns the input of column k of the codes. */
static size_t input_of(const calm_qjob *q, size_t k)
{
    return q->order ? q->order[k] : k;
}

/* Returns the grid that spans group `g` of a row, and writes the group's weights to `scaled`. */
static calm_grid span_group(const calm_qjob *q, size_t g, const float *w, double scaled[MOST_COLUMNS], size_t *n)
{
    const size_t first = g * q->group;
    double lo, hi;
    *n = q->in - first < q->group ? q->in - first : q->group;
    ck_assert_uint_le(*n, MOST_COLUMNS);
    for (size_t i = 0; i < *n; i++)
        scaled[i] = (double)w[input_of(q, first + i)] * (q->in_scale ? (double)q->in_scale[input_of(q, first + i)] : 1);
    calm_grid_span(&q->scheme, scaled, *n, &lo, &hi);
    return calm_grid_between(&q->scheme, q->global, lo, hi);
}

/* Rounds row `row` of a job, w [in], to the nearest points of its groups' grids, super-block by super-block. */
static void round_row(calm_qjob *q, size_t row, const float *w)
{
    const size_t super = calm_scheme_family(&q->scheme)->super;
    double scaled[MOST_COLUMNS];
    size_t n;
    for (size_t begin = 0; begin < q->n_groups; begin += super) {
        const size_t end = calm_size_min(begin + super, q->n_groups), at = row * q->n_groups;
        float *scales = q->scales + at, *mins = q->mins ? q->mins + at : NULL;
        for (size_t g = begin; g < end; g++) {
            const calm_grid grid = span_group(q, g, w, scaled, &n);
            scales[g] = grid.scale;
            q->zeros[at + g] = q->scheme.symmetric ? calm_symmetric_zero(&q->scheme) : grid.zero;
            if (mins)
                mins[g] = grid.min;
        }
        calm_scales_round(&q->scheme, q->global, end - begin, scales + begin, mins ? mins + begin : NULL);
        for (size_t g = begin; g < end; g++) {
            calm_grid grid = span_group(q, g, w, scaled, &n);
            grid.scale = scales[g];
            grid.min = mins ? mins[g] : 0;
            calm_grid_encode(&q->scheme, grid, scaled, n, q->codes + row * q->in + g * q->group);
        }
    }
}

/* Rounds rows row .. row + n - 1, which share the scales of the widest row. */
static void round_block(calm_qjob *q, size_t row, size_t n, const float *w)
{
    double scaled[MOST_COLUMNS];
    size_t columns;
    for (size_t g = 0; g < q->n_groups; g++) {
        calm_grid grid = span_group(q, g, w, scaled, &columns);
        for (size_t r = 1; r < n; r++)
            grid.scale = fmaxf(grid.scale, span_group(q, g, w + r * q->in, scaled, &columns).scale);
        for (size_t r = 0; r < n; r++) {
            span_group(q, g, w + r * q->in, scaled, &columns);
            q->scales[(row + r) * q->n_groups + g] = grid.scale;
            calm_grid_encode(&q->scheme, grid, scaled, columns, q->codes + (row + r) * q->in + g * q->group);
        }
    }
}

static float largest_weight(const calm_layout *layout, const calm_job_ref *job, const calm_weight *weights)
{
    float most = 0;
    for (size_t l = job->first; l < job->first + job->n; l++) {
        const calm_weight *weight = &weights[layout->linears[l].role];
        for (size_t i = 0; i < weight->out * weight->in; i++)
            most = fmaxf(most, fabsf(weight->w[i]));
    }
    return most;
}

void tiny_plan_quantize(tiny_plan *p, size_t index, const char *scheme, tiny_scales scales)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_config *config = calm_model_config(p->model);
    const calm_job_ref *job = &layout->jobs[index];
    calm_qjob *q = &p->qjobs[index];
    size_t row = 0;
    *q = (calm_qjob){.out = job->out, .in = job->in};
    ck_ok(calm_scheme_parse(ctx, scheme, &q->scheme));
    q->scheme = calm_scheme_for(&q->scheme, q->in);
    p->plan.jobs[index] = (calm_plan_job){.quantized = q->scheme.bits != 0, .scheme = q->scheme, .entry_name = "test"};
    if (!q->scheme.bits)
        return;
    q->group = calm_scheme_group_size(&q->scheme, q->in);
    q->n_groups = calm_scheme_groups(&q->scheme, q->in);
    ck_ok(CALM_NEW(ctx, ctx->out, q->codes, q->out * q->in));
    ck_ok(CALM_NEW(ctx, ctx->out, q->scales, (q->out + 1) * q->n_groups));    /* a test claims one row too many */
    ck_ok(CALM_NEW(ctx, ctx->out, q->zeros, q->out * q->n_groups));
    if (calm_scheme_has_mins(&q->scheme))
        ck_ok(CALM_NEW(ctx, ctx->out, q->mins, q->out * q->n_groups));
    if (q->scheme.act_order)
        ck_ok(CALM_NEW(ctx, ctx->out, q->order, q->in));
    /* Even columns first, then odd ones, both in descending order: no group holds neighbours. */
    for (size_t k = 0, half = (q->in + 1) / 2; q->order && k < q->in; k++)
        q->order[k] = (uint32_t)(k < half ? 2 * (half - 1 - k) : 2 * (q->in - 1 - k) + 1);
    /* Divides the weights of the linear before by the input scales. */
    if (job->can_absorb && scales != TINY_UNSCALED && calm_scheme_folds(&q->scheme))
        ck_ok(CALM_NEW(ctx, ctx->out, q->in_scale, q->in));
    for (size_t i = 0; q->in_scale && i < q->in; i++)
        q->in_scale[i] = draw_scale(config, job, index, i, scales);
    if (p->loaded != (long)job->block)    /* load a block once for all its experts */
        ck_ok(calm_model_load_block(ctx, p->model, job->block, &p->block));
    p->loaded = (long)job->block;
    const calm_weight *weights = tiny_plan_weights(&p->block, job->expert);
    /* Bounds that no weight and few inputs of these models exceed. */
    q->global = calm_scale_global(&q->scheme, largest_weight(layout, job, weights));
    q->act_global =
        calm_act_rule_is_static(q->scheme.act_rule) ? 0.125f : calm_act_global(q->scheme.act_rule, 16);
    for (size_t l = job->first; l < job->first + job->n; l++) {
        const calm_weight *weight = &weights[layout->linears[l].role];
        const size_t rows = calm_scheme_rows(&q->scheme);
        for (size_t o = 0; rows == 1 && o < weight->out; o++)
            round_row(q, row + o, weight->w + o * weight->in);
        for (size_t o = 0; rows > 1 && o < weight->out; o += rows)
            round_block(q, row + o, calm_size_min(rows, weight->out - o), weight->w + o * weight->in);
        row += weight->out;
    }
    if (q->scheme.symmetric)
        q->zeros = NULL;
}

void tiny_plan_correct(tiny_plan *p, size_t index)
{
    calm_qjob *q = &p->qjobs[index];
    if (!p->plan.jobs[index].quantized)
        return;
    ck_ok(CALM_NEW(ctx, ctx->out, q->bias_delta, q->out));
    for (size_t i = 0; i < q->out; i++)
        q->bias_delta[i] = (float)(0.1 * calm_rng_normal(17, index, i));
}

void tiny_plan_correct_all(tiny_plan *p)
{
    for (size_t i = 0; i < p->plan.n_jobs; i++)
        tiny_plan_correct(p, i);
}

void tiny_plan_quantize_all(tiny_plan *p, const char *const *schemes, size_t n, tiny_scales scales)
{
    for (size_t i = 0; i < p->plan.n_jobs; i++)
        tiny_plan_quantize(p, i, schemes[i % n], scales);
}

void tiny_plan_quantize_family(tiny_plan *p, const char *const *schemes, size_t n)
{
    const calm_layout *layout = calm_model_layout(p->model);
    bool folds = true;
    calm_scheme scheme;
    /* Input scales of the next job cannot fold into scales of small floats, but into norms. */
    for (size_t i = 0; i < n; i++) {
        ck_ok(calm_scheme_parse(ctx, schemes[i], &scheme));
        folds &= calm_scheme_folds(&scheme);
    }
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        const size_t turn = job->expert >= 0 ? 0 : job->block * CALM_N_JOBS + job->kind;
        const bool norm = job->kind == CALM_JOB_QKV || job->kind == CALM_JOB_GATE_UP;
        tiny_plan_quantize(p, j, job->traits->stays_float ? "float" : schemes[turn % n],
                           folds || norm ? TINY_GENERAL : TINY_UNSCALED);
    }
}
