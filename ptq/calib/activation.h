/* Activation statistics of one hook point (docs/method.md section 2; "Measuring Maximum Activations", 2605.15572).
 *
 * Each window of tokens gives a partial statistic.  Partials are merged in window order, so that sums have one fixed
 * order whatever the number of threads. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/calib/histogram.h"

#define CALM_ACT_TOP 100
#define CALM_ACT_QUANTILES 6     /* q25, median, q75, q90, q99, q99.9 of the nonzero |x| */

/* One of the largest |x|. */
typedef struct calm_actstat_peak {
    float value;                 /* signed value */
    uint32_t window, token, channel;
} calm_actstat_peak;

/* Accumulator over windows.  `peak`, `ratio` and `crest` have one value per token seen so far. */
typedef struct calm_actstat_acc {
    size_t channels;                      /* D                                                    */
    uint64_t count, zeros;                /* elements; elements that are 0 */
    double sum, sumsq, sumabs;
    float min, max;                       /* +-infinity before the first element                  */
    uint64_t histogram[CALM_ACT_BINS];    /* log10 |x| over [-8, 8), clipped to the ends */
    calm_actstat_peak top[CALM_ACT_TOP];  /* the largest |x| in falling order, ties by position */
    size_t n_top;
    size_t n_tokens, capacity;
    float *peak;                          /* [n_tokens] m_t = max |x_t|                           */
    float *ratio;                         /* [n_tokens] r_t = m_t / median |x_t|, at most 1e9     */
    float *crest;                         /* [n_tokens] m_t / rms(x_t), 0 for a zero token        */
    size_t n_massive;                     /* tokens with m_t > 100 and r_t > 1000                 */
} calm_actstat_acc;

/* The statistics of a finished hook point. */
typedef struct calm_actstat_summary {
    uint64_t count, zeros;
    size_t n_tokens, n_massive, channels;
    double mean, std, mean_abs, rms, min, max, max_abs;
    double quantile[CALM_ACT_QUANTILES];
    double peak_median;                                       /* over tokens, of m_t */
    double ratio_median, ratio_max, ratio_mean, ratio_std;    /* over tokens, of r_t */
    double crest_median, crest_max;                           /* over tokens, of max|x_t| / rms(x_t) */
} calm_actstat_summary;

/* Initializes an empty accumulator for D >= 1 channels and at most `capacity` tokens; its arrays are in `arena`, the
 * caller owns the struct.  CALM_ENOMEM. */
calm_status calm_actstat_init(calm_ctx *ctx, calm_arena *arena, size_t channels, size_t capacity,
                              calm_actstat_acc *acc);

/* Returns the bytes that calm_actstat_init() allocates from `arena`. */
size_t calm_actstat_init_bytes(size_t capacity);

/* Adds X [n, D] (row stride D), the tokens first_token .. of window `window`.  Add tokens in the order of (window,
 * token), which breaks ties among the largest |x|.  CALM_ENUMERIC: a value is not finite (the message has its position;
 * `acc` is then unusable); CALM_EARG: more than `capacity` tokens. */
calm_status calm_actstat_add(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, size_t n, uint32_t window,
                         uint32_t first_token);

/* The position of a row in the text. */
typedef struct calm_actstat_place {
    uint32_t window, token;
} calm_actstat_place;

/* Does the same for rows that are not neighbours: row t is token places[t].token of window places[t].window. */
calm_status calm_actstat_add_places(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, size_t n,
                                const calm_actstat_place *places);

/* Adds `from` to `into`, as if from's rows were added after into's, except for the order of the double sums, which is
 * the order of the merges.  CALM_EARG: the channels differ, or into's capacity is exceeded. */
calm_status calm_actstat_merge(calm_ctx *ctx, calm_actstat_acc *into, const calm_actstat_acc *from);

/* Computes the statistics; all are finite, and 0 if nothing was added. */
void calm_actstat_summarize(const calm_actstat_acc *acc, calm_actstat_summary *out);
