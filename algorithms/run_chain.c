/* Runs a chain on a job: checks the inputs, builds the problem, runs transforms, rounding and refits. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "algorithms/act_order.h"
#include "algorithms/chain.h"
#include "algorithms/inverse.h"
#include "ptq/base/scope.h"
#include "ptq/quant/act_levels.h"
#include "ptq/quant/act_static.h"

/* ---- check inputs ---- */

/* Fails with CALM_EARG if a part needs a statistic that calibration did not collect. */
static calm_status check_statistic(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job, bool needed,
                                   const void *values, const char *what)
{
    if (!needed || values)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s: %s needs the inputs' %s, which calibration did not collect", job->name,
                     algorithm->name, what);
}

/* Checks the scheme's values, because a caller of the library may have filled them in by hand. */
static calm_status check_scheme(calm_ctx *ctx, const calm_job *job)
{
    const calm_scheme *s = &job->scheme;
    if (s->family < 0 || s->family >= CALM_N_FAMILIES)
        return calm_fail(ctx, CALM_EARG, "%s: a scheme of family %d; schemes are made by calm_scheme_parse", job->name,
                         s->family);
    if ((s->bits == 0 || (s->bits >= 2 && s->bits <= 8)) && (s->scale_dtype == CALM_BF16 || s->scale_dtype == CALM_F16))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG,
                     "%s: a scheme of %d bits with scales of type %d; expected 2 to 8 bits, bf16 or f16", job->name,
                     s->bits, (int)s->scale_dtype);
}

static calm_status check_absorb_groups(calm_ctx *ctx, const calm_job *job)
{
    for (size_t i = 0; job->absorb_group && i < job->linears[0].in; i++)
        if (job->absorb_group[i] >= job->n_absorb_groups)
            return calm_fail(ctx, CALM_EARG, "%s: absorb_group[%zu] is %u, expected less than %zu", job->name, i,
                             job->absorb_group[i], job->n_absorb_groups);
    return CALM_OK;
}

/* Has any linear of the job a bias? */
static bool is_biased(const calm_job *job)
{
    bool any = false;
    for (size_t i = 0; i < job->n_linears; i++)
        any |= job->linears[i].bias;
    return any;
}

static bool corrects_biases(const calm_algorithm *algorithm, const calm_job *job)
{
    return algorithm->caps & CALM_SETS_BIAS && is_biased(job);
}

/* Checks that the job has the statistics that the algorithm needs. */
static calm_status check_statistics(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job)
{
    const calm_stats *stats = job->stats;
    const bool corrects = corrects_biases(algorithm, job);
    const unsigned needs = calm_algorithm_needs(algorithm, &job->scheme, is_biased(job));
    if ((needs || corrects) && !stats)
        return calm_fail(ctx, CALM_EARG, "%s: %s needs calibration", job->name, algorithm->name);
    if (!stats)
        return CALM_OK;
    CALM_TRY(check_statistic(ctx, algorithm, job, needs & CALM_NEEDS_GRAM, stats->gram, "Gram matrix"));
    CALM_TRY(check_statistic(ctx, algorithm, job, needs & CALM_NEEDS_CROSS && stats->rows, stats->cross,
                             "products with those behind float blocks"));
    CALM_TRY(check_statistic(ctx, algorithm, job, needs & CALM_NEEDS_ABSMAX, stats->absmax, "maxima"));
    CALM_TRY(check_statistic(ctx, algorithm, job, needs & CALM_NEEDS_SUMS, stats->sumabs, "sums"));
    CALM_TRY(check_statistic(ctx, algorithm, job, job->scheme.act_order, stats->sumsq, "sums of squares"));
    CALM_TRY(check_statistic(ctx, algorithm, job, corrects, stats->sum, "sums"));
    return check_statistic(ctx, algorithm, job, needs & CALM_NEEDS_SAMPLES && stats->rows, stats->samples, "kept rows");
}

