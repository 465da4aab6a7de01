/* Scale search over shrunken spans, then least squares.
 *
 *   search     s = p s0, s0 the scale that spans the group, p 36 equally spaced values from 1.1 down to 0.35 (3 bits:
 *              0.30, 2 bits: 0.20), and p = 1; with "signed" both signs: the symmetric grid has one more code below
 *              zero than above, and the sign decides which side has it
 *   then       q = round(w / s) clipped, s = sum h w q / sum h q^2, while sum h (w - s q)^2 falls
 *
 * Every scale is rounded to its storable value before its error is computed, so the search compares stored scales.
 * calm adds p = 1, so that no group is worse than with absmax.  For asymmetric schemes lo and hi shrink together and
 * least squares keeps the zero; there a negative scale only mirrors the codes, so it is not tried.  A minimum shrinks
 * with the span, and least squares finds scale and minimum together.  If scales are powers of two, only the four next
 * to the span's can be best.
 *
 * For GGUF's types, whose scales have fine steps, least squares begins from every candidate that is not lost, as in
 * llama.cpp's searches: the best span does not always lead to the best fit. */
#include "algorithms/scale_search.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "algorithms/search_lanes.h"
#include "ptq/base/simd.h"

#define SHRINK_MOST 1.1
#define COLUMNS 64                 /* columns whose codes are computed together */
#define N_WIDE  CALM_LANE_STEP     /* number of spans that are measured before any is dropped */

#define SIGNED_OPTION                                                                                                  \
    {.name = "signed", .help = "try negative scales too", .offset = offsetof(calm_search, both_signs),                 \
     .type = CALM_OPTION_BOOL, .fallback = "false"}

#define ROUNDS_OPTION                                                                                                  \
    {.name = "rounds", .help = "most rounds of least squares", .offset = offsetof(calm_search, rounds),                \
     .type = CALM_OPTION_INT, .fallback = "8", .min = 1, .max = 1000}

const calm_option calm_search_options[] = {SIGNED_OPTION, {.name = NULL}};

const calm_option calm_search_ls_options[] = {SIGNED_OPTION, ROUNDS_OPTION, {.name = NULL}};

const calm_option calm_search_hls_options[] = {
    SIGNED_OPTION,
    ROUNDS_OPTION,
    {.name = "weights", .help = "weight of an error: diag H, or before gptq 1 / [H^-1]_jj",
     .offset = offsetof(calm_search, weights), .type = CALM_OPTION_ENUM, .fallback = "diagonal",
     .values = "diagonal|inverse"},
    {.name = NULL},
};

/* Properties of a scheme, read for every candidate. */
typedef struct code_facts {
    const calm_scheme *scheme;
    int least, most;     /* the least and the largest code */
    bool plain, mins;    /* levels are whole numbers without a minimum; the scheme has minima */
    bool mirrors;        /* a negative scale gives other levels */
    bool fixed;          /* the zero does not change when the span shrinks */
} code_facts;

static code_facts facts_of(const calm_scheme *scheme)
{
    const bool mins = calm_scheme_has_mins(scheme);
    return (code_facts){.scheme = scheme, .least = calm_code_min(scheme), .most = calm_code_max(scheme),
                        .plain = calm_scheme_is_plain(scheme), .mins = mins, .mirrors = calm_scale_mirrors(scheme),
                        .fixed = !mins && (scheme->family || scheme->symmetric)};
}

/* Returns the least p: the fewer codes, the more a narrow span may gain by clipping. */
static double shrink_least(int bits)
{
    return bits == 2 ? 0.20 : bits == 3 ? 0.30 : 0.35;
}

/* Adds a candidate, unless its scale or minimum is outside the storable range. */
static void add_candidate(calm_lanes *c, const code_facts *codes, calm_grid grid)
{
    if (!isfinite(grid.scale) || !isfinite(grid.min))
        return;
    c->grid[c->n] = grid;
    c->scale[c->n] = grid.scale;
    c->lo[c->n] = codes->least - grid.zero;
    c->hi[c->n] = codes->most - grid.zero;
    c->min[c->n++] = grid.min;
}

