/* Measures models and plans on windows: KL divergence and perplexity of decoders, cosine similarity of encoders. */
#pragma once

#include "ptq/ranks/ranks.h"
#include "ptq/state/measurement.h"

/* Returns true if the run measures linears with quantized inputs by integer products (ptq/weights/int_linear.h):
 * always, unless the recipe has exact_float or no scheme of its pool quantizes inputs to codes. */
bool calm_run_ints(const calm_run *run);

/* Computes the key of the evaluation of a subject on windows, with the run's arithmetic. */
calm_status calm_run_evaluation_key(calm_ctx *ctx, const calm_run *run, const char *subject_key,
                                    const calm_windows *windows, char key[CALM_SHA256_HEX]);

/* Measures subjects [n <= CALM_SUBJECTS_AT_ONCE] against the float model: a decoder by its predictions, an encoder by
 * its sentence embeddings (encoders.c).  `reference_measure` (NULL: not wanted) receives the float model's measure. */
calm_status calm_run_measure(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                             const calm_subject *subjects, size_t n, calm_measure *measures,
                             const calm_windows *windows, calm_tick_fn *fn, void *user);

/* ---- evaluations in the store (evaluations.c) ---- */

/* _find reads the evaluation of `subject_key` on these windows from the store; if there is none, *id is 0 and *out
 * unchanged.  _put stores one. */
calm_status calm_run_find_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key,
                                     const calm_windows *windows, calm_measure *out, int64_t *id);
calm_status calm_run_put_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key, const char *subject,
                                    const char *text_name, const calm_windows *windows, const calm_measure *measure,
                                    int64_t *id);

/* ---- the tokens where a result differs most (divergence.c) ---- */

/* The number of tokens with the largest divergence that are stored per final evaluation. */
#define CALM_RUN_WORST ((size_t)50)

/* Measures as calm_run_measure does on run->eval; for a decoder it also finds the tokens with the largest divergence,
 * for an encoder *worst is all zero. */
calm_status calm_run_measure_test(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                                  const calm_subject *subject, calm_measure *measure, calm_tick_fn *fn, void *user,
                                  calm_eval_worst *worst);

/* Stores those tokens as rows of an evaluation; nothing if no token was predicted. */
calm_status calm_run_put_divergence(calm_ctx *ctx, const calm_run *run, const calm_eval_worst *worst,
                                    int64_t evaluation_id);

/* ---- on several ranks (measure_ranks.c, encode_ranks.c) ---- */

/* Evaluates as calm_evaluate does against the float model, or with `worst` as calm_evaluate_worst does for one subject.
 * Of several ranks each evaluates a part of the windows; the bits are those of one rank. */
calm_status calm_division_evaluate(calm_ctx *ctx, const calm_run *run, calm_eval_result *reference_result,
                                   const calm_subject *subjects, size_t n, calm_eval_result *results,
                                   const calm_windows *windows, calm_tick_fn *tick, void *tick_user, size_t most,
                                   calm_eval_worst *worst);

/* Encodes as calm_encode does, for a subject (the float model or a quantized one), divided among ranks likewise. */
calm_status calm_division_encode(calm_ctx *ctx, const calm_run *run, const calm_subject *subject,
                                 const calm_windows *windows, calm_tick_fn *tick, void *tick_user,
                                 calm_embeddings *out);

/* Answer, on a rank other than 0, a question CALM_RANK_PREDICTIONS or CALM_RANK_EMBEDDINGS whose kind has been read. */
calm_status calm_rank_predict(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
calm_status calm_rank_encode(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
