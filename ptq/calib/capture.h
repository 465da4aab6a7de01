/* Capture: runs a sublayer or an expert over the calibration windows, and collects statistics of its jobs' inputs and
 * the float outputs that candidates are scored against.
 *
 *   N calibration rows, without those of windows that are held out   I inputs of a job   D hidden size
 *   n rows of the scoring windows (the first ones, or the beginning of each)
 *
 * An expert's output is added to x times a number of each token's, its router weight or the shared expert's gate: so
 * errors count by its square, and X^T X, sums and kept rows of an expert are of rows times that number.  Rows may have
 * another such factor, which outputs have not (options->factors).  Maxima and activation statistics are of the rows as
 * they are.
 *
 * Sums have one order: rows within chunks of fixed size, chunks within windows, windows by number; an expert's rows are
 * the tokens routed to it, in that order, in their own chunks.  Neither the number of threads nor what is handled
 * together changes a bit. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/times.h"
#include "ptq/calib/activation.h"
#include "ptq/calib/channel_sums.h"
#include "ptq/model/forward.h"
#include "ptq/model/moe.h"
#include "ptq/quant/stats.h"

/* Job inputs of the windows handled together, unless the options say otherwise. */
#define CALM_CAPTURE_GROUP_BYTES ((size_t)48 * 1024 * 1024)

typedef struct calm_capture_options {
    unsigned jobs;            /* bit k: collect what calm_job_kind k needs                           */
    unsigned inputs;          /* bit k: keep the scoring rows of that job's input, though nothing else     */
    bool grams;               /* collect X^T X of those jobs                                         */
    bool samples;             /* keep rows of those jobs' inputs (calm_sample_count)                 */
    bool activations;         /* collect the statistics of every hook point                          */
    bool unweighted;          /* experts: rows as they are, as llama.cpp's imatrix has them          */
    size_t score_windows;     /* keep inputs and outputs of this many first windows                    */
    size_t score_tokens;      /* of each of these its first tokens alone; 0: all                     */
    size_t held_windows;      /* leave this many first windows out of what jobs are fitted to          */
    bool stay;                /* leave the batch's hidden rows as they are: they will be run again   */
    size_t group_bytes;       /* job inputs held at once; 0: the default.  Changes no result.        */
    calm_batch *exact;        /* the same windows behind float blocks, run in lockstep; or NULL.  No expert has it. */
    float *const *factors;    /* [CALM_N_JOBS] of [rows of the batch]: what rows of a job's input are multiplied
                               * by, next to the number of an expert's; one NULL or all: nothing      */
    bool crosses;             /* with it: collect X^T Y of those jobs, Y their inputs there          */
    calm_times *times;        /* of the caller, in its stage forward: products of Gram matrices of all rows are
                               * counted as CALM_TIME_GRAM, loading of experts as CALM_TIME_READ; NULL: not counted */
} calm_capture_options;

#define CALM_CAPTURE_ALL_JOBS ((1u << CALM_N_JOBS) - 1)

/* Of N rows of width I one of every k consecutive ones is kept, k = max(1, floor(N / max(8192, 8 I))): a fit has at
 * least 8 rows per input wherever N has: how many that are.  Which of the k is drawn for each k by their number, so
 * that no place in a window is kept more often than another. */
size_t calm_sample_count(size_t rows, size_t width);

/* The most rows kept of at most N rows: of fewer rows more may be kept, since k falls with them. */
size_t calm_sample_most(size_t rows, size_t width);

/* What was seen at the input of one job. */
typedef struct calm_job_capture {
    bool used;                     /* the job belongs here and is in `jobs`     */
    size_t width;                  /* I                                         */
    calm_stats stats;              /* of all N rows                             */
    float *score_input;            /* [n, I] or NULL                            */
} calm_job_capture;

typedef struct calm_capture {
    calm_sublayer sublayer;
    long expert;                                 /* CALM_NO_EXPERT, CALM_SHARED_EXPERT or its number              */
    const calm_weight *weight;                   /* [CALM_N_ROLES] float weights, borrowed                        */
    size_t rows, tokens;                         /* N; the same with those of the windows that are held out       */
    calm_job_capture job[CALM_N_JOBS];
    size_t score_rows;                           /* n                                                             */
    float *score_output;                         /* [n, D] as it is added to x; of options->exact where there is one */
    float *score_carried;                        /* [n, C] of a block that shares keys (calm_span), or NULL         */
    const float *score_weight;                   /* [n] of experts: what their outputs are multiplied by; or NULL */
    calm_actstat_acc *activations[CALM_N_HOOKS];     /* NULL where there is no such point                             */
    calm_actstat_acc **of_text[CALM_N_HOOKS];    /* [n_texts] of each text alone; NULL: there is one, or an expert's  */
} calm_capture;