/* Moves candidate i, which is at or after the end of the kept ones, to their end. */
static void keep_candidate(calm_lanes *c, size_t i)
{
    c->grid[c->n] = c->grid[i];
    c->scale[c->n] = c->scale[i];
    c->lo[c->n] = c->lo[i];
    c->hi[c->n] = c->hi[i];
    c->min[c->n++] = c->min[i];
}

/* Fills the lanes from `first` on up to whole vectors with scale 1 and level 0, whose results are not read; returns the
 * end of the vectors. */
static size_t fill_vector(calm_lanes *c, size_t first)
{
    size_t end = c->n;
    for (; (end - first) % CALM_LANE_STEP; end++) {
        c->scale[end] = 1;
        c->lo[end] = c->hi[end] = c->min[end] = 0;
    }
    return end;
}

/* Does what calm_lane_kernels.measure does, for any levels and minima. */
static void measure_levels(calm_lanes *c, size_t first, size_t end, const calm_scheme *scheme, const double *w,
                           const double *h, size_t n)
{
    double q[CALM_N_LANES];
    for (size_t i = first; i < end; i++) {
        c->inverse[i] = 1 / c->scale[i];
        c->loss[i] = 0;
    }
    for (size_t j = 0; j < n; j++) {
        const double hj = h ? h[j] : 1;
        for (size_t i = first; i < end; i++)
            q[i] = (w[j] - c->min[i]) * c->inverse[i];
        calm_level_nearest(scheme, calm_symmetric_zero(scheme), q + first, end - first);
        for (size_t i = first; i < end; i++) {
            const double e = w[j] - c->min[i] - c->scale[i] * q[i];
            c->loss[i] += hj * e * e;
        }
    }
}

/* Computes the losses of the candidates from number `first` on. */
static void measure_any(calm_lanes *c, size_t first, const code_facts *codes, const calm_group *group, const double *h)
{
    const size_t end = fill_vector(c, first);
    if (codes->plain)
        calm_lanes_here()->measure(c, first, end, group->w, h, group->n);
    else
        measure_levels(c, first, end, codes->scheme, group->w, h, group->n);
}

/* ---- candidates ---- */

/* The search of one group. */
typedef struct hunt {
    const calm_group *group;
    const double *h;               /* [n] weights of errors; NULL: ones                       */
    code_facts codes;
    double lo, hi, least;          /* the group's span; the least loss measured so far        */
    double ends[2], weights[2];    /* [n_ends] lo and hi, which a narrow span clips first; h of their columns */
    size_t n_ends;
} hunt;

/* Sets the ends.  An end of 0 may not be a weight, and no span clips a weight of 0, so it is left out. */
static void find_ends(hunt *at)
{
    const double *w = at->group->w, end[2] = {at->lo, at->hi};
    for (size_t i = 0; i < 2; i++) {
        size_t j = 0;
        if (end[i] == 0)
            continue;
        while (at->h && j + 1 < at->group->n && w[j] != end[i])
            j++;
        at->ends[at->n_ends] = end[i];
        at->weights[at->n_ends++] = at->h ? at->h[j] : 1;
    }
}

/* Does what calm_lane_kernels.lose does, for any levels and minima. */
static void lose_levels(const calm_lanes *c, size_t first, size_t end, const calm_scheme *scheme, double w, double h,
                        double least, calm_lane_flags *out)
{
    for (size_t i = first; i < end; i++) {
        const double from = w - c->min[i], x = from * (1 / c->scale[i]);
        double q = x;
        calm_level_nearest(scheme, c->grid[i].zero, &q, 1);
        const double e = from - c->scale[i] * q;
        if (!(h * e * e > least))
            continue;
        const int last = x < 0 ? calm_code_min(scheme) : calm_code_max(scheme);
        out->lost[i - first] = -1;
        if (fabs(x) > fabs(calm_level_value(scheme, c->grid[i].zero, (uint8_t)last)))
            out->beyond[i - first] = -1;
    }
}

/* Finds the lost candidates from number `first` on.  A loss is a sum of terms >= 0, so a candidate cannot be best if
 * one term alone exceeds the least loss. */
static void find_lost(const hunt *at, calm_lanes *c, size_t first, calm_lane_flags *out)
{
    const size_t end = fill_vector(c, first);
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < at->n_ends; i++) {
        const double w = at->ends[i], h = at->weights[i];
        if (at->codes.plain)
            calm_lanes_here()->lose(c, first, end, w, h, at->least, out);
        else
            lose_levels(c, first, c->n, at->codes.scheme, w, h, at->least, out);
    }
}

