/* Inputs of a run: the recipe, the float model, the candidates, and the store that has their blobs.  Plans are made of
 * them.
 *
 * A run opens its inputs from a recipe (run.c); a reassembly opens them from the rows of a stored run
 * (reassemble.c). */
#pragma once

#include "ptq/data/windows.h"
#include "ptq/export/export.h"
#include "ptq/io/imatrix.h"
#include "ptq/model/model.h"
#include "ptq/state/result.h"
#include "ptq/tokenizer/tokenizer.h"

/* The candidate of one pool entry on one job, with its row of the store. */
typedef struct calm_candidate {
    char key[CALM_SHA256_HEX];
    int64_t id;                                /* row of the store; 0: not stored */
    char blob[CALM_SHA256_HEX];                /* blob of the codes; empty if it failed */
    size_t blob_bytes;                         /* 0: it failed, or the blob's size was not read */
    const char *failure;                       /* NULL: it succeeded */
    bool skipped;                              /* it was not tried; `failure` says why */
    calm_score_set scores;
    double bits_per_weight;
    double seconds;                            /* time to compute it; 0: unknown */
    bool todo;                                 /* this run must compute it */
    bool dropped, wanted;                      /* the store has deleted its codes; a plan needs them */
} calm_candidate;

/* A learned block of the store: its jobs, and its norms and biases (in the blob). */
typedef struct calm_learned {
    calm_candidate *jobs;                      /* [jobs of the block] in the layout's order */
    char key[CALM_SHA256_HEX], blob[CALM_SHA256_HEX];
    size_t blob_bytes;
} calm_learned;

typedef struct calm_inputs {
    const calm_recipe *recipe;
    calm_model *model;                         /* float, rotated if the recipe says so */
    size_t float_bytes;                        /* bytes of the model as given */
    bool only_look;                            /* check the rotation, but do not rotate: it takes time and disk */
    calm_export_place rotated;                 /* directory of the rotated model; temporary NULL: none */
    calm_tokenizer *tokenizer;                 /* NULL: calm cannot read it */
    calm_store *store;
    size_t first_block, end_block;             /* blocks to quantize: first .. end - 1 */
    size_t *listed, n_listed;                  /* jobs of those blocks without `keep_float` jobs; NULL: all */
    size_t *number;                            /* [n_jobs] index of a job in `listed`, or CALM_STAYS_FLOAT; or NULL */
    calm_imatrix *imatrix;                     /* mean squares of inputs, instead of the calibration's; NULL: none */
    calm_windows calib, guard;
    calm_windows guard_all;                    /* `guard` and the further windows for ties */
    size_t score_tokens;                       /* score only the first tokens of each window; 0: all (work.h) */
    calm_windows scoring;                      /* the scoring windows with only those tokens */
    calm_candidate *candidates;                /* [n_jobs][n_pool]                    */
} calm_inputs;

/* How often the guard doubles its windows while plans differ by less than their error (guard_extend.c).  Twice: four
 * times the windows halve the error, and for float model, hybrid and one uniform run cost as many forward passes as the
 * first windows do with a pool of seven; a third time would cost more than these two. */
#define CALM_GUARD_DOUBLINGS ((size_t)2)

/* The choice of a job that stays float. */
#define CALM_STAYS_FLOAT SIZE_MAX

/* The failure text of candidates of jobs that `keep_float` names. */
#define CALM_KEPT_FLOAT "not tried: the job stays float (keep_float)"

/* Returns the candidate of a pool entry on a job of the layout. */
calm_candidate *calm_candidate_at(const calm_inputs *in, size_t job, size_t entry);

/* Returns the range first .. end - 1 of the layout's jobs in the recipe's blocks.  All other jobs stay float, and so do
 * the jobs in the range that `keep_float` names. */
void calm_inputs_jobs(const calm_inputs *in, size_t *first, size_t *end);

/* Finds the jobs in the recipe's blocks that `keep_float` names: by a module's name in the checkpoint, or by "re:" and
 * a pattern that matches at the beginning, as Python's re.match does.  Whole jobs stay float; with one expert all
 * experts of its block stay float (in formats whose readers have projections apart: of its projection), because engines
 * fuse them; a note says so.
 * CALM_EARG: a word names no module (the message has the nearest name), or a class; it names a part of a unit; no job
 * is left.  CALM_EFORMAT: an invalid pattern. */
