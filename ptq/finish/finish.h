/* Finish: write a result in its formats, with card and recipe, evaluate what was written, and summarise it.
 *
 * A checkpoint has a temporary name until it is whole. */
#pragma once

#include "ptq/base/event.h"
#include "ptq/state/state.h"
#include "ptq/state/outer_rows.h"
#include "ptq/state/result.h"

/* ---- checkpoints (checkpoint.c, outputs.c) ---- */

/* Called with the directory after the weights are written and before the card is. */
typedef calm_status calm_written_fn(calm_ctx *ctx, void *user, const char *dir);

typedef struct calm_checkpoint {
    const calm_inputs *in;
    calm_result *result;             /* its plan is written; sizes and bits are set               */
    const calm_events *events;
    const calm_outer_fit *fit;       /* of the head, collected where there are rows for it         */
    const calm_json *recipe;         /* written as calm_recipe.json; NULL: the recipe's own        */
    calm_written_fn *written;        /* NULL: none                                                 */
    void *user;
} calm_checkpoint;

/* Write a checkpoint to the recipe's output.  Fails as the exporters, `written` and writing files do; the output is
 * then as it was. */
calm_status calm_checkpoint_write(calm_ctx *ctx, const calm_checkpoint *checkpoint);

/* Put the files of the output as artifacts of the result's run; result->files is set to them. */
calm_status calm_checkpoint_put(calm_ctx *ctx, calm_result *result);

/* ---- files (outputs.c) ---- */

/* Write the plan in every format into the existing empty directory `dir`; events of all of them are one stage.  imatrix
 * sums up over in->calib, or fails with CALM_EARG when no windows were read. */
calm_status calm_outputs_write(calm_ctx *ctx, const calm_checkpoint *checkpoint, const char *dir);

/* Does one of the formats quantize a head, which may be the embedding? */
calm_status calm_outputs_quantize_head(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan, bool *out);

/* The folder of the first checkpoint among what was written to `dir`, else the file of a model, in ctx->scratch; NULL:
 * there is none. */
calm_status calm_outputs_checkpoint(calm_ctx *ctx, const calm_formats *formats, const char *dir, char **out);

/* The format that is evaluated as it was written: the first checkpoint, else a model in one file whose embedding or
 * head is quantized, which the plan does not tell; NULL: none.  *outer: what it makes of those. */
calm_status calm_outputs_measured(calm_ctx *ctx, const calm_inputs *in, const calm_plan *plan,
                                  const calm_exporter **exporter, calm_outer_plan *outer);

/* Where it is among what was written to `dir`: a folder or a file, in ctx->scratch. */
calm_status calm_outputs_place(calm_ctx *ctx, const calm_formats *formats, const calm_exporter *exporter,
                               const char *dir, char **out);

/* Bytes of the first format's weights: of its safetensors files, or of the one file that it is. */
calm_status calm_outputs_bytes(calm_ctx *ctx, const calm_formats *formats, const char *dir, int64_t *out);

/* Names of all plain files of an output, one level of folders included ("gguf/model.gguf"), sorted; in ctx->out.  Names
 * that begin with a dot are left out. */
calm_status calm_outputs_files(calm_ctx *ctx, const char *dir, const char ***names, size_t *n);

/* Digests of files [n] of a directory, or of the file `dir` itself, into *out in `arena`; names are borrowed. */
calm_status calm_files_digests(calm_ctx *ctx, calm_arena *arena, const char *dir, const char *const *names, size_t n,
                               calm_written_file **out);

/* The files of calm_outputs_files with their digests; in ctx->out. */
calm_status calm_outputs_digests(calm_ctx *ctx, const char *dir, calm_written_file **out, size_t *n);

/* ---- the card (card.c) ---- */

/* README.md of a checkpoint: what it is, its figures, how it is loaded. */
calm_status calm_card_write(calm_ctx *ctx, const calm_model *model, const calm_result *result, calm_text *out);

/* Its front matter, which the hub reads: base model, library, license of the float model's card, task, tags
 * (card_front.c). */
calm_status calm_card_front(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* ---- a result as text: the same lines in reports and cards (summary.c) ---- */

#define CALM_SUMMARY_COLUMNS 15

/* Columns of calm_summary_units, as keys of JSON. */
extern const char *const calm_summary_keys[CALM_SUMMARY_COLUMNS];

/* One row per job, with its choice, scores and largest activation as the store knows them. */
calm_status calm_summary_units(calm_ctx *ctx, const calm_result *result, calm_store_row_fn *fn, void *user);

/* Append units, guard and evaluation, each as far as the run has it. */
calm_status calm_summary_tables(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Append one line per gate of the recipe; nothing where none was measured. */
calm_status calm_summary_gates(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Append a line about what learning took and came to, or, where it was not asked for, what it would take: `seconds`. */
void calm_summary_learning(const calm_result *result, double seconds, calm_text *out);

/* Two lines: scheme, bits and loss on the test text; what was chosen, and what GPTQ alone or else plain rounding has on
 * the guard's windows (verdict.c). */
void calm_summary_verdict(const calm_result *result, calm_text *out);

/* Append "mkq-full in all 24 units", or how many jobs each algorithm has; of a learned result after what it is. */
void calm_summary_result(const calm_result *result, calm_text *out);

/* Append what the result is, its scheme and its size; the names alone of the schemes that its plan has. */
void calm_summary_size(const calm_result *result, calm_text *out);
void calm_summary_schemes(const calm_result *result, calm_text *out);

/* ---- the end of a run (finish.c) ---- */

/* Write the checkpoint under a temporary name, evaluate what was written, add card and recipe, and give it its name;
 * put its files as artifacts. */
calm_status calm_run_export(calm_ctx *ctx, calm_run *run);

/* Measure the results of several budgets, and the float model, on the evaluation's text. */
calm_status calm_run_test_budgets(calm_ctx *ctx, calm_run *run);

/* Read the evaluation's text into run->eval and the result's facts. */
calm_status calm_run_read_eval(calm_ctx *ctx, calm_run *run);