/* Drops the lost candidates from number `first` on.  With a fixed zero a smaller scale clips more: clipped [2], by
 * sign, is set when all narrower spans are lost, too. */
static void drop_lost(const hunt *at, calm_lanes *c, size_t first, bool clipped[2])
{
    calm_lane_flags is;
    const size_t n = c->n;
    find_lost(at, c, first, &is);
    c->n = first;
    for (size_t i = first; i < n; i++) {
        bool *const narrower = &clipped[c->scale[i] < 0];
        if (*narrower)
            continue;
        if (is.lost[i - first])
            *narrower = is.beyond[i - first] && at->codes.fixed;
        else
            keep_candidate(c, i);
    }
}

/* Adds the power of two that spans the group, and its neighbours. */
static void add_powers(calm_lanes *c, const hunt *at)
{
    const calm_problem *problem = at->group->problem;
    const calm_grid span = calm_grid_between(&problem->job->scheme, problem->global, at->lo, at->hi);
    for (int i = 0; i < 4; i++) {
        calm_grid grid = span;
        grid.scale = calm_scale_round(&problem->job->scheme, problem->global,
                                      ldexp(span.scale, (const int[]){0, 1, -1, -2}[i]));
        add_candidate(c, &at->codes, grid);
    }
}

/* Adds those of spans `from` .. `to` - 1 that can still be best.  Span 0 is p = 1, so that it wins among equals; the
 * others go from wide to narrow. */
static void add_spans(calm_lanes *c, const hunt *at, bool both_signs, int from, int to)
{
    const calm_scheme *scheme = at->codes.scheme;
    const double least = shrink_least(scheme->bits);
    bool clipped[2] = {false, !both_signs || !at->codes.mirrors};
    for (int i = from; i < to && !(clipped[0] && clipped[1]); i += N_WIDE) {
        const int n = to - i < N_WIDE ? to - i : N_WIDE;
        const size_t first = c->n;
        double p[N_WIDE];
        calm_grid grids[N_WIDE];
        for (int k = 0; k < n; k++)
            p[k] = i + k ? SHRINK_MOST - (i + k - 1) * (SHRINK_MOST - least) / (CALM_SPANS - 1) : 1;
        calm_grid_between_all(scheme, at->group->problem->global, at->lo, at->hi, p, (size_t)n, grids);
        for (int k = 0; k < n; k++)
            for (int mirror = 0; mirror < 2; mirror++, grids[k].scale = -grids[k].scale)
                if (!clipped[mirror])
                    add_candidate(c, &at->codes, grids[k]);
        if (at->least < INFINITY)
            drop_lost(at, c, first, clipped);
    }
}

/* Measures the candidates from number `first` on; returns the first of all with the least loss. */
static size_t measured_best(calm_lanes *c, size_t first, const hunt *at)
{
    size_t best = 0;
    measure_any(c, first, &at->codes, at->group, at->h);
    for (size_t i = 1; i < c->n; i++)
        if (c->loss[i] < c->loss[best])
            best = i;
    return best;
}

/* Computes the least-squares scale and minimum (0 if the scheme has none) from the sums s0 = sum h, sq = sum h q,
 * sw = sum h w, wq = sum h w q and qq = sum h q^2; false: there is no solution. */
static bool solve_levels(const code_facts *codes, double s0, double sq, double sw, double wq, double qq,
                         double *scale, double *min)
{
    *min = 0;
    if (!codes->mins) {
        *scale = wq / qq;
        return qq > 0;
    }
    /* All levels are equal, so that scale and minimum are not determined. */
    const double det = s0 * qq - sq * sq;
    if (!(det > 1e-12 * s0 * qq))
        return false;
    *scale = (s0 * wq - sq * sw) / det;
    *min = (sw - *scale * sq) / s0;
    return true;
}