/* Run one sublayer of a block over the whole batch, and over options->exact, in place and collect into ctx->out.
 * `expert`: CALM_NO_EXPERT for attention and a dense MLP, CALM_SHARED_EXPERT for the shared expert of a mixture alone
 * (with options->stay). */
calm_status calm_capture_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, long expert,
                                  const calm_rope *rope, calm_batch *batch, const calm_capture_options *options,
                                  calm_capture *out);

/* Run experts first .. first + n - 1 of a mixture over the tokens routed to them, add their outputs to `sum`, and
 * collect into ctx->out; out [n].  Their weights stay in ctx->out too, where candidates read them. */
calm_status calm_capture_experts(calm_ctx *ctx, const calm_block *block, calm_batch *batch, const calm_routing *routing,
                                 size_t first, size_t n, const calm_capture_options *options, calm_moe_sum *sum,
                                 calm_capture *out);

/* Activation statistics of hook points that belong to a sparse block as a whole: what the router reads and its logits
 * while `route` runs, what the sublayer adds and the block's output while it ends.  The observer is for calm_moe_route
 * and calm_moe_end. */
typedef struct calm_moe_watch calm_moe_watch;
calm_status calm_moe_watch_begin(calm_ctx *ctx, const calm_config *config, const calm_batch *batch,
                                 calm_moe_watch **out);
calm_observer calm_moe_watch_observer(calm_moe_watch *watch);
/* Merge the windows, in order, into out->activations (in ctx->out). */
calm_status calm_moe_watch_end(calm_ctx *ctx, calm_moe_watch *watch, calm_capture *out);

/* Statistics of rows outside the blocks (embedding output, final norm): the batch's hidden rows as they are; of_text as
 * calm_capture has it. */
calm_status calm_capture_rows(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc **out,
                              calm_actstat_acc ***of_text);

/* In place from lengths |g_t| [n] of gradients to factors of rows, sqrt(w_t): w_t = |g_t|, within a factor of 32 of the
 * mean, divided by what their mean is then, so that X^T X has the size that damping expects.  All lengths 0: 1.
 * Returns false, with nothing changed, if one is not finite. */
bool calm_capture_factors(float *lengths, size_t n);

/* Factors out [begin[n] - begin[0]] of the rows of n windows, which begin at begin [n + 1]: the first token of a window
 * of T weighs T / 16, but 1 to 32, others 1. */
void calm_capture_first_factors(const size_t *begin, size_t n, float *out);

/* ---- memory ---- */

/* What a capture's memory follows from.  Of experts that are captured together `rows` and `score_rows` are the
 * tokens that are routed to each, `most_rows` those of the one that gets the most. */
typedef struct calm_capture_shape {
    const calm_config *config;    /* of the block (calm_config_at) */
    calm_sublayer sublayer;
    long expert;
    size_t rows, score_rows;      /* with those held out; n                               */
    size_t held_rows;             /* held out of `rows`, the first ones                   */
    size_t most_rows;             /* experts alone                                        */
    size_t n_windows, longest;    /* of the batch; tokens of its longest window           */
    size_t n_texts;               /* of the batch's windows                               */
    bool in_file;                 /* hidden rows are, so that each worker has a copy      */
} calm_capture_shape;

/* What calm_capture_sublayer leaves in ctx->out.  score_windows and score_tokens of the options do not count here. */
size_t calm_capture_bytes(const calm_capture_shape *shape, const calm_capture_options *options);

/* The most that calm_capture_sublayer holds of ctx->scratch, its workers together, with all windows as long as the
 * longest. */
size_t calm_capture_sublayer_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                           size_t n_threads);

/* The same for n experts that are captured together, without their weights.  The shape is that of an even share: some
 * may have more rows where others have fewer. */
