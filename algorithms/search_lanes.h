/* Candidate grids of a scale search in vector lanes, and the loops over them for each set of vector instructions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "algorithms/part.h"

#define CALM_SPANS      36            /* number of shrunken spans that are tried */
#define CALM_SPAN_FITS  2             /* with minima: rounds of least squares, the second over the first's results */
#define CALM_LANE_STEP  8             /* candidates measured together: doubles of the widest vector */
#define CALM_LANE_ROUND 0x1.8p52      /* adding and subtracting it rounds a double to the nearest whole number */
#define CALM_N_LANES    (2 * (CALM_SPANS + 1) * (1 + CALM_SPAN_FITS) + (1 + CALM_SPAN_FITS) * CALM_LANE_STEP)

/* n candidates, one per lane.  A candidate's sums run in column order for every vector width.  `inverse` and `loss` are
 * set by calm_lane_kernels.measure. */
typedef struct calm_lanes {
    double scale[CALM_N_LANES], inverse[CALM_N_LANES], lo[CALM_N_LANES], hi[CALM_N_LANES], min[CALM_N_LANES];
    double loss[CALM_N_LANES];
    calm_grid grid[CALM_N_LANES];
    size_t n;
} calm_lanes;

/* Flags, -1 or 0, of candidates that were added together, spans with both signs; see calm_lane_kernels.lose. */
typedef struct calm_lane_flags {
    int64_t lost[2 * CALM_LANE_STEP], beyond[2 * CALM_LANE_STEP];
} calm_lane_flags;

/* Per candidate: sq = sum h q, wq = sum h w q and qq = sum h q^2 over the columns, q its levels. */
typedef struct calm_lane_sums {
    double sq[CALM_N_LANES], wq[CALM_N_LANES], qq[CALM_N_LANES];
} calm_lane_sums;

/* The loops for plain codes, q = round(w / scale) clipped to lo .. hi, over lanes `first` .. `end` - 1, a multiple of
 * CALM_LANE_STEP; h NULL: every column has weight 1.  All instruction sets give the same bytes. */
typedef struct calm_lane_kernels {
    /* Computes inverse, and loss = sum h (w - scale q)^2 of w [n]. */
    void (*measure)(calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n);
    /* Sets lost where the loss of the one weight w alone exceeds `least`, and beyond where w / scale is also outside lo
     * .. hi; into lanes of *out from 0 on.  Other flags stay. */
    void (*lose)(const calm_lanes *c, size_t first, size_t end, double w, double h, double least, calm_lane_flags *out);
    /* Computes the sums of measured candidates into lanes of *out from 0 on; sq, which only minima need, is 0. */
    void (*project)(const calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n,
                    calm_lane_sums *out);
} calm_lane_kernels;

extern const calm_lane_kernels calm_lanes_plain, calm_lanes_avx2, calm_lanes_avx512;

/* Returns the loops for the widest vectors that this CPU has. */
const calm_lane_kernels *calm_lanes_here(void);
