/* Activation statistics of one hook point (docs/method.md section 2; Measuring Maximum Activations, 2605.15572).
 *
 * A run has about 1e9 elements, so each row goes through a few branch-free loops: moments in eight fixed lanes, the
 * histogram from bits, and the median over channels by a search over bits, about four counting passes over a row that
 * is in the first-level cache. */
#include "ptq/calib/activation.h"

#include <math.h>
#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"

enum { LANES = 8, BLOCK = 16 };

/* The ratio of a token whose median |x| is 0; no real token comes near it. */
#define RATIO_MAX 1e9

/* Limits of a massive token, as the paper defines them. */
#define MASSIVE_PEAK 100
#define MASSIVE_RATIO 1000

static const double quantiles[CALM_ACT_QUANTILES] = {0.25, 0.5, 0.75, 0.9, 0.99, 0.999};

/* ---- one row ---- */

typedef struct moments {
    double sum, sumsq, sumabs;
    float min, max;
} moments;

/* Eight lanes of a sum; the order of additions is the same for all widths of vectors. */
typedef double lanes_double __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t lanes_long __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef int32_t lanes_int __attribute__((vector_size(LANES * sizeof(int32_t))));
typedef float lanes_float __attribute__((vector_size(LANES * sizeof(float))));
#define LANE_SUM(v) (((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])))

CALM_VECTORIZE
static void row_moments(const float *restrict x, size_t n, moments *out)
{
    lanes_double sum = {0}, sumsq = {0}, sumabs = {0};
    lanes_float part, min = (lanes_float){0} + x[0], max = min;
    for (size_t j = 0; j < n; j += LANES) {
        if (n - j >= LANES) {
            memcpy(&part, x + j, sizeof part);
        } else {
            /* Zeros add nothing to the sums; min and max replace them, below. */
            part = (lanes_float){0};
            memcpy(&part, x + j, (n - j) * sizeof *x);
        }
        lanes_double v = __builtin_convertvector(part, lanes_double);
        sum += v;
        sumsq += v * v;
        /* |v| by clearing the sign bit. */
        sumabs += (lanes_double)((lanes_long)v & INT64_MAX);
        if (n - j < LANES)    /* min and max ignore the zeros beyond the row's end */
            for (size_t l = n - j; l < LANES; l++)
                part[l] = x[0];
        /* A comparison gives all ones or zeros in each lane: a selection without a branch. */
        lanes_int below = part < min, above = part > max;
        min = (lanes_float)((below & (lanes_int)part) | (~below & (lanes_int)min));
        max = (lanes_float)((above & (lanes_int)part) | (~above & (lanes_int)max));
    }
    for (int l = 1; l < LANES; l++) {
        min[0] = min[l] < min[0] ? min[l] : min[0];
        max[0] = max[l] > max[0] ? max[l] : max[0];
    }
    *out = (moments){LANE_SUM(sum), LANE_SUM(sumsq), LANE_SUM(sumabs), min[0], max[0]};
}

/* ---- medians: floats |x| compare as their bits do ---- */

/* Returns the bits of |x|. */
static inline int32_t abs_bits(const float *x)
{
    int32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits & 0x7fffffff;
}

