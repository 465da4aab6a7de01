/* Loops over candidates for one set of vector instructions.  The including file defines
 *
 *   TARGET         the function attribute of the set
 *   LANES          doubles per vector: 2, 4 or 8
 *   ABOVE, BELOW   (x, limit): max(x, limit) and min(x, limit)
 *   KERNELS        name of the calm_lane_kernels to define
 *
 * The loops use vector types of gcc and clang, as wide as the set's registers, because wider ones are compared one
 * number at a time.  The sums of CALM_LANE_STEP candidates stay in registers while the loop runs over the columns; the
 * compiler's own vectorization would put columns in lanes and add up their sums one by one. */
#pragma once

#include "algorithms/search_lanes.h"

#define PARTS (CALM_LANE_STEP / LANES)

/* Vectors that may begin at the address of any double. */
typedef double reals __attribute__((vector_size(LANES * sizeof(double)), aligned(sizeof(double)), may_alias));
typedef int64_t flags __attribute__((vector_size(LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

/* Loops over the vectors of a step. */
#define EACH        _Pragma("GCC unroll 4") for (size_t p = 0; p < PARTS; p++)
#define LOAD(array) (*(const reals *)((array) + at + p * LANES))
#define ROUNDED(q)  (((q) + CALM_LANE_ROUND) - CALM_LANE_ROUND)

/* measure of calm_lane_kernels. */
TARGET static void measure(calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n)
{
    for (size_t at = first; at < end; at += CALM_LANE_STEP) {
        reals scale[PARTS], lo[PARTS], hi[PARTS], inverse[PARTS], loss[PARTS];
        EACH scale[p] = LOAD(c->scale);
        EACH lo[p] = LOAD(c->lo);
        EACH hi[p] = LOAD(c->hi);
        EACH inverse[p] = 1 / scale[p];
        EACH loss[p] = (reals){0};
        for (size_t j = 0; j < n; j++) {
            const double hj = h ? h[j] : 1;
            EACH
            {
                const reals q = ABOVE(w[j] * inverse[p], lo[p]), e = w[j] - scale[p] * ROUNDED(BELOW(q, hi[p]));
                loss[p] += hj * e * e;
            }
        }
        EACH *(reals *)(c->inverse + at + p * LANES) = inverse[p];
        EACH *(reals *)(c->loss + at + p * LANES) = loss[p];
    }
}

/* lose of calm_lane_kernels. */
TARGET static void lose(const calm_lanes *c, size_t first, size_t end, double w, double h, double least,
                        calm_lane_flags *out)
{
    for (size_t at = first; at < end; at += CALM_LANE_STEP)
        EACH
        {
            const reals scale = LOAD(c->scale), lo = LOAD(c->lo), hi = LOAD(c->hi), x = w * (1 / scale);
            const reals q = ABOVE(x, lo), e = w - scale * ROUNDED(BELOW(q, hi));
            const flags lost = h * e * e > least;
            *(flags *)(out->lost + at - first + p * LANES) |= lost;
            *(flags *)(out->beyond + at - first + p * LANES) |= lost & ((x < lo) | (x > hi));
        }
}

/* project of calm_lane_kernels. */
TARGET static void project(const calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n,
                           calm_lane_sums *out)
{
    for (size_t at = first; at < end; at += CALM_LANE_STEP) {
        reals inverse[PARTS], lo[PARTS], hi[PARTS], wq[PARTS], qq[PARTS];
        EACH inverse[p] = LOAD(c->inverse);
        EACH lo[p] = LOAD(c->lo);
        EACH hi[p] = LOAD(c->hi);
        EACH wq[p] = qq[p] = (reals){0};
        for (size_t j = 0; j < n; j++) {
            const double hj = h ? h[j] : 1, hw = hj * w[j];
            EACH
            {
                reals q = ABOVE(w[j] * inverse[p], lo[p]);
                q = ROUNDED(BELOW(q, hi[p]));
                wq[p] += hw * q;
                qq[p] += hj * q * q;
            }
        }
        EACH *(reals *)(out->sq + at - first + p * LANES) = (reals){0};
        EACH *(reals *)(out->wq + at - first + p * LANES) = wq[p];
        EACH *(reals *)(out->qq + at - first + p * LANES) = qq[p];
    }
}

const calm_lane_kernels KERNELS = {.measure = measure, .lose = lose, .project = project};