/* Does the same for the levels that `grid` gives. */
static bool fit_levels(const code_facts *codes, const calm_group *group, const double *h, calm_grid grid, double *scale,
                       double *min)
{
    double s0 = 0, sq = 0, sw = 0, wq = 0, qq = 0;
    for (size_t j = 0; j < group->n; j++) {
        const double hj = h ? h[j] : 1, w = group->w[j];
        double q = (w - (double)grid.min) / (double)grid.scale;
        calm_level_nearest(codes->scheme, grid.zero, &q, 1);
        s0 += hj;
        sq += hj * q;
        sw += hj * w;
        wq += hj * w * q;
        qq += hj * q * q;
    }
    return solve_levels(codes, s0, sq, sw, wq, qq, scale, min);
}

CALM_VECTORIZE
static void add_projections(calm_lane_sums *p, const double *q, size_t n, double w, double h)
{
    for (size_t i = 0; i < n; i++) {
        p->sq[i] += h * q[i];
        p->wq[i] += h * w * q[i];
        p->qq[i] += h * q[i] * q[i];
    }
}

/* Computes the sums of the candidates from number `first` on, which have been measured. */
static void project_all(const hunt *at, calm_lanes *c, size_t first, calm_lane_sums *p)
{
    const calm_group *group = at->group;
    const calm_scheme *scheme = at->codes.scheme;
    const size_t n = fill_vector(c, first) - first;
    double q[CALM_N_LANES];
    if (at->codes.plain) {
        calm_lanes_here()->project(c, first, first + n, group->w, at->h, group->n, p);
        return;
    }
    for (size_t i = 0; i < n; i++)
        p->sq[i] = p->wq[i] = p->qq[i] = 0;
    for (size_t j = 0; j < group->n; j++) {
        for (size_t i = 0; i < n; i++)
            q[i] = (group->w[j] - c->min[first + i]) * c->inverse[first + i];
        calm_level_nearest(scheme, calm_symmetric_zero(scheme), q, n);
        add_projections(p, q, n, group->w[j], at->h ? at->h[j] : 1);
    }
}

/* Adds after the candidates the least-squares fit of each, and measures them; returns the best of all. */
static size_t fit_all(calm_lanes *c, const hunt *at)
{
    const calm_scheme *scheme = at->codes.scheme;
    double s0 = 0, sw = 0;
    calm_lane_sums p;
    size_t best = 0;
    for (size_t j = 0; j < at->group->n; j++) {
        s0 += at->h ? at->h[j] : 1;
        sw += (at->h ? at->h[j] : 1) * at->group->w[j];
    }
    for (size_t fit = 0, first = 0; fit < (at->codes.mins ? CALM_SPAN_FITS : 1); fit++) {
        const size_t n = c->n;
        project_all(at, c, first, &p);
        size_t n_fitted = 0, of[CALM_N_LANES];
        double scale[CALM_N_LANES], min[CALM_N_LANES];
        float rounded[CALM_N_LANES];
        for (size_t i = first; i < n; i++) {
            const size_t k = n_fitted;
            of[k] = i;
            n_fitted += solve_levels(&at->codes, s0, p.sq[i - first], sw, p.wq[i - first], p.qq[i - first], &scale[k],
                                     &min[k]);
        }
        calm_scale_round_all(scheme, at->group->problem->global, n_fitted, scale, rounded);
        for (size_t k = 0; k < n_fitted; k++) {
            const calm_grid *from = &c->grid[of[k]];
            const calm_grid grid = {.scale = rounded[k], .zero = from->zero, .min = calm_min_round(scheme, min[k])};
            if (grid.scale != from->scale || grid.min != from->min)
                add_candidate(c, &at->codes, grid);
        }
        best = measured_best(c, n, at);
        first = n;
    }
    return best;
}

/* Computes q [n], the codes of w [n] for `scale`. */
CALM_VECTORIZE
static void divide(const double *w, size_t n, double scale, double lo, double hi, double *q)
{
    for (size_t j = 0; j < n; j++) {
        double x = w[j] / scale;
        x = x < lo ? lo : x;
        x = x > hi ? hi : x;
        q[j] = (x + CALM_LANE_ROUND) - CALM_LANE_ROUND;
    }
}

