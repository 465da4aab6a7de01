/* Inputs of a run: what plans are made of - the recipe, the float model, the candidates and the store that has their
 * blobs.
 *
 * A run opens them from a recipe (run.c), a reassembly from the rows of a stored run (reassemble.c). */
#pragma once

#include "ptq/data/windows.h"
#include "ptq/export/export.h"
#include "ptq/io/imatrix.h"
#include "ptq/model/model.h"
#include "ptq/state/result.h"
#include "ptq/tokenizer/tokenizer.h"

/* One entry of the pool on one job, as the store has it. */
typedef struct calm_candidate {
    char key[CALM_SHA256_HEX];
    int64_t id;                                /* 0: not in the store                 */
    char blob[CALM_SHA256_HEX];                /* empty when it failed                */
    size_t blob_bytes;                         /* 0: it failed, or was not looked at   */
    const char *failure;                       /* NULL: it succeeded                  */
    bool skipped;                              /* not tried; failure says why         */
    calm_score_set scores;
    double bits_per_weight;
    double seconds;                            /* it took; 0: unknown                 */
    bool todo;                                 /* to be computed in this run          */
    bool dropped, wanted;                      /* the store has no codes of it any more; a plan asks for them */
} calm_candidate;

/* A block that was learned, as the store has it: what it consists of, job by job, and its norms and biases. */
typedef struct calm_learned {
    calm_candidate *jobs;                      /* [jobs of the block] in the layout's order */
    char key[CALM_SHA256_HEX], blob[CALM_SHA256_HEX];
    size_t blob_bytes;
} calm_learned;

typedef struct calm_inputs {
    const calm_recipe *recipe;
    calm_model *model;                         /* float, rotated if the recipe says so */
    size_t float_bytes;                        /* of the model as it was given        */
    bool only_look;                            /* the model is not rotated, which takes time and disk */
    calm_export_place rotated;                 /* the rotated model; temporary NULL: there is none    */
    calm_tokenizer *tokenizer;                 /* NULL: it cannot be read             */
    calm_store *store;
    size_t first_block, end_block;             /* blocks to quantize: first .. end - 1 */
    size_t *listed, n_listed;                  /* jobs of those blocks that `keep_float` leaves; NULL: all */
    size_t *number;                            /* [n_jobs] place of a job in that list, CALM_STAYS_FLOAT; or NULL */
    calm_imatrix *imatrix;                     /* mean squares of inputs in place of the calibration's; NULL: none */
    calm_windows calib, guard;
    calm_windows guard_all;                    /* guard, and behind it those that a tie may ask for */
    size_t score_tokens;                       /* of each scoring window its first tokens alone; 0: all (work.h) */
    calm_windows scoring;                      /* those windows, cut                                */
    calm_candidate *candidates;                /* [n_jobs][n_pool]                    */
} calm_inputs;

/* So often the guard's windows are doubled while the decision hangs on simplicity alone (guard_extend.c).  Twice: four
 * times the windows halve the error, and for float model, hybrid and one uniform run cost as many forward passes as the
 * first windows do with a pool of seven; a third time would cost more than these two. */
#define CALM_GUARD_DOUBLINGS ((size_t)2)

/* A job that a choice leaves as it is. */
#define CALM_STAYS_FLOAT SIZE_MAX

/* Why a candidate of a job that `keep_float` names is not there. */
#define CALM_KEPT_FLOAT "not tried: the job stays float (keep_float)"

/* The candidate of an entry of the pool on a job of the layout. */
calm_candidate *calm_candidate_at(const calm_inputs *in, size_t job, size_t entry);

/* Jobs first .. end - 1 of the layout are of the recipe's blocks; the others stay float, and of these those that
 * `keep_float` names. */
void calm_inputs_jobs(const calm_inputs *in, size_t *first, size_t *end);

/* Find the jobs of the blocks that the recipe's `keep_float` names: by a module's name in the checkpoint, or by "re:"
 * and a pattern that matches at its beginning, as Python's re.match.  Jobs stay float as a whole, and with one expert
 * all of its block (where the readers of GGUF have projections apart: of its projection), since engines fuse those; a
 * note says so.
 * CALM_EARG: a word that names no module (with the nearest), a class; part of a unit; no job is left.
 * CALM_EFORMAT: no pattern. */
