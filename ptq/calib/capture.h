/* Capture: runs a sublayer or an expert over the calibration windows, and collects statistics of its jobs' inputs and
 * the float outputs that candidates are scored against.
 *
 *   N calibration rows (tokens), without those of held-out windows   I inputs of a job   D hidden size
 *   n rows of the scoring windows (the first windows, or the first tokens of each)
 *
 * An expert's output is multiplied by a number per token, its router weight or the shared expert's gate, and added to
 * x.  Errors count by the square of that number, so X^T X, sums and kept rows of an expert use rows times that number.
 * Input rows may have a further factor (options->factors), outputs have none.  Maxima and activation statistics use the
 * unweighted rows.
 *
 * Sums have one order: rows within chunks of fixed size, chunks within windows, windows by number.  An expert's rows
 * are the tokens routed to it, in that order, in separate chunks.  Neither the number of threads nor the windows per
 * group change a bit. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/times.h"
#include "ptq/calib/activation.h"
#include "ptq/calib/channel_sums.h"
#include "ptq/layers/moe.h"
#include "ptq/model/forward.h"
#include "ptq/quant/stats.h"

/* The default limit for the job inputs of one group of windows. */
#define CALM_CAPTURE_GROUP_BYTES ((size_t)48 * 1024 * 1024)

typedef struct calm_capture_options {
    unsigned jobs;            /* bit k: collect the statistics of calm_job_kind k */
    unsigned inputs;          /* bit k: keep the scoring rows of job k's input, without statistics */
    bool grams;               /* collect X^T X of those jobs                                         */
    bool samples;             /* keep sampled rows of those jobs' inputs (calm_sample_count) */
    bool activations;         /* collect activation statistics of every hook point */
    bool unweighted;          /* experts: do not multiply rows by router weights, as llama.cpp's imatrix */
    size_t score_windows;     /* keep inputs and outputs of this many first windows */
    size_t score_tokens;      /* only the first tokens of each of these windows; 0: all */
    size_t held_windows;      /* leave this many first windows out of the statistics */
    bool stay;                /* leave the batch's hidden states unchanged: they will be run again */
    size_t group_bytes;       /* limit for job inputs of a group; 0: the default.  Changes no result. */
    calm_batch *exact;        /* the same windows behind float blocks, run in lockstep; NULL: none.  Not for experts. */
    float *const *factors;    /* [CALM_N_JOBS] of [rows of the batch]: factors of a job's input rows, in addition to
                               * router weights; a NULL array: all 1 */
    bool crosses;             /* with `exact`: collect X^T Y of those jobs, Y: their inputs in `exact` */
    calm_times *times;        /* stage times of the caller, who is in stage forward: Gram products of whole windows
                               * count as CALM_TIME_GRAM, loading of experts as CALM_TIME_READ; NULL: not counted */
} calm_capture_options;

#define CALM_CAPTURE_ALL_JOBS ((1u << CALM_N_JOBS) - 1)

/* Returns how many of N rows of width I are kept for fits: one of every k neighbouring rows, k = max(1, floor(N /
 * max(8192, 8 I))), so that a fit has at least 8 rows per input if N allows.  The row within each group of k is drawn
 * at random (fixed seed), so that no position in a window is preferred. */
size_t calm_sample_count(size_t rows, size_t width);

/* Returns the most rows kept for any number of rows up to N: fewer rows may keep more, because k falls with them. */
size_t calm_sample_most(size_t rows, size_t width);

/* Statistics of the input of one job. */
typedef struct calm_job_capture {
    bool used;                     /* the job is in this sublayer and in options->jobs */
    size_t width;                  /* I */
    calm_stats stats;              /* over all N rows */
    float *score_input;            /* [n, I] or NULL                            */
} calm_job_capture;

typedef struct calm_capture {
    calm_sublayer sublayer;
    long expert;                                 /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or its number              */
    const calm_weight *weight;                   /* [CALM_N_ROLES] float weights, borrowed                        */
    size_t rows, tokens;                         /* N; N with the held-out windows */
    calm_job_capture job[CALM_N_JOBS];
    size_t score_rows;                           /* n                                                             */
    float *score_output;                         /* [n, D] float output before the residual; with `exact`: from there */
    float *score_carried;                        /* [n, C] for a block with shared keys (calm_span); else NULL */
    const float *score_weight;                   /* [n] experts: factors of their outputs; else NULL */
    calm_actstat_acc *activations[CALM_N_HOOKS]; /* NULL: the sublayer has no such hook point */
    calm_actstat_acc **of_text[CALM_N_HOOKS];    /* [n_texts] per text; NULL: one text, or an expert */
} calm_capture;

