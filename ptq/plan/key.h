/* Content keys: what a result depends on, and nothing else - no name of a file, no time, no number of threads.
 *
 *   model        config.json's bytes and every tensor's name, dtype, shape and bytes
 *   calibration  model, token windows, numbers of those scored on and held out, revision of the capture, arithmetic
 *                (with weights of rows another: ptq/state/store_rows.c)
 *   candidate    calibration, job (block, role, its weights), chain with options and revisions, scheme,
 *                reference prefix
 *   learned      calibration, learner with options and revision, what the block starts from, the blocks before
 *   evaluation   what was evaluated, token windows, revision of the evaluation, arithmetic
 *
 * Arithmetic is OpenBLAS's version and kernel family, and the variant of the mathematical library: a store that travels
 * to a CPU of another type would else mix the bits of both, and a resumed run would not end with the bytes of an
 * undisturbed one.  A run whose kernels are pinned (cli/kernels.h) has the same keys on every CPU that runs them. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/data/windows.h"
#include "ptq/model/model.h"
#include "ptq/quant/scheme.h"

/* Raised when capture or scoring give other numbers for the same input. */
#define CALM_CAPTURE_REVISION 3
/* Raised when evaluation gives other numbers. */
#define CALM_EVALUATION_REVISION 3

/* Raised when learning gives other numbers for the same start: its loss, or the order of blocks and windows.  A
 * learner has its own revision. */
#define CALM_LEARNING_REVISION 1

/* Digest of a checkpoint: config.json and every tensor.  Reads all bytes once. */
calm_status calm_key_model(calm_ctx *ctx, const calm_model *model, char key[CALM_SHA256_HEX]);

/* Digest of what candidates are computed and scored from. */
calm_status calm_key_calibration(calm_ctx *ctx, const char *model_key, const calm_windows *windows,
                                 size_t score_windows, size_t score_tokens, size_t held_windows,
                                 char key[CALM_SHA256_HEX]);

/* Digest over the float weights of a job's linears. */
calm_status calm_key_weights(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job,
                             char key[CALM_SHA256_HEX]);

/* What becomes of an expert with too few tokens: below `least_tokens` the chain `fallback` runs instead. */
typedef struct calm_key_expert {
    size_t least_tokens;
    const char *fallback;
} calm_key_expert;

/* `chain` is calm_algorithm_canonical's text. */
calm_status calm_key_candidate(calm_ctx *ctx, const char *calibration_key, const calm_job_ref *job,
                               const char *weights_key, const char *chain, const calm_scheme *scheme,
                               const calm_key_expert *expert, char key[CALM_SHA256_HEX]);

/* A block that `learner` (calm_learner_canonical's text) learns from the candidates of keys starts [n], "float" of a
 * job that stays so, behind the blocks of key `prefix` ("float" before the first one). */
calm_status calm_key_learned(calm_ctx *ctx, const char *calibration_key, const char *learner, const char *prefix,
                             size_t block, const char *const *starts, size_t n, char key[CALM_SHA256_HEX]);

/* The candidate of one of its jobs. */
calm_status calm_key_learned_job(calm_ctx *ctx, const char *learned_key, const calm_job_ref *job,
                                 char key[CALM_SHA256_HEX]);

/* `subject` identifies what is evaluated: a model key, or the keys of a plan's candidates. */
calm_status calm_key_evaluation(calm_ctx *ctx, const char *model_key, const char *subject, const calm_windows *windows,
                                char key[CALM_SHA256_HEX]);