calm_status calm_inputs_keep_float(calm_ctx *ctx, calm_inputs *in);

/* Does `keep_float` name the job?  The jobs to be quantized: how many, the layout's number of one of them, and the
 * place of a job of the layout that is one. */
bool calm_inputs_keeps(const calm_inputs *in, size_t job);
size_t calm_inputs_count(const calm_inputs *in);
size_t calm_inputs_job(const calm_inputs *in, size_t index);
size_t calm_inputs_index(const calm_inputs *in, size_t job);

/* Is there a forward pass over the calibration?  Not where candidates need weights alone and none is scored; experts
 * are always looked for by what is routed to them. */
bool calm_inputs_read_rows(const calm_inputs *in);

/* Is the model an encoder? */
bool calm_inputs_encode(const calm_inputs *in);

/* A note for each chain, written by hand, that corrects biases, when the model has none: it skips that step, as named
 * algorithms do without a word. */
void calm_inputs_note_biases(calm_ctx *ctx, const calm_inputs *in);

/* May the open model be rotated as the recipe says?  Where it may, it uses the Hadamard matrices that the recipe asks
 * for.  CALM_EUNSUPPORTED as calm_rotate_check and calm_model_use_hadamard. */
calm_status calm_inputs_allow_rotation(calm_ctx *ctx, calm_inputs *in);

/* CALM_EUNSUPPORTED: `calibration.weight` gradient and an encoder, which predicts nothing. */
calm_status calm_inputs_check_weight(calm_ctx *ctx, const calm_inputs *in);

/* CALM_EUNSUPPORTED: a sublayer of the model has no gradients to learn by. */
calm_status calm_inputs_check_learn(calm_ctx *ctx, const calm_inputs *in);

/* CALM_EUNSUPPORTED: `calibration.prefix` asymmetric and a mixture, whose routers send the two kinds of rows to
 * different experts.  CALM_EARG: a chain fits to both, and windows that were read have too few rows for an input. */
calm_status calm_inputs_check_prefix(calm_ctx *ctx, const calm_inputs *in);

/* Open the recipe's model as it was given, with the layout that the recipe's schemes ask for (ptq/model/layout.h). */
calm_status calm_inputs_open_given(calm_ctx *ctx, calm_inputs *in);

/* Open the recipe's importance matrix, if it names one, and check what it has of each job that is quantized; notes say
 * what it lacks.  Fails as calm_imatrix_open and calm_imatrix_means.  CALM_EFORMAT: nothing of this model.
 * CALM_EUNSUPPORTED: calm does not know llama.cpp's names for the family. */
calm_status calm_inputs_open_imatrix(calm_ctx *ctx, calm_inputs *in);

/* Mean squares [I] of a job's input by that matrix, which must be open; *any false: it has none. */
calm_status calm_inputs_column_weights(calm_ctx *ctx, const calm_inputs *in, size_t job, double *squares, bool *any);

/* Open the recipe's model.  With `rotate` it is written, rotated, next to the store, and that is opened;
 * `only_look`: it is checked alone.  CALM_EUNSUPPORTED: the family cannot be rotated (ptq/export/rotate.h). */
calm_status calm_inputs_open_model(calm_ctx *ctx, calm_inputs *in);

/* How calibration rows weigh in fits: what the recipe says, its `auto` resolved once the windows are read. */
calm_row_weight calm_inputs_row_weight(const calm_inputs *in);
/* Where `auto` became something, a note says so. */
void calm_inputs_note_row_weight(calm_ctx *ctx, const calm_inputs *in);

/* What the inputs are, into the result: layout, jobs, kind of model, facts of the windows. */
void calm_inputs_describe(const calm_inputs *in, calm_result *out);

/* Open a written checkpoint at `place`, to measure it, with the rule by which a reader of the recipe's schemes scales
 * activations: a checkpoint does not say it.  Fails as calm_model_open. */
calm_status calm_inputs_open_written(calm_ctx *ctx, const calm_recipe *recipe, const char *place, calm_model **out);

/* Close model, tokenizer and store, and remove the rotated model. */
void calm_inputs_close(calm_inputs *in);

/* ---- texts ---- */