/* Checks everything that needs no look at the values of weights and statistics. */
static calm_status check_job(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job)
{
    CALM_TRY(check_scheme(ctx, job));
    CALM_TRY(calm_algorithm_reaches(ctx, algorithm, &job->scheme));
    for (size_t i = 0; i < job->n_linears; i++)
        if (!job->linears[i].name || (!job->linears[i].w && job->linears[i].out))
            return calm_fail(ctx, CALM_EARG, "%s: linears[%zu] has no name or no weights", job->name, i);
    for (size_t i = 0; i < job->n_linears; i++)
        if (job->linears[i].in != job->linears[0].in)
            return calm_fail(ctx, CALM_EARG, "%s: %zu inputs, but %s of the same job has %zu", job->linears[i].name,
                             job->linears[i].in, job->linears[0].name, job->linears[0].in);
    if (job->n_linears == 0 || job->linears[0].in == 0)
        return calm_fail(ctx, CALM_EARG, "%s: a job without weights", job->name);
    CALM_TRY(check_absorb_groups(ctx, job));
    return check_statistics(ctx, algorithm, job);
}

calm_status calm_algorithm_reaches(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_scheme *scheme)
{
    const char *name = CALM_SCHEME_NAME(scheme);
    if (algorithm->n_steps == 0)
        return scheme->bits == 0 ? CALM_OK
            : calm_fail(ctx, CALM_EUNSUPPORTED, "%s cannot reach %s: it leaves linears as they are", algorithm->name,
                        name);
    if (scheme->bits == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s cannot reach %s: the scheme is float, there is nothing to round to", algorithm->name,
                         name);
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_part *part = algorithm->steps[i].part;
        const char *why = part->refuses ? part->refuses(scheme) : NULL;
        if (why)
            return calm_fail(ctx, CALM_EUNSUPPORTED, "%s cannot reach %s: its %s %s: %s", algorithm->name, name,
                             calm_part_kind_name(part->kind), part->name, why);
    }
    return CALM_OK;
}

/* Checks that a statistic is finite and at least `least` for every input.  Statistics may come from the store, and a
 * damaged one must not become a scale. */
static calm_status check_inputs(calm_ctx *ctx, const calm_job *job, size_t in, const char *what, const float *single,
                                const double *wide, double least)
{
    for (size_t j = 0; j < in; j++) {
        const double value = single ? (double)single[j] : wide[j];
        if (!isfinite(value) || value < least)
            return calm_fail(ctx, CALM_ENUMERIC, "%s: %s of input %zu is %g", job->name, what, j, value);
    }
    return CALM_OK;
}

static calm_status check_samples(calm_ctx *ctx, const calm_job *job, size_t in)
{
    size_t n = job->stats->n_samples * in, bad = calm_find_nonfinite(job->stats->samples, n);
    return bad == n ? CALM_OK
                    : calm_fail(ctx, CALM_ENUMERIC, "%s: kept row %zu, input %zu is %g", job->name, bad / in, bad % in,
                                job->stats->samples[bad]);
}

static calm_status check_cross(calm_ctx *ctx, const calm_job *job, size_t in)
{
    for (size_t i = 0; job->stats->rows && i < in * in; i++)
        if (!isfinite(job->stats->cross[i]))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: product of inputs [%zu, %zu] is %g", job->name, i / in, i % in,
                             job->stats->cross[i]);
    return CALM_OK;
}

/* ---- the problem ---- */

/* Are the weights of the job's linears already one matrix in memory? */
static bool is_stacked(const calm_job *job)
{
    const float *next = job->linears[0].w;
    for (size_t i = 0; i < job->n_linears; i++) {
        if (job->linears[i].w != next)
            return false;
        next += job->linears[i].out * job->linears[i].in;
    }
    return true;
}

/* Does the algorithm only read weights?  It does without transforms and without parts that have caps. */
static bool reads_alone(const calm_algorithm *algorithm)
{
    return !algorithm->caps && algorithm->steps[0].part->kind != CALM_KIND_TRANSFORM;
}

/* Sets problem->w [O, I] to the stacked weights of the job's linears, after checking that they are finite. */
static calm_status stack_weights(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                 calm_problem *problem)
{
    size_t n_weights;
    float *to = NULL;
    if (!calm_size_mul(&n_weights, problem->out, problem->in))
        return calm_fail(ctx, CALM_ENOMEM, "%s: %zu x %zu weights do not fit", job->name, problem->out, problem->in);
    if (!reads_alone(algorithm) || !is_stacked(job))
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, to, n_weights));
    problem->w = to ? to : (float *)(uintptr_t)job->linears[0].w;
    for (size_t i = 0; i < job->n_linears; i++) {
        const calm_linear *linear = &job->linears[i];
        size_t n = linear->out * linear->in;
        size_t bad = calm_find_nonfinite(linear->w, n);
        if (bad < n)
            return calm_fail(ctx, CALM_ENUMERIC, "%s.weight[%zu, %zu] is %g", linear->name, bad / linear->in,
                             bad % linear->in, linear->w[bad]);
        if (n && to) {
            memcpy(to, linear->w, n * sizeof *to);
            to += n;
        }
    }
    return CALM_OK;
}

