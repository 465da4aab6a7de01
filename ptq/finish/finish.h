/* Finish: writes a result in its formats with card and recipe, evaluates the written files, and summarizes the result.
 *
 * A checkpoint has a temporary name until it is complete. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/state/state.h"
#include "ptq/state/outer_rows.h"
#include "ptq/state/result.h"

/* ---- checkpoints (checkpoint.c, outputs.c) ---- */

/* Called with the directory, after the weights are written and before the card is. */
typedef calm_status calm_written_fn(calm_ctx *ctx, void *user, const char *dir);

typedef struct calm_checkpoint {
    const calm_inputs *in;
    calm_result *result;             /* the plan to write; receives sizes and bits */
    const calm_events *events;
    const calm_outer_fit *fit;       /* how a head is quantized; with statistics if the run has rows for them */
    const calm_json *recipe;         /* written as calm_recipe.json; NULL: the run's recipe */
    calm_written_fn *written;        /* NULL: none                                                 */
    void *user;
} calm_checkpoint;

/* Writes a checkpoint to the recipe's output.  Fails as the exporters, `written` and writing files do; the output is
 * then unchanged. */
calm_status calm_checkpoint_write(calm_ctx *ctx, const calm_checkpoint *checkpoint);

/* Stores the output's files as artifacts of the result's run, and sets result->files to them. */
calm_status calm_checkpoint_put(calm_ctx *ctx, calm_result *result);

/* ---- files (outputs.c) ---- */

/* Writes the plan in every format into the existing empty directory `dir`, with the events of one stage.  The format
 * imatrix sums over in->calib, and fails with CALM_EARG if no windows were read. */
calm_status calm_outputs_write(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir);

/* Sets *out to whether one of the formats quantizes a head, which may be the embedding. */
calm_status calm_outputs_quantize_head(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan, bool *out);

/* Returns the folder of the first checkpoint below `dir`, else the file of a model, in ctx->scratch; NULL: there is
 * none. */
calm_status calm_outputs_checkpoint(calm_ctx *ctx, const calm_formats *formats, const char *dir, char **out);

/* Returns the format that is evaluated from its written files: the first checkpoint, else a model in one file whose
 * embedding or head is quantized, because the plan does not contain that; NULL: none.  *outer: the types of embedding
 * and head in that format. */
calm_status calm_outputs_measured(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan,
                                  const calm_exporter **exporter, calm_outer_plan *outer);

/* Returns the path of a format below `dir`, a folder or a file, in ctx->scratch. */
calm_status calm_outputs_place(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                               const char *dir, char **out);

/* Computes the bytes of the first format's weights: of its safetensors files, or of its only file. */
calm_status calm_outputs_bytes(calm_ctx *ctx, const calm_formats *formats, const char *dir, int64_t *out);

/* Returns true if the engine has kernels for the result in this format ("compressed-tensors"). */
bool calm_outputs_taken(const calm_result *result, const calm_engine *engine, const char *format);

/* Returns true if the command of the format's exporter can serve the result. */
bool calm_outputs_served(const calm_result *result, const char *format);

/* Lists the names of all plain files of an output, with one level of folders ("gguf/model.gguf"), sorted, in ctx->out.
 * Names that begin with a dot are left out. */
calm_status calm_outputs_files(calm_ctx *ctx, const char *dir, const char ***names, size_t *n);

/* Computes the SHA-256 of files [n] of a directory, or of the file `dir` itself, into *out in `arena`; names are
 * borrowed. */
calm_status calm_files_digests(calm_ctx *ctx, calm_arena *arena, const char *dir, const char *const *names, size_t n,
                               calm_written_file **out);

/* Lists the files of calm_outputs_files with their SHA-256, in ctx->out. */
calm_status calm_outputs_digests(calm_ctx *ctx, const char *dir, calm_written_file **out, size_t *n);

/* ---- the card (card.c) ---- */

/* Writes README.md into `dir`: what the model is, its figures, how to load it.  With several formats each folder of a
 * model gets a card too, so that it can be published alone: with its format's size and the command that serves it. */
calm_status calm_cards_write(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir);

/* Describes the types of embedding and head in a format, "Q6_K by gptq", in ctx->out; NULL: both are float. */
calm_status calm_card_tables(calm_ctx *ctx, const calm_checkpoint *checkpoint, const calm_exporter *exporter,
                             const char **out);

/* Writes the card's front matter for the hub: base model (`base`; NULL: not on the hub), library, license from the
 * float model's card, task, tags (card_front.c). */
calm_status calm_card_front(calm_ctx *ctx, const calm_result *result, const char *base, calm_text *out);

/* ---- a result as text, the same in reports and cards (summary.c) ---- */

#define CALM_SUMMARY_COLUMNS 15

/* The columns of calm_summary_units, as JSON keys. */
extern const char *const calm_summary_keys[CALM_SUMMARY_COLUMNS];

/* Calls fn with one row per job: its choice, scores and largest activation from the store. */
calm_status calm_summary_units(calm_ctx *ctx, const calm_result *result, calm_store_row_fn *fn, void *user);

/* Appends the tables of units, guard and evaluation, as far as the run has them. */
calm_status calm_summary_tables(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Appends one line per gate of the recipe; nothing if none was measured. */
calm_status calm_summary_gates(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Appends a line about the time and effect of learning; without learning, about the time it would take, `seconds`. */
void calm_summary_learning(const calm_result *result, double seconds, calm_text *out);

/* Appends two lines: scheme, bits and loss on the evaluation's text; the choice, and the loss of GPTQ alone, or else of
 * rounding to nearest, on the guard's windows (verdict.c). */
void calm_summary_verdict(const calm_result *result, calm_text *out);

/* Appends "mkq-full in all 24 units", or how many jobs each algorithm has; for a learned result after what it is. */
void calm_summary_result(const calm_result *result, calm_text *out);

/* Append what the result is, its scheme and its size; and the names of the schemes in its plan. */
void calm_summary_size(const calm_result *result, calm_text *out);
void calm_summary_schemes(const calm_result *result, calm_text *out);

/* ---- the end of a run (finish.c) ---- */

/* Writes the checkpoint under a temporary name, evaluates it, adds card and recipe, renames it, and stores its files as
 * artifacts. */
calm_status calm_run_export(calm_ctx *ctx, calm_run *run);

/* Measures the results of several budgets, and the float model, on the evaluation's text. */
calm_status calm_run_test_budgets(calm_ctx *ctx, calm_run *run);

/* Reads the evaluation's text into run->eval and the result's facts. */
calm_status calm_run_read_eval(calm_ctx *ctx, calm_run *run);