/* Open the tokenizer of the recipe's model.  With `calibration.tokens` one that calm cannot read costs the words in the
 * reports and the evaluation, not the run: it is NULL then. */
calm_status calm_inputs_open_tokenizer(calm_ctx *ctx, calm_inputs *in);

/* Read the recipe's calibration text into ctx->out: in->calib first, in->guard_all after it, of one reading, so that
 * they cannot overlap; in->guard are the first ones of guard_all, the same whether the text has more or not.  Of
 * several texts each gives an even share of both, and windows stand in turn (calm_windows_join).  Needs recipe, model
 * and, for a text, tokenizer.  The failures of calm_windows_read and calm_token_file_read. */
calm_status calm_inputs_read_windows(calm_ctx *ctx, calm_inputs *in);

/* The first of the calibration windows, this many, are held out of the sums that candidates are fitted to:
 * candidates are scored and probed on them, since a fit looks better than it is on rows that it was made from.  As
 * many as scores or probes ask for, but at most a quarter of all; 0 of fewer than 4 windows, which then serve both. */
size_t calm_inputs_held_windows(const calm_inputs *in);

/* The first windows that candidates are scored and probed on: what the recipe asks for, as far as it was held out. */
size_t calm_inputs_score_windows(const calm_inputs *in);
size_t calm_inputs_probe_windows(const calm_inputs *in);

/* Windows that sensitivities from gradients take (sensitivity_gradient.h): all that are held out, not as many as probes
 * ask for, since those are in the key of the calibration and so of the candidates, whose scores the estimates are; of
 * so few that none are held out the first 16. */
size_t calm_inputs_gradient_windows(const calm_inputs *in);

/* Are statistics of activations collected?  Not where `calibration.score_samples` 0 says so, nor where nothing else
 * reads rows. */
bool calm_inputs_measured(const calm_inputs *in);

/* Those that candidates are scored on in this run: none where nothing asks for scores.  And their rows. */
size_t calm_inputs_scored_windows(const calm_inputs *in);
size_t calm_inputs_scored_rows(const calm_inputs *in);

/* This many windows of the evaluation's text, of an encoder's sentences; 0: all.  The first ones, or spread over the
 * text.  Fails as calm_windows_read and calm_sentences_read do. */
calm_status calm_inputs_read_eval(calm_ctx *ctx, const calm_inputs *in, size_t n, bool spread, calm_windows *out);

/* ---- plans ---- */

/* The plan of choice [n_jobs]: entries of the pool, or CALM_STAYS_FLOAT. */
calm_status calm_plan_of_choice(calm_ctx *ctx, const calm_inputs *in, const size_t *choice, calm_plan *out);

/* `from` with the candidates and vectors of learned blocks [n_blocks] in its own place; NULL: a block that was not
 * learned. */
calm_status calm_plan_learn(calm_ctx *ctx, const calm_inputs *in, const calm_plan *from, calm_learned *const *blocks,
                            calm_plan *out);

/* choice [n_jobs] = `entry` for the jobs of the run, float for the others; in ctx->out. */
calm_status calm_choice_uniform(calm_ctx *ctx, const calm_inputs *in, size_t entry, size_t **choice);

/* Bits that a plan takes, with scales and zeros, per weight of all quantized linears; NaN for none. */
double calm_plan_bits(const calm_inputs *in, const calm_plan *plan);

/* Digest over the candidates of a plan: the subject of its evaluations. */
calm_status calm_plan_key(calm_ctx *ctx, const calm_plan *plan, char key[CALM_SHA256_HEX]);

/* A trial of a plan, or of choice [n_jobs], not measured yet. */
calm_status calm_trial_of_plan(calm_ctx *ctx, const calm_inputs *in, const char *name, const calm_plan *plan,
                               calm_trial *out);
calm_status calm_trial_new(calm_ctx *ctx, const calm_inputs *in, const char *name, const size_t *choice,
                           calm_trial *out);

/* Count trials[*n], which has been written, in *n.  Where one of the trials from 1 to before `widths`, each the best of
 * a width, has the same plan, that one becomes it: a plan is measured and shown once, under the name that says more. */
void calm_trial_append(calm_trial *trials, size_t widths, size_t *n);