/* Does any step read H itself? */
static bool reads_gram(const calm_algorithm *algorithm)
{
    bool reads = false;
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_part *part = algorithm->steps[i].part;
        /* A transform may change H. */
        reads |= part->kind == CALM_KIND_TRANSFORM ||
                 (part->caps & CALM_NEEDS_GRAM && !(part->caps & CALM_GRAM_INVERSE));
    }
    return algorithm->caps & CALM_NEEDS_GRAM && reads;
}

/* Returns the damping with which the step reads H itself, its option `damp`; 0: it does not read H. */
static double step_damping(const calm_step *step)
{
    const bool reads = step->part->caps & CALM_NEEDS_GRAM && !(step->part->caps & CALM_GRAM_INVERSE);
    for (const calm_option *option = step->part->opts; reads && option && option->name; option++)
        if (strcmp(option->name, "damp") == 0)
            return *(const double *)((const char *)step->opts + option->offset);
    return 0;
}

/* Does the chain change H, or read it with another damping than `damp`?  Then it cannot use a shared H. */
static bool changes_gram(const calm_algorithm *algorithm, double damp)
{
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_step *step = &algorithm->steps[i];
        const double own = step_damping(step);
        if (step->part->kind == CALM_KIND_TRANSFORM || step->part->caps & CALM_SETS_IN_SCALE ||
            (own > 0 && own != damp))
            return true;
    }
    return false;
}

double calm_algorithm_damping(const calm_algorithm *algorithm)
{
    double damp = 0;
    for (size_t i = 0; i < algorithm->n_steps && damp == 0; i++)
        damp = step_damping(&algorithm->steps[i]);
    return damp;
}

double calm_algorithm_factor(const calm_algorithm *algorithm)
{
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_step *step = &algorithm->steps[i];
        if (step->part->kind == CALM_KIND_TRANSFORM)
            return 0;
        if (step->part->caps & CALM_NEEDS_INVERSE)
            return step->part->factor ? step->part->factor(step->opts) : 0;
    }
    return 0;
}

/* Does the chain compute a factor other than the one that calm_algorithm_factor describes? */
static bool makes_factors(const calm_algorithm *algorithm, double damp)
{
    bool first = calm_algorithm_factor(algorithm) == damp && damp > 0, makes = !first;
    for (size_t i = 0; i < algorithm->n_steps; i++)
        if (algorithm->steps[i].part->caps & CALM_NEEDS_INVERSE) {
            makes |= !first;
            first = false;
        }
    return makes;
}

bool calm_algorithm_copies(const calm_algorithm *algorithm, double damp)
{
    return reads_gram(algorithm) && changes_gram(algorithm, damp);
}

/* Sets the problem's H: the shared one, a copy of the shared one or of the Gram matrix, or none. */
static calm_status take_gram(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                             const calm_hessian *shared, calm_problem *problem)
{
    const size_t n = problem->in;
    const bool reads = reads_gram(algorithm);
    bool blind = shared && shared->blind;
    size_t cells;
    if (!calm_size_mul(&cells, n, n))
        return calm_fail(ctx, CALM_ENOMEM, "%s: a %zu x %zu matrix does not fit", job->name, n, n);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, problem->h_diag, n));
    if (!shared)
        CALM_TRY(calm_hessian_check(ctx, job->name, n, job->stats, &blind));
    calm_hessian_diagonal(n, job->stats, shared, blind, problem->h_diag);
    /* A shared H is in place of X^T X, so stats->gram is not X^T X then. */
    problem->gram = shared || blind ? NULL : job->stats->gram;
    if (shared && !calm_algorithm_copies(algorithm, shared->damp)) {
        problem->h = shared->h;
        problem->shared = shared;
        return CALM_OK;
    }
    if (!reads)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, problem->h, cells));
    if (shared) {
        memcpy(problem->h, shared->h, cells * sizeof *problem->h);
        calm_hessian_damp(n, problem->h_diag, 0, problem->h);
    } else {
        calm_hessian_divide(ctx, n, job->stats->gram, job->stats->rows, blind, problem->h);
    }
    return CALM_OK;
}