/* Computes *wq = sum h w q and *qq = sum h q^2 for the codes that `scale` gives. */
static void project(const calm_group *group, const double *h, double scale, double lo, double hi, double *wq,
                    double *qq)
{
    double q[COLUMNS];
    *wq = *qq = 0;
    for (size_t at = 0; at < group->n; at += COLUMNS) {
        const size_t n = calm_size_min(group->n - at, COLUMNS);
        divide(group->w + at, n, scale, lo, hi, q);
        for (size_t j = 0; j < n; j++) {
            const double hj = h ? h[at + j] : 1;
            *wq += hj * group->w[at + j] * q[j];
            *qq += hj * q[j] * q[j];
        }
    }
}

/* Repeats least squares, beginning with the best candidate. */
static calm_grid refine(const hunt *at, const calm_lanes *c, size_t best, long long rounds)
{
    const calm_group *group = at->group;
    const calm_scheme *scheme = at->codes.scheme;
    calm_grid grid = c->grid[best];
    double loss = c->loss[best];
    for (long long round = 0; round < rounds; round++) {
        double wq, qq = 1, min = 0;
        calm_lanes one;
        calm_grid next = grid;
        if (at->codes.plain)
            project(group, at->h, grid.scale, c->lo[best], c->hi[best], &wq, &qq);
        else if (!fit_levels(&at->codes, group, at->h, grid, &wq, &min))
            break;
        if (!(qq > 0))
            break;
        next.scale = calm_scale_round(scheme, group->problem->global, wq / qq);
        next.min = calm_min_round(scheme, min);
        if (next.scale == grid.scale && next.min == grid.min)
            break;
        one.n = 0;
        add_candidate(&one, &at->codes, next);
        measure_any(&one, 0, &at->codes, group, at->h);
        /* Rounding the scale may raise the loss; then the grid before is the result. */
        if (!one.n || !(one.loss[0] < loss))
            break;
        grid = next;
        loss = one.loss[0];
    }
    return grid;
}

/* Are the scales so much finer than the spans tried, or combined with a minimum, that least squares changes them much?
 * This holds for GGUF's types. */
static bool is_fine(const calm_scheme *scheme)
{
    const calm_scale_code code = calm_scheme_family(scheme)->scale;
    return scheme->family && code != CALM_SCALE_DTYPE && code != CALM_SCALE_E8M0 && code != CALM_SCALE_E4M3 &&
           code != CALM_SCALE_JOB;
}

/* Searches the grid of a group; `h` NULL: every column has weight 1. */
static calm_status search_grid(calm_ctx *ctx, const calm_group *group, const calm_search *search, const double *h,
                               calm_grid *out)
{
    const calm_scheme *scheme = &group->problem->job->scheme;
    hunt at = {.group = group, .h = h, .codes = facts_of(scheme), .least = INFINITY};
    calm_lanes c;
    const bool powers = calm_scheme_family(scheme)->scale == CALM_SCALE_E8M0;
    c.n = 0;
    calm_grid_span(scheme, group->w, group->n, &at.lo, &at.hi);
    find_ends(&at);
    if (powers)
        add_powers(&c, &at);
    else
        add_spans(&c, &at, search->both_signs, 0, N_WIDE);
    const size_t n_wide = c.n;
    size_t best = measured_best(&c, 0, &at);
    if (c.n)
        at.least = c.loss[best];
    /* Most narrow spans clip the largest weights so much that this alone exceeds the least loss. */
    if (!powers)
        add_spans(&c, &at, search->both_signs, N_WIDE, CALM_SPANS + 1);
    if (c.n == 0)
        return calm_group_finish(ctx, group, (calm_grid){.scale = INFINITY}, out);
    if (c.n > n_wide)
        best = measured_best(&c, n_wide, &at);
    if (search->rounds > 0 && is_fine(scheme))
        best = fit_all(&c, &at);
    return calm_group_finish(ctx, group, refine(&at, &c, best, search->rounds), out);
}

calm_status calm_search_plain(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out)
{
    return search_grid(ctx, group, search, NULL, out);
}

calm_status calm_search_weighted(calm_ctx *ctx, const calm_group *group, const void *search, calm_grid *out)
{
    const calm_search *options = search;
    const double *h = options->weights == CALM_WEIGHTS_INVERSE && group->left ? group->left : group->h;
    double sum = 0;
    for (size_t j = 0; h && j < group->n; j++)
        sum += h[j];
    /* If no column has input, every column has weight 1. */
    return search_grid(ctx, group, search, sum > 0 ? h : NULL, out);
}