calm_status calm_inputs_keep_float(calm_ctx *ctx, calm_inputs *in);

/* _keeps returns true if `keep_float` names the job.  The others number the jobs to quantize: _count returns how many
 * there are, _job the layout's number of the index-th, _index the index of a job of the layout. */
bool calm_inputs_keeps(const calm_inputs *in, size_t job);
size_t calm_inputs_count(const calm_inputs *in);
size_t calm_inputs_job(const calm_inputs *in, size_t index);
size_t calm_inputs_index(const calm_inputs *in, size_t job);

/* Returns true if the run passes the calibration windows through the model.  It does not if candidates need only
 * weights and no scores; a mixture always needs the pass, because routing shows which experts see tokens. */
bool calm_inputs_read_rows(const calm_inputs *in);

/* Returns true if the model is an encoder. */
bool calm_inputs_encode(const calm_inputs *in);

/* Logs a note for each chain with a bias correction, if the model has no biases: the step is skipped.  Named algorithms
 * skip it without a note. */
void calm_inputs_note_biases(calm_ctx *ctx, const calm_inputs *in);

/* Checks that the open model can be rotated as the recipe says, and gives it the Hadamard matrices that the recipe asks
 * for.  Fails with CALM_EUNSUPPORTED as calm_rotate_allow does. */
calm_status calm_inputs_allow_rotation(calm_ctx *ctx, calm_inputs *in);

/* Fails with CALM_EUNSUPPORTED for `calibration.weight` gradient with an encoder, which predicts no tokens. */
calm_status calm_inputs_check_weight(calm_ctx *ctx, const calm_inputs *in);

/* Fails with CALM_EUNSUPPORTED if a sublayer of the model has no backward pass for learning. */
calm_status calm_inputs_check_learn(calm_ctx *ctx, const calm_inputs *in);

/* Checks `calibration.prefix` asymmetric.  CALM_EUNSUPPORTED: the model is a mixture, whose routers may send a token to
 * another expert behind quantized blocks.  CALM_EARG: a chain fits to float and quantized inputs, and the windows have
 * too few rows for an input. */
calm_status calm_inputs_check_prefix(calm_ctx *ctx, const calm_inputs *in);

/* Opens the recipe's model as given, with the layout for the recipe's schemes (ptq/arch/layout.h). */
calm_status calm_inputs_open_given(calm_ctx *ctx, calm_inputs *in);

/* Opens the recipe's importance matrix, if there is one, and logs which quantized jobs it has no values for.  Fails as
 * calm_imatrix_open and calm_imatrix_means do.  CALM_EFORMAT: it has no entry of this model.  CALM_EUNSUPPORTED: calm
 * does not know llama.cpp's tensor names for the family. */
calm_status calm_inputs_open_imatrix(calm_ctx *ctx, calm_inputs *in);

/* Reads the mean squares [I] of a job's input from the open importance matrix; *any false: it has none. */
calm_status calm_inputs_column_weights(calm_ctx *ctx, const calm_inputs *in, size_t job, double *squares, bool *any);

/* Opens the recipe's model.  With `rotate`, writes the rotated model next to the store and opens that, or only checks
 * the rotation if in->only_look.  CALM_EUNSUPPORTED: the family cannot be rotated (ptq/export/rotate.h). */
calm_status calm_inputs_open_model(calm_ctx *ctx, calm_inputs *in);

/* Returns how fits weight calibration rows: the recipe's value, with `auto` resolved by the windows. */
calm_row_weight calm_inputs_row_weight(const calm_inputs *in);
/* Logs what `auto` became, unless that is no weights. */
void calm_inputs_note_row_weight(calm_ctx *ctx, const calm_inputs *in);

/* Copies facts about the inputs to the result: layout, jobs, kind of model, windows. */
void calm_inputs_describe(const calm_inputs *in, calm_result *out);

/* Opens a written checkpoint at `place` to measure it.  Activations are scaled by the rule of the recipe's schemes,
 * which a checkpoint does not store.  Fails as calm_model_open does. */
calm_status calm_inputs_open_written(calm_ctx *ctx, const calm_recipe *recipe, const char *place, calm_model **out);

/* Closes model, tokenizer and store, and removes the rotated model. */
void calm_inputs_close(calm_inputs *in);

/* ---- texts ---- */