/* Sets problem->inverse, the memory for factors of H^-1, and problem->common, the job's shared factor. */
static calm_status take_inverse(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_hessian *shared,
                                calm_problem *problem)
{
    calm_inverse *there = shared && problem->shared ? shared->inverse : NULL;
    /* Chains use a lent inverse one at a time, and may find the factor of the chain before. */
    if (there && shared->lent) {
        calm_inverse_begin(there);
        problem->inverse = there;
        return CALM_OK;
    }
    problem->common = there;
    /* A chain that only reads the shared factor needs no memory for another. */
    if (there && !makes_factors(algorithm, there->asked)) {
        problem->inverse = there;
        return CALM_OK;
    }
    return calm_inverse_new(ctx, ctx->scratch, problem->job->name, problem->in, &problem->inverse);
}

calm_job_shape calm_job_shape_of(const calm_scheme *scheme, size_t out, size_t in)
{
    const size_t group = calm_scheme_group_size(scheme, in);
    return (calm_job_shape){.out = out, .in = in, .group = group < in ? group : in,
                            .n_groups = calm_scheme_groups(scheme, in), .n_threads = 1, .symmetric = scheme->symmetric,
                            .family = scheme->family, .reordered = scheme->act_order,
                            .fixed_inputs = calm_act_rule_is_static(scheme->act_rule)};
}

/* Copies the job into the problem, which parts may change, so that candidates do not see each other's changes. */
static calm_status build_problem(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                 const calm_hessian *shared, calm_problem *problem)
{
    const unsigned needs = calm_algorithm_needs(algorithm, &job->scheme, is_biased(job));
    *problem = (calm_problem){.job = job, .in = job->linears[0].in};
    for (size_t i = 0; i < job->n_linears; i++)
        problem->out += job->linears[i].out;
    const calm_job_shape shape = calm_job_shape_of(&job->scheme, problem->out, problem->in);
    problem->n_groups = shape.n_groups;
    problem->group = shape.group;
    CALM_TRY(stack_weights(ctx, algorithm, job, problem));
    if (needs & CALM_NEEDS_ABSMAX)
        CALM_TRY(check_inputs(ctx, job, problem->in, "max|x|", job->stats->absmax, NULL, 0));
    if (needs & CALM_NEEDS_SUMS)
        CALM_TRY(check_inputs(ctx, job, problem->in, "the sum of |x|", NULL, job->stats->sumabs, 0));
    if (corrects_biases(algorithm, job))
        CALM_TRY(check_inputs(ctx, job, problem->in, "the sum of x", NULL, job->stats->sum, -INFINITY));
    if (needs & CALM_NEEDS_SAMPLES)
        CALM_TRY(check_samples(ctx, job, problem->in));
    if (needs & CALM_NEEDS_GRAM)
        CALM_TRY(take_gram(ctx, algorithm, job, shared, problem));
    if (needs & CALM_NEEDS_CROSS)
        CALM_TRY(check_cross(ctx, job, problem->in));
    if (algorithm->caps & CALM_NEEDS_INVERSE)
        CALM_TRY(take_inverse(ctx, algorithm, shared, problem));
    return CALM_OK;
}

/* ---- the result ---- */

/* Does a step from number `at` on set the input scale? */
static bool scales_later(const calm_algorithm *algorithm, const calm_job *job, size_t at)
{
    for (; at < algorithm->n_steps; at++)
        if (algorithm->steps[at].part->caps & CALM_SETS_IN_SCALE &&
            !calm_algorithm_skips(&algorithm->steps[at], job->can_absorb, is_biased(job)))
            return true;
    return false;
}