static inline float from_bits(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns how many |x_j| are <= limit; n < 2^31. */
CALM_VECTORIZE
static int32_t count_upto(const float *restrict x, int32_t n, int32_t limit)
{
    int32_t count = 0;
    for (int32_t j = 0; j < n; j++)
        count += abs_bits(x + j) <= limit;
    return count;
}

/* As bits: the largest |x_j| <= limit and the two least above it; any number if there are none. */
typedef struct neighbours {
    int32_t below, above, second;
} neighbours;

static inline uint32_t lesser(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t greater(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Subtracting limit + 1 from the bits moves all values <= limit to the end of the unsigned range and keeps the
 * order. */
CALM_VECTORIZE
static neighbours find_neighbours(const float *restrict x, size_t n, int32_t limit)
{
    const uint32_t base = (uint32_t)limit + 1;
    /* Explicit lanes: the compiler does not vectorize a loop for the second least value. */
    uint32_t last[BLOCK], first[BLOCK], second[BLOCK];
    for (size_t l = 0; l < BLOCK; l++) {
        last[l] = 0;
        first[l] = second[l] = UINT32_MAX;
    }
    size_t j = 0;
    for (; j + BLOCK <= n; j += BLOCK)
        for (size_t l = 0; l < BLOCK; l++) {
            const uint32_t above = (uint32_t)abs_bits(x + j + l) - base;
            last[l] = greater(last[l], above);
            second[l] = lesser(second[l], greater(first[l], above));
            first[l] = lesser(first[l], above);
        }
    for (size_t l = 0; j < n; j++, l++) {
        const uint32_t above = (uint32_t)abs_bits(x + j) - base;
        last[l] = greater(last[l], above);
        second[l] = lesser(second[l], greater(first[l], above));
        first[l] = lesser(first[l], above);
    }
    for (size_t l = 1; l < BLOCK; l++) {
        last[0] = greater(last[0], last[l]);
        second[0] = lesser(lesser(second[0], second[l]), greater(first[0], first[l]));
        first[0] = lesser(first[0], first[l]);
    }
    return (neighbours){(int32_t)(last[0] + base), (int32_t)(first[0] + base), (int32_t)(second[0] + base)};
}

/* A bisection for the median as bits: n_low < rank - 1 elements are <= low, n_high > rank elements are <= high. */
typedef struct search {
    int32_t n, rank, low, high, n_low, n_high;
    int step;
} search;

/* Bits of a float: one exponent step, and infinity. */
enum { OCTAVE = 1 << 23, INFINITE = 0x7f800000 };

/* The share of elements within an octave around the median: 0.30 for |x| of a normal distribution, 0.24 for a Laplace
 * distribution. */
#define IN_OCTAVE 0.28

/* Returns where to count next, if `upto` elements are <= at: the median's place for evenly spread elements, or the
 * middle if that has not helped three times. */
static int32_t next_probe(const search *s, int32_t at, int32_t upto)
{
    const double wanted = s->rank - 0.5, between = (wanted - s->n_low) / (s->n_high - s->n_low);
    double next;
    if (s->low < 0 || s->high == INFINITE)    /* not bracketed yet: steps double */
        next = at + ldexp((wanted - upto) * OCTAVE / (IN_OCTAVE * s->n), s->step);
    else
        next = s->low + ((double)s->high - s->low) * (s->step % 4 == 3 ? 0.5 : between);
    return (int32_t)fmin(fmax(next, s->low + 1.0), s->high - 1.0);
}

/* Returns the median of |x| over n >= 1 elements; probe: a guess at the median, where the search begins. */
static double median_abs(const float *x, size_t count, float probe)
{
    const int32_t n = (int32_t)count;
    search s = {.n = n, .rank = (n + 1) / 2, .low = -1, .high = INFINITE, .n_high = n};
    for (int32_t at = abs_bits(&probe); s.high - s.low > 1; s.step++) {
        const int32_t upto = count_upto(x, n, at);
        /* The cut is next to the middle, so the median is among the neighbours. */
        if (upto == s.rank || upto == s.rank - 1) {
            const neighbours near = find_neighbours(x, count, at);
            const int32_t lower = upto == s.rank ? near.below : near.above,
                          upper = n % 2 ? lower : upto == s.rank ? near.above : near.second;
            return ((double)from_bits(lower) + (double)from_bits(upper)) / 2;
        }
        if (upto > s.rank) {
            s.high = at;
            s.n_high = upto;
        } else {
            s.low = at;
            s.n_low = upto;
        }
        at = next_probe(&s, at, upto);
    }
    /* low and high are neighbouring bits, so all elements between are equal, with both in the middle. */
    return (double)from_bits(s.high);
}

/* Returns the median of n >= 1 figures of tokens, which are not negative. */
static float median(const float *x, size_t n)
{
    return (float)median_abs(x, n, x[n / 2]);
}

/* ---- the largest |x| ---- */

/* Returns the first j >= from with |x_j| above `limit` (as bits; all are above -1); n: there is none. */
CALM_VECTORIZE
static size_t next_above(const float *restrict x, size_t from, size_t n, int32_t limit)
{
    for (; from + BLOCK <= n; from += BLOCK) {
        int32_t found = 0;
        for (int l = 0; l < BLOCK; l++)
            found |= abs_bits(x + from + l) > limit;
        if (found)
            break;
    }
    while (from < n && abs_bits(x + from) <= limit)
        from++;
    return from;
}

/* Returns the limit, as bits, that an element must exceed to be among the largest. */
static int32_t top_limit(const calm_actstat_acc *acc)
{
    return acc->n_top < CALM_ACT_TOP ? -1 : abs_bits(&acc->top[CALM_ACT_TOP - 1].value);
}

/* Inserts a peak behind all that are at least as large. */
static void insert_peak(calm_actstat_acc *acc, calm_actstat_peak peak)
{
    size_t at = acc->n_top < CALM_ACT_TOP ? acc->n_top++ : CALM_ACT_TOP - 1;
    for (; at > 0 && fabsf(acc->top[at - 1].value) < fabsf(peak.value); at--)
        acc->top[at] = acc->top[at - 1];
    acc->top[at] = peak;
}

/* Inserts the row's elements that are among the largest; the limit rises as the list fills. */
static void add_peaks(calm_actstat_acc *acc, const float *x, uint32_t window, uint32_t token)
{
    size_t n = acc->channels;
    for (size_t j = next_above(x, 0, n, top_limit(acc)); j < n; j = next_above(x, j + 1, n, top_limit(acc)))
        insert_peak(acc, (calm_actstat_peak){x[j], window, token, (uint32_t)j});
}

/* ---- accumulating ---- */

size_t calm_actstat_init_bytes(size_t capacity)
{
    return 3 * CALM_BYTES(float, capacity);
}

calm_status calm_actstat_init(calm_ctx *ctx, calm_arena *arena, size_t channels, size_t capacity, calm_actstat_acc *acc)
{
    *acc = (calm_actstat_acc){.channels = channels, .capacity = capacity, .min = INFINITY, .max = -INFINITY};
    if (channels == 0 || channels > INT32_MAX)
        return calm_fail(ctx, CALM_EARG, "activation statistics: %zu channels, expected 1 to %d", channels, INT32_MAX);
    CALM_TRY(CALM_NEW(ctx, arena, acc->peak, capacity));
    CALM_TRY(CALM_NEW(ctx, arena, acc->ratio, capacity));
    return CALM_NEW(ctx, arena, acc->crest, capacity);
}

/* Rows whose figures are computed before they are added, and rows of one task among them. */
enum { AT_ONCE = 2048, OF_TASK = 64 };

/* The figures of one row. */
typedef struct row_figures {
    double sum, sumsq, sumabs;
    float min, max, peak, ratio, crest;
    bool massive;
} row_figures;

typedef struct rows_task {
    const float *x;         /* [n, channels] */
    size_t n, channels;
    row_figures *figures;   /* [n]           */
    uint64_t *histogram, *zeros;
} rows_task;

/* Computes a row's figures; *share: median / mean of |x|, of the row before on entry and of this one on return. */
static void find_figures(const float *x, size_t channels, double *share, row_figures *out)
{
    moments row;
    row_moments(x, channels, &row);
    const double rms = sqrt(row.sumsq / (double)channels), peak = fmax(-(double)row.min, (double)row.max);
    *out = (row_figures){row.sum, row.sumsq, row.sumabs, row.min, row.max, .peak = (float)peak};
    if (!isfinite(row.sumsq))
        return;    /* not finite: reported when the row is added */
    const double mean = row.sumabs / (double)channels, median = median_abs(x, channels, (float)(*share * mean));
    *share = median > 0 ? median / mean : *share;
    /* A zero median gives an infinite ratio, which RATIO_MAX limits. */
    const double ratio = peak > 0 ? fmin(peak / median, RATIO_MAX) : 0;
    out->ratio = (float)ratio;
    out->crest = rms > 0 ? (float)(peak / rms) : 0;
    out->massive = peak > MASSIVE_PEAK && ratio > MASSIVE_RATIO;
}

/* The assumed share before the first row: between that of a normal distribution, 0.85, and of a Laplace distribution,
 * 0.69. */
#define FIRST_SHARE 0.75

/* Task: computes figures of rows, and adds to the histogram, whose counts may come in any order. */
static void look_at_rows(size_t index, void *user)
{
    const rows_task *task = user;
    const size_t first = index * OF_TASK, end = calm_size_min(first + OF_TASK, task->n);
    calm_histogram histogram = {0};
    double share = FIRST_SHARE;
    for (size_t t = first; t < end; t++) {
        const float *x = task->x + t * task->channels;
        find_figures(x, task->channels, &share, &task->figures[t]);
        if (isfinite(task->figures[t].sumsq))
            calm_histogram_add(&histogram, x, task->channels);
    }
    for (size_t k = 0; k <= CALM_ACT_BINS; k++) {
        const uint64_t n = histogram.count[0][k] + histogram.count[1][k];
        uint64_t *bin = k < CALM_ACT_BINS ? &task->histogram[k] : task->zeros;
        if (n)
#pragma omp atomic
            *bin += n;
    }
}

/* Adds one token to all sums but the histogram. */
static calm_status add_row(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, const row_figures *row,
                           calm_actstat_place at)
{
    /* A float's square is finite in double, so the sum is finite unless an element is not. */
    if (!isfinite(row->sumsq)) {
        size_t j = 0;
        while (isfinite(x[j]))
            j++;
        return calm_fail(ctx, CALM_ENUMERIC, "activation statistics: %f at window %u, token %u, channel %zu",
                         (double)x[j], at.window, at.token, j);
    }
    acc->sum += row->sum;
    acc->sumsq += row->sumsq;
    acc->sumabs += row->sumabs;
    acc->min = row->min < acc->min ? row->min : acc->min;
    acc->max = row->max > acc->max ? row->max : acc->max;
    acc->count += acc->channels;
    acc->peak[acc->n_tokens] = row->peak;
    acc->ratio[acc->n_tokens] = row->ratio;
    acc->crest[acc->n_tokens++] = row->crest;
    acc->n_massive += row->massive;
    /* Most rows have no element among the largest, as their peak shows. */
    if (abs_bits(&row->peak) > top_limit(acc))
        add_peaks(acc, x, at.window, at.token);
    return CALM_OK;
}

/* Fails if the arrays per token, which have a fixed capacity, are too small for n more tokens. */
static calm_status check_room(calm_ctx *ctx, const calm_actstat_acc *acc, size_t n)
{
    if (n > acc->capacity - acc->n_tokens)
        return calm_fail(ctx, CALM_EARG, "activation statistics: %zu + %zu tokens, room for %zu", acc->n_tokens, n,
                         acc->capacity);
    return CALM_OK;
}

/* Adds rows at `places`, or consecutive rows from `first` if that is NULL.  Threads share the expensive part; sums and
 * the largest |x| are then added row by row, in order. */
static calm_status add_rows(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, size_t n, calm_actstat_place first,
                            const calm_actstat_place *places)
{
    row_figures figures[AT_ONCE];
    CALM_TRY(check_room(ctx, acc, n));
    for (size_t begin = 0; begin < n; begin += AT_ONCE) {
        rows_task task = {x + begin * acc->channels, calm_size_min(n - begin, AT_ONCE), acc->channels, figures,
                          acc->histogram, &acc->zeros};
        calm_parallel_each(ctx, (task.n + OF_TASK - 1) / OF_TASK, look_at_rows, &task);
        for (size_t t = 0; t < task.n; t++) {
            const calm_actstat_place at = places ? places[begin + t]
                                                 : (calm_actstat_place){first.window,
                                                                        first.token + (uint32_t)(begin + t)};
            CALM_TRY(add_row(ctx, acc, task.x + t * acc->channels, &figures[t], at));
        }
    }
    return CALM_OK;
}

calm_status calm_actstat_add(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, size_t n, uint32_t window,
                         uint32_t first_token)
{
    return add_rows(ctx, acc, x, n, (calm_actstat_place){window, first_token}, NULL);
}

calm_status calm_actstat_add_places(calm_ctx *ctx, calm_actstat_acc *acc, const float *x, size_t n,
                                const calm_actstat_place *places)
{
    return add_rows(ctx, acc, x, n, (calm_actstat_place){0, 0}, places);
}

calm_status calm_actstat_merge(calm_ctx *ctx, calm_actstat_acc *into, const calm_actstat_acc *from)
{
    if (into->channels != from->channels)
        return calm_fail(ctx, CALM_EARG, "activation statistics: %zu channels, expected %zu", from->channels,
                         into->channels);
    CALM_TRY(check_room(ctx, into, from->n_tokens));
    into->count += from->count;
    into->zeros += from->zeros;
    into->sum += from->sum;
    into->sumsq += from->sumsq;
    into->sumabs += from->sumabs;
    into->min = from->min < into->min ? from->min : into->min;
    into->max = from->max > into->max ? from->max : into->max;
    for (size_t k = 0; k < CALM_ACT_BINS; k++)
        into->histogram[k] += from->histogram[k];
    /* Both lists fall, so the first peak that does not get in ends the loop.  Equal peaks stay behind, because their
     * window is later. */
    for (size_t i = 0; i < from->n_top && abs_bits(&from->top[i].value) > top_limit(into); i++)
        insert_peak(into, from->top[i]);
    memcpy(into->peak + into->n_tokens, from->peak, from->n_tokens * sizeof *from->peak);
    memcpy(into->ratio + into->n_tokens, from->ratio, from->n_tokens * sizeof *from->ratio);
    memcpy(into->crest + into->n_tokens, from->crest, from->n_tokens * sizeof *from->crest);
    into->n_tokens += from->n_tokens;
    into->n_massive += from->n_massive;
    return CALM_OK;
}

/* ---- summary ---- */

/* Returns the population standard deviation; rounding may make the variance slightly negative. */
static double deviation(double sum, double sumsq, double n)
{
    double mean = sum / n;
    return sqrt(fmax(0, sumsq / n - mean * mean));
}

/* Computes the figures over tokens.  The deviation needs a second pass, because ratios span nine orders of
 * magnitude. */
static void summarize_tokens(const calm_actstat_acc *acc, calm_actstat_summary *out)
{
    double sum = 0, sumsq = 0, n = (double)acc->n_tokens;
    for (size_t t = 0; t < acc->n_tokens; t++) {
        sum += acc->ratio[t];
        out->ratio_max = fmax(out->ratio_max, acc->ratio[t]);
        out->crest_max = fmax(out->crest_max, acc->crest[t]);
    }
    out->ratio_mean = sum / n;
    for (size_t t = 0; t < acc->n_tokens; t++)
        sumsq += (acc->ratio[t] - out->ratio_mean) * (acc->ratio[t] - out->ratio_mean);
    out->ratio_std = sqrt(sumsq / n);
    out->peak_median = median(acc->peak, acc->n_tokens);
    out->ratio_median = median(acc->ratio, acc->n_tokens);
    out->crest_median = median(acc->crest, acc->n_tokens);
}

void calm_actstat_summarize(const calm_actstat_acc *acc, calm_actstat_summary *out)
{
    double n = (double)acc->count;
    *out = (calm_actstat_summary){.count = acc->count, .zeros = acc->zeros, .n_tokens = acc->n_tokens,
                              .n_massive = acc->n_massive, .channels = acc->channels};
    if (acc->count == 0)
        return;
    out->mean = acc->sum / n;
    out->std = deviation(acc->sum, acc->sumsq, n);
    out->mean_abs = acc->sumabs / n;
    out->rms = sqrt(acc->sumsq / n);
    out->min = acc->min;
    out->max = acc->max;
    out->max_abs = fmax(-out->min, out->max);
    for (size_t i = 0; i < CALM_ACT_QUANTILES; i++)
        out->quantile[i] = calm_actstat_quantile(acc->histogram, quantiles[i]);
    summarize_tokens(acc, out);
}
