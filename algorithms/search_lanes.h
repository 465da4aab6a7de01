/* Candidates of a scale search side by side, and the loops over them for each set of vector instructions. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "algorithms/part.h"

#define CALM_SPANS      36            /* shrunken spans that are tried */
#define CALM_SPAN_FITS  2             /* with minima: least squares of all candidates, and of what came of them */
#define CALM_LANE_STEP  8             /* candidates that are measured together: doubles of the widest vector */
#define CALM_LANE_ROUND 0x1.8p52      /* added and taken off, it rounds to the nearest whole number */
#define CALM_N_LANES    (2 * (CALM_SPANS + 1) * (1 + CALM_SPAN_FITS) + (1 + CALM_SPAN_FITS) * CALM_LANE_STEP)

/* n candidates: each one's sum is taken in column order whatever the vector width.  `inverse` and `loss` are known once
 * they have been measured. */
typedef struct calm_lanes {
    double scale[CALM_N_LANES], inverse[CALM_N_LANES], lo[CALM_N_LANES], hi[CALM_N_LANES], min[CALM_N_LANES];
    double loss[CALM_N_LANES];
    calm_grid grid[CALM_N_LANES];
    size_t n;
} calm_lanes;

/* Of spans that were added together, with both signs: -1 is yes. */
typedef struct calm_lane_flags {
    int64_t lost[2 * CALM_LANE_STEP], beyond[2 * CALM_LANE_STEP];
} calm_lane_flags;

/* Of candidates side by side sum h q, sum h w q and sum h q^2 for the levels that each gives. */
typedef struct calm_lane_sums {
    double sq[CALM_N_LANES], wq[CALM_N_LANES], qq[CALM_N_LANES];
} calm_lane_sums;

/* The loops for plain codes, q = round(w / scale) within lo and hi, over lanes `first` .. `end` - 1, whole steps of
 * them; h NULL: all columns count alike.  The bytes are the same for every set. */
typedef struct calm_lane_kernels {
    /* inverse, and loss = sum h (w - scale q)^2 of w [n]. */
    void (*measure)(calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n);
    /* Which lose more than `least` by w alone, into lanes from 0 on of *out, which are raised; beyond: and w / scale is
     * beyond the codes. */
    void (*lose)(const calm_lanes *c, size_t first, size_t end, double w, double h, double least, calm_lane_flags *out);
    /* Sums of those that have been measured, into lanes from 0 on; sum h q, which only minima ask for, is 0. */
    void (*project)(const calm_lanes *c, size_t first, size_t end, const double *w, const double *h, size_t n,
                    calm_lane_sums *out);
} calm_lane_kernels;

extern const calm_lane_kernels calm_lanes_plain, calm_lanes_avx2, calm_lanes_avx512;

/* Those of the widest vectors that this CPU has. */
const calm_lane_kernels *calm_lanes_here(void);