/* Allocates the result in ctx->out, with an input scale if the problem has one or a step from `at` on sets it. */
static calm_status allocate_result(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_problem *problem,
                                   size_t at, calm_qjob *out)
{
    *out = (calm_qjob){.out = problem->out, .in = problem->in, .n_groups = problem->n_groups, .group = problem->group,
                       .scheme = problem->job->scheme, .global = problem->global,
                       .act_global = problem->act_global};
    const bool has_scale = problem->in_scale || scales_later(algorithm, problem->job, at);
    const unsigned scaled = has_scale ? CALM_QJOB_SCALED : 0;
    const unsigned biased = corrects_biases(algorithm, problem->job) ? CALM_QJOB_BIASED : 0;
    return calm_qjob_new(ctx, scaled | biased, out);
}

/* ---- run ---- */

/* Sets global and act_global from the present largest weight and largest input. */
static void set_global(calm_problem *problem)
{
    const calm_stats *stats = problem->job->stats;
    const bool scaled = calm_scheme_has_global(&problem->job->scheme);
    float absmax = 0, input = 0;
    for (size_t j = 0; problem->job->scheme.act_rule == CALM_ACT_RULE_NVFP4 && j < problem->in; j++)
        input = fmaxf(input, stats->absmax[j] / (problem->in_scale ? problem->in_scale[j] : 1));
    problem->act_global = calm_act_global(problem->job->scheme.act_rule, input);
    for (size_t i = 0; scaled && i < problem->out * problem->in; i++)
        absmax = fmaxf(absmax, fabsf(problem->w[i]));
    problem->global = calm_scale_global(&problem->job->scheme, absmax);
}

/* Sets act_global to the static scale of the present input, for schemes that have one.  The error of an input is
 * weighted by the weights of its column. */
static calm_status set_act_scale(calm_ctx *ctx, calm_problem *problem)
{
    const calm_job *job = problem->job;
    double *weights;
    CALM_SCOPED_SCRATCH(ctx);
    if (!calm_act_rule_is_static(job->scheme.act_rule))
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, weights, problem->in));
    for (size_t i = 0; i < problem->out * problem->in; i++)
        weights[i % problem->in] += (double)problem->w[i] * (double)problem->w[i];
    const calm_act_rows rows = {.x = job->stats->samples, .n = job->stats->n_samples, .d = problem->in,
                                .weights = weights, .in_scale = problem->in_scale, .absmax = job->stats->absmax};
    problem->act_global = calm_act_static_scale(&job->scheme, &rows);
    if (isfinite(problem->act_global))
        return CALM_OK;
    return calm_fail(ctx, CALM_ENUMERIC, "%s: the inputs are too large for a scale of %s", job->name,
                     calm_dtype_name(job->scheme.scale_dtype));
}

/* Runs the transforms; skips those that set channel scales if the layer before cannot absorb them. */
static calm_status run_transforms(calm_ctx *ctx, const calm_algorithm *algorithm, calm_problem *problem, size_t *at)
{
    for (*at = 0; algorithm->steps[*at].part->kind == CALM_KIND_TRANSFORM; (*at)++) {
        const calm_step *step = &algorithm->steps[*at];
        if (calm_algorithm_skips(step, problem->job->can_absorb, is_biased(problem->job)))
            continue;
        /* A fit needs the scale with which the input is quantized at this point. */
        if (step->part->caps & CALM_FITS_INPUT)
            CALM_TRY(set_act_scale(ctx, problem));
        CALM_TRY(step->part->run.transform(ctx, problem, step->opts));
    }
    return CALM_OK;
}

size_t calm_algorithm_run_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape)
{
    const calm_scheme scheme = {.group = shape->group, .symmetric = shape->symmetric, .family = shape->family,
                                .act_order = shape->reordered};
    const unsigned scaled = algorithm->caps & CALM_SETS_IN_SCALE ? CALM_QJOB_SCALED : 0;
    const unsigned biased = algorithm->caps & CALM_SETS_BIAS && shape->biased ? CALM_QJOB_BIASED : 0;
    return calm_qjob_bytes(&scheme, shape->out, shape->in, scaled | biased);
}