/* Runs one sublayer of a block over the whole batch, and over options->exact, in place, and collects statistics into
 * ctx->out.  expert: CALM_NO_EXPERT for attention and a dense MLP; CALM_SHARED_EXPERT for only the shared expert of a
 * mixture (with options->stay). */
calm_status calm_capture_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, long expert,
                                  const calm_rope *rope, calm_batch *batch, const calm_capture_options *options,
                                  calm_capture *out);

/* Runs experts first .. first + n - 1 of a mixture over the tokens routed to them, adds their outputs to `sum`, and
 * collects statistics into out [n].  Statistics and the experts' weights, which candidates read, are in ctx->out. */
calm_status calm_capture_experts(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_routing *routing,
                                 size_t first, size_t n, const calm_capture_options *options, calm_moe_sum *sum,
                                 calm_capture *out);

/* Activation statistics at the hook points of a whole mixture: router inputs and logits during calm_moe_route, the
 * sublayer's output and the block's output during calm_moe_end.  Give the observer to these two functions; NULL: no
 * statistics. */
typedef struct calm_moe_watch calm_moe_watch;
calm_status calm_moe_watch_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch,
                                 calm_moe_watch **out);
calm_observer calm_moe_watch_observer(calm_moe_watch *watch);
/* Merges the windows, in order, into out->activations (in ctx->out). */
calm_status calm_moe_watch_end(calm_ctx *ctx, calm_moe_watch *watch, calm_capture *out);

/* Computes statistics of rows outside the blocks (embedding output, final norm) from the batch's hidden states; of_text
 * is as in calm_capture. */
calm_status calm_capture_rows(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc **out,
                              calm_actstat_acc ***of_text);

/* Converts in place lengths |g_t| [n] of gradients to factors of rows sqrt(w_t): w_t = |g_t|, clipped to a factor of 32
 * around the mean, then divided by the mean, so that X^T X keeps the magnitude that damping expects.  If all lengths
 * are 0, all factors are 1.  Returns false, with nothing changed, if a length is not finite. */
bool calm_capture_factors(float *lengths, size_t n);

/* Computes factors out [begin[n] - begin[0]] for the rows of n windows, which begin at begin [n + 1]: the first token
 * of a window of T tokens has weight T / 16, clipped to 1 .. 32; the others have weight 1. */
void calm_capture_first_factors(const size_t *begin, size_t n, float *out);

/* ---- memory ---- */

/* The sizes that determine a capture's memory.  For experts that are captured together, rows and score_rows are the
 * tokens of each with even routing, most_rows the tokens of the expert with the most. */
typedef struct calm_capture_shape {
    const calm_config *config;    /* configuration of the block (calm_config_at) */
    calm_sublayer sublayer;
    long expert;
    size_t rows, score_rows;      /* rows with the held-out ones; n */
    size_t held_rows;             /* held-out rows, the first of `rows` */
    size_t most_rows;             /* only for experts */
    size_t n_windows, longest;    /* windows of the batch; tokens of its longest window */
    size_t n_texts;               /* number of texts of the batch's windows */
    bool in_file;                 /* hidden states are in a file, so that each worker has a copy */
    calm_operands operands;       /* of the products */
} calm_capture_shape;

/* Returns the bytes of ctx->out that calm_capture_sublayer allocates; ignores score_windows and score_tokens. */
size_t calm_capture_bytes(const calm_capture_shape *shape, const calm_capture_options *options);

/* Returns the peak bytes of ctx->scratch in calm_capture_sublayer, of all workers together, if all windows are as long
 * as the longest. */
size_t calm_capture_sublayer_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                           size_t n_threads);

/* Return the same for n experts that are captured together, without their weights.  The shape is that of an even share:
 * some experts may have more rows if others have fewer. */
