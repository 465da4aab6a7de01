/* Content keys: a hash of all that a result depends on, and of nothing else (no file name, time or thread count).
 *
 *   model        config.json's members in their order; every tensor's name, dtype, shape and bytes
 *   calibration  model, token windows, numbers of scored and of held-out windows, revision of the capture, arithmetic
 *                (another key with weights of rows: ptq/state/store_rows.c)
 *   candidate    calibration, job (block, role, its weights), chain with options and revisions, scheme,
 *                reference prefix
 *   learned      calibration, learner with options and revision, the candidates that it starts from, the blocks before
 *   evaluation   what was evaluated, token windows, revision of the evaluation, arithmetic
 *
 * Arithmetic is OpenBLAS's version and kernel family and the variant of the mathematical library.  Without it, a store
 * that moves to another type of CPU would mix results of both, and a resumed run would not end with the same bytes as
 * an undisturbed run.  A run with pinned kernels (cli/kernels.h) has the same keys on every CPU that runs them. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/quant/scheme.h"

/* Raise this when capture or scoring gives other numbers for the same input. */
#define CALM_CAPTURE_REVISION 3
/* Raise this when evaluation gives other numbers. */
#define CALM_EVALUATION_REVISION 3

/* Raise this when learning gives other numbers for the same start: another loss, or another order of blocks and
 * windows.  A learner has its own revision. */
#define CALM_LEARNING_REVISION 1

/* Computes the key of a checkpoint: config.json and every tensor.  Reads all bytes once. */
calm_status calm_key_model(calm_ctx *ctx, const calm_model *model, char key[CALM_SHA256_HEX]);

/* Computes the key of everything that candidates of all jobs are computed and scored from. */
calm_status calm_key_calibration(calm_ctx *ctx, const char *model_key, const calm_windows *windows,
                                 size_t score_windows, size_t score_tokens, size_t held_windows,
                                 char key[CALM_SHA256_HEX]);

/* Computes the key of the float weights of a job's linears. */
calm_status calm_key_weights(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job,
                             char key[CALM_SHA256_HEX]);

/* How experts with few tokens are quantized: below `least_tokens` tokens by the chain `fallback`. */
typedef struct calm_key_expert {
    size_t least_tokens;
    const char *fallback;
} calm_key_expert;

/* Computes the key of a candidate; `chain` is the text of calm_algorithm_canonical. */
calm_status calm_key_candidate(calm_ctx *ctx, const char *calibration_key, const calm_job_ref *job,
                               const char *weights_key, const char *chain, const calm_scheme *scheme,
                               const calm_key_expert *expert, char key[CALM_SHA256_HEX]);

/* Computes the key of a block that `learner` (the text of calm_learner_canonical) learns.  starts [n]: keys of the
 * candidates that it starts from, "float" for a float job.  prefix: key of the blocks before it, "float" for the first
 * block. */
calm_status calm_key_learned(calm_ctx *ctx, const char *calibration_key, const char *learner, const char *prefix,
                             size_t block, const char *const *starts, size_t n, char key[CALM_SHA256_HEX]);

/* Computes the key of the candidate of one job of a learned block. */
calm_status calm_key_learned_job(calm_ctx *ctx, const char *learned_key, const calm_job_ref *job,
                                 char key[CALM_SHA256_HEX]);

/* Computes the key of an evaluation; `subject` is what is evaluated: a model key, or the keys of a plan's
 * candidates. */
calm_status calm_key_evaluation(calm_ctx *ctx, const char *model_key, const char *subject, const calm_windows *windows,
                                char key[CALM_SHA256_HEX]);