size_t calm_algorithm_run_scratch_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape)
{
    const calm_scheme scheme = {.act_order = shape->reordered};
    size_t kept = CALM_BYTES(float, shape->out * shape->in), most = 0;
    if (algorithm->caps & CALM_NEEDS_GRAM)
        kept += CALM_BYTES(double, shape->in);
    if (shape->shared ? calm_algorithm_copies(algorithm, shape->damp) : reads_gram(algorithm))
        kept += CALM_BYTES(double, shape->in * shape->in);
    if (algorithm->caps & CALM_NEEDS_INVERSE && makes_factors(algorithm, shape->factor))
        kept += calm_inverse_bytes(shape->in);
    if (algorithm->caps & CALM_SETS_IN_SCALE)
        kept += calm_problem_scale_bytes(shape->in);
    for (size_t i = 0; i < algorithm->n_steps; i++) {
        const calm_step *step = &algorithm->steps[i];
        calm_part_memory memory = {0, 0};
        if (step->part->memory)
            memory = step->part->memory(shape, step->opts);
        kept += memory.kept;
        /* What a part keeps adds up until the end of the chain; its peak while it runs does not. */
        most = calm_size_max(most, kept + memory.most);
    }
    const unsigned needs = calm_algorithm_needs(algorithm, &scheme, true);
    most = calm_size_max(kept + (shape->fixed_inputs ? CALM_BYTES(double, shape->in) : 0), most);
    /* Plus the reordered job. */
    return most + (shape->reordered ? calm_ordered_job_bytes(shape, needs) : 0);
}

calm_status calm_algorithm_run(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job, calm_qjob *out)
{
    return calm_algorithm_run_shared(ctx, algorithm, job, NULL, out);
}

/* Runs the steps on a checked job. */
static calm_status run_steps(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                             const calm_hessian *shared, calm_qjob *out)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED_OPERANDS(ctx, calm_operands_near(ctx->operands));
    calm_problem problem;
    size_t at = 0;
    CALM_TRY(build_problem(ctx, algorithm, job, shared, &problem));
    /* Set before the transforms, because AWQ searches with the chain's own grid. */
    while (algorithm->steps[at].part->kind != CALM_KIND_GRID)
        at++;
    problem.grid = algorithm->steps[at].part;
    problem.grid_opts = algorithm->steps[at].opts;
    /* Before the transforms, which search with the grid, and again after them, since they may change the largest
     * weight. */
    set_global(&problem);
    CALM_TRY(run_transforms(ctx, algorithm, &problem, &at));
    set_global(&problem);
    CALM_TRY(calm_problem_check_global(ctx, &problem));
    CALM_TRY(set_act_scale(ctx, &problem));
    at++;
    CALM_TRY(allocate_result(ctx, algorithm, &problem, at, out));
    CALM_TRY(algorithm->steps[at].part->run.round(ctx, &problem, algorithm->steps[at].opts, out));
    for (at++; at < algorithm->n_steps; at++) {
        const calm_step *step = &algorithm->steps[at];
        /* The parser allows only refits after the rounding. */
        assert(step->part->kind == CALM_KIND_REFIT);
        if (!calm_algorithm_skips(step, job->can_absorb, is_biased(job)))
            CALM_TRY(step->part->run.refit(ctx, &problem, step->opts, out));
        /* A refit that changes in_scale changes the input. */
        if (step->part->caps & CALM_SETS_IN_SCALE && problem.in_scale)
            CALM_TRY(set_act_scale(ctx, &problem));
    }
    out->act_global = problem.act_global;
    /* After the refits, which may change it. */
    if (out->in_scale)
        memcpy(out->in_scale, problem.in_scale, problem.in * sizeof *out->in_scale);
    return CALM_OK;
}

calm_status calm_algorithm_run_shared(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                      const calm_hessian *shared, calm_qjob *out)
{
    calm_ordered_job ordered;
    CALM_ENTER(ctx, algorithm && job && job->name && (job->linears || !job->n_linears) && out);
    if (algorithm->n_steps == 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s leaves linears as they are", job->name, algorithm->name);
    CALM_TRY(check_job(ctx, algorithm, job));
    if (!job->scheme.act_order)
        return run_steps(ctx, algorithm, job, shared, out);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(check_inputs(ctx, job, job->linears[0].in, "the sum of x^2", NULL, job->stats->sumsq, 0));
    const unsigned needs = calm_algorithm_needs(algorithm, &job->scheme, is_biased(job));
    CALM_TRY(calm_ordered_job_make(ctx, job, needs, shared, &ordered));
    CALM_TRY(run_steps(ctx, algorithm, &ordered.job, ordered.shared, out));
    return calm_ordered_job_restore(ctx, &ordered, job, out);
}