/* Opens the tokenizer of the recipe's model.  With `calibration.tokens`, a tokenizer that calm cannot read is no error:
 * in->tokenizer is NULL then, and reports without words and no evaluation are the cost. */
calm_status calm_inputs_open_tokenizer(calm_ctx *ctx, calm_inputs *in);

/* Reads the recipe's calibration text into ctx->out: first in->calib, then in->guard_all, in one pass, so that they do
 * not overlap.  in->guard are the first windows of guard_all, whether or not the text has more.  Of several texts each
 * gives an equal share of both, and their windows alternate (calm_windows_join).  Needs recipe, model and, for a text,
 * tokenizer.  Fails as calm_windows_read and calm_token_file_read do. */
calm_status calm_inputs_read_windows(calm_ctx *ctx, calm_inputs *in);

/* Returns how many of the first calibration windows are left out of the statistics that candidates are fitted to.
 * Candidates are scored and probed on them, because the error of a fit is too small on the rows it was fitted to.  As
 * many as scores or probes ask for, at most a quarter; 0 if there are fewer than 4 windows, which then serve both. */
size_t calm_inputs_held_windows(const calm_inputs *in);

/* Return how many of the first windows are used for scores and for probes: what the recipe asks for, at most the
 * held-out windows if there are any. */
size_t calm_inputs_score_windows(const calm_inputs *in);
size_t calm_inputs_probe_windows(const calm_inputs *in);

/* Returns how many windows sensitivities by gradients use (sensitivity_gradient.h): all held-out windows; the first 16
 * if none are held out.  `probe_samples` does not count, because it is in the key of the candidates whose scores are
 * estimated. */
size_t calm_inputs_gradient_windows(const calm_inputs *in);

/* Returns true if statistics of activations are collected: `calibration.score_samples` is not 0 and the run has a pass
 * over the calibration windows. */
bool calm_inputs_measured(const calm_inputs *in);

/* Return the windows, and their rows, on which this run scores candidates: 0 if nothing reads scores. */
size_t calm_inputs_scored_windows(const calm_inputs *in);
size_t calm_inputs_scored_rows(const calm_inputs *in);

/* Reads n windows of the evaluation's text, or sentences for an encoder; n 0: all; `spread`: spread over the text
 * instead of the first ones.  Fails as calm_windows_read and calm_sentences_read do. */
calm_status calm_inputs_read_eval(calm_ctx *ctx, const calm_inputs *in, size_t n, bool spread, calm_windows *out);

/* ---- plans ---- */

/* Builds the plan of choice [n_jobs]: indices of pool entries, or CALM_STAYS_FLOAT. */
calm_status calm_plan_of_choice(calm_ctx *ctx, const calm_inputs *in, const size_t *choice, calm_plan *out);

/* Copies the plan `from` with the candidates and vectors of learned blocks [n_blocks]; NULL: a block that was not
 * learned. */
calm_status calm_plan_learn(calm_ctx *ctx, const calm_inputs *in, const calm_plan *from, calm_learned *const *blocks,
                            calm_plan *out);

/* Builds choice [n_jobs] in ctx->out: `entry` for the jobs of the run, float for the others. */
calm_status calm_choice_uniform(calm_ctx *ctx, const calm_inputs *in, size_t entry, size_t **choice);

/* Returns the bits of a plan in the first format, with scales and zeros, per weight of all quantized linears; NaN: it
 * quantizes none. */
double calm_plan_bits(const calm_inputs *in, const calm_plan *plan);

/* Computes the digest of a plan's candidates, which identifies the plan in evaluations. */
calm_status calm_plan_key(calm_ctx *ctx, const calm_plan *plan, char key[CALM_SHA256_HEX]);

/* Build an unmeasured trial of a plan, or of choice [n_jobs]. */
calm_status calm_trial_of_plan(calm_ctx *ctx, const calm_inputs *in, const char *name, const calm_plan *plan,
                               calm_trial *out);
calm_status calm_trial_new(calm_ctx *ctx, const calm_inputs *in, const char *name, const size_t *choice,
                           calm_trial *out);

/* Adds trials[*n], which is filled already.  If one of trials 1 .. widths - 1 (each the best of a width) has the same
 * plan, the new trial replaces it instead: a plan is measured and shown once, under the more specific name. */
void calm_trial_append(calm_trial *trials, size_t widths, size_t *n);