size_t calm_capture_experts_bytes(const calm_capture_shape *shape, const calm_capture_options *options, size_t n);
size_t calm_capture_experts_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                          size_t n, size_t n_threads);

/* Returns the bytes of ctx->out that calm_moe_watch_begin and calm_moe_watch_end allocate together, if all windows are
 * as long as the longest. */
size_t calm_moe_watch_bytes(size_t rows, size_t n_windows, size_t longest, size_t n_texts);

/* Returns the peak bytes of ctx->scratch in calm_capture_rows. */
size_t calm_capture_rows_scratch_bytes(size_t n_windows, size_t longest);

/* ---- shared by the files of this folder ---- */

/* Computes out [n, width] = x [n, width] with row t times weight[t]; weight NULL: a copy. */
void calm_job_rows_weigh(const float *x, size_t n, size_t width, const float *weight, float *out);

/* Sets *out [n] to the factors of rows of a job's input: weight [n] (NULL: 1) times the options' factors of the batch's
 * rows first .. first + n - 1, or rows[i] if `rows` is given.  *out is NULL (all 1), one of the two arrays, or in
 * ctx->scratch. */
calm_status calm_job_row_factors(calm_ctx *ctx, const calm_capture_options *options, calm_job_kind kind,
                                 const float *weight, size_t first, const uint32_t *rows, size_t n, const float **out);

/* The sums of a job while its capture runs. */
typedef struct calm_job_sums {
    double *gram, *cross;          /* [I, I] or NULL                                */
    float *samples;                /* [calm_sample_count(N, I), I] or NULL          */
    size_t rows, step;             /* with samples: N; one row of every `step` is kept */
    calm_channel_sums total;
} calm_job_sums;

/* Copies the sampled rows of x [n, width], which are rows first .. of the N, times weight [n] (NULL: 1), to
 * sums->samples; does nothing if that is NULL. */
void calm_job_samples_keep(const calm_job_sums *sums, size_t first, const float *x, size_t n, size_t width,
                           const float *weight);

/* Allocates the buffers of the jobs in `options` and of the scoring rows, in ctx->out; sums [CALM_N_JOBS].  The caller
 * has set out->sublayer, expert, rows and score_rows. */
calm_status calm_job_captures_new(calm_ctx *ctx, const calm_config *config, const calm_capture_options *options,
                                  calm_capture *out, calm_job_sums *sums);

/* Fills the statistics of the jobs from their finished sums; mirrors the Gram matrices' upper triangles. */
void calm_job_captures_finish(calm_ctx *ctx, calm_capture *out, const calm_job_sums *sums);

/* _new allocates accumulators for rows of `width` values, one per window of the batch (at least one window).  _merge
 * merges them in order into *out and, per text, into *of_text (NULL for one text), both in ctx->out. */
calm_status calm_actstat_parts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out);
calm_status calm_actstat_parts_merge(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc *const *parts,
                                 calm_actstat_acc **out, calm_actstat_acc ***of_text);

/* _new allocates an empty accumulator per text of the batch's windows, in `arena`; *out NULL: there is one text.
 * _bytes returns the most bytes for n_texts with `rows` tokens together. */
calm_status calm_actstat_texts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out);
size_t calm_actstat_texts_bytes(size_t n_texts, size_t rows);

/* Adds the accumulator of window `i` of the batch to that of its text; of_text NULL: there is one text. */
calm_status calm_actstat_texts_add(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_actstat_acc *part,
                                   calm_actstat_acc *const *of_text);

/* _new allocates an empty accumulator in `arena`; _bytes returns its size. */
calm_status calm_actstat_new(calm_ctx *ctx, calm_arena *arena, size_t width, size_t tokens, calm_actstat_acc **out);
size_t calm_actstat_new_bytes(size_t tokens);

/* Returns how many values the hook points of a block observe per token; in a mixture, with the hook points of the
 * experts that the token is routed to. */
size_t calm_capture_token_values(const calm_config *model, size_t block);

/* Return the bytes of calm_job_captures_new, and of calm_actstat_parts_new for windows of equal length. */
size_t calm_job_captures_bytes(const calm_capture_shape *shape, const calm_capture_options *options);
size_t calm_actstat_parts_bytes(size_t n_windows, size_t tokens);