size_t calm_capture_experts_bytes(const calm_capture_shape *shape, const calm_capture_options *options, size_t n);
size_t calm_capture_experts_scratch_bytes(const calm_capture_shape *shape, const calm_capture_options *options,
                                          size_t n, size_t n_threads);

/* What calm_moe_watch_begin and calm_moe_watch_end leave in ctx->out together, with all windows as long as the
 * longest. */
size_t calm_moe_watch_bytes(size_t rows, size_t n_windows, size_t longest, size_t n_texts);

/* What calm_capture_rows holds of ctx->scratch. */
size_t calm_capture_rows_scratch_bytes(size_t n_windows, size_t longest);

/* ---- shared by the files of this folder ---- */

/* out [n, width] = the rows x [n, width], times weight [n] unless that is NULL. */
void calm_job_rows_weigh(const float *x, size_t n, size_t width, const float *weight, float *out);

/* *out [n]: what rows of a job's input are multiplied by, `weight` [n] (NULL: 1) times the options' factor of rows
 * first .. of the batch, or rows[i] of it where `rows` is given.  NULL, one of the two, or in ctx->scratch. */
calm_status calm_job_row_factors(calm_ctx *ctx, const calm_capture_options *options, calm_job_kind kind,
                                 const float *weight, size_t first, const uint32_t *rows, size_t n, const float **out);

/* What the jobs of a capture need while it runs. */
typedef struct calm_job_sums {
    double *gram, *cross;          /* [I, I] or NULL                                */
    float *samples;                /* [calm_sample_count(N, I), I] or NULL          */
    size_t rows, step;             /* N; one of every `step` rows is kept: with samples */
    calm_channel_sums total;
} calm_job_sums;

/* Keep what is to be kept of x [n, width], rows `first` .. of the N, times weight [n] unless that is NULL; does nothing
 * without samples. */
void calm_job_samples_keep(const calm_job_sums *sums, size_t first, const float *x, size_t n, size_t width,
                           const float *weight);

/* Buffers of the jobs that options ask for, and of the score rows, in ctx->out; out->sublayer, expert, rows and
 * score_rows are set.  `sums` [CALM_N_JOBS]. */
calm_status calm_job_captures_new(calm_ctx *ctx, const calm_config *config, const calm_capture_options *options,
                                  calm_capture *out, calm_job_sums *sums);

/* The statistics of the jobs from their finished sums; Gram matrices are made symmetric. */
void calm_job_captures_finish(calm_ctx *ctx, calm_capture *out, const calm_job_sums *sums);

/* Accumulators of rows of `width` values, one per window of the batch (at least one window); and all of them merged in
 * order into *out, and of each text into *of_text (NULL for one text), in ctx->out. */
calm_status calm_actstat_parts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out);
calm_status calm_actstat_parts_merge(calm_ctx *ctx, const calm_batch *batch, calm_actstat_acc *const *parts,
                                 calm_actstat_acc **out, calm_actstat_acc ***of_text);

/* Empty accumulators for each text of the batch's windows, in `arena`; *out NULL: there is one text.  At most this many
 * bytes for n_texts that have `rows` tokens together. */
calm_status calm_actstat_texts_new(calm_ctx *ctx, calm_arena *arena, const calm_batch *batch, size_t width,
                                   calm_actstat_acc ***out);
size_t calm_actstat_texts_bytes(size_t n_texts, size_t rows);

/* Add window `i` of the batch to its text's; of_text NULL: there is one text. */
calm_status calm_actstat_texts_add(calm_ctx *ctx, const calm_batch *batch, size_t i, const calm_actstat_acc *part,
                                   calm_actstat_acc *const *of_text);

/* An empty accumulator in `arena`, and what it takes of that. */
calm_status calm_actstat_new(calm_ctx *ctx, calm_arena *arena, size_t width, size_t tokens, calm_actstat_acc **out);
size_t calm_actstat_new_bytes(size_t tokens);

/* Values that are observed of one token at the hook points of a block: of a mixture, at those of the experts that it is
 * routed to. */
size_t calm_capture_token_values(const calm_config *model, size_t block);

/* What calm_job_captures_new takes; calm_actstat_parts_new, for windows of the same length. */
size_t calm_job_captures_bytes(const calm_capture_shape *shape, const calm_capture_options *options);
size_t calm_actstat_parts_bytes(size_t n_windows, size_t tokens);
