/* Measure models and plans on windows: KL divergence and perplexity of decoders, cosine similarity of encoders. */
#pragma once

#include "ptq/ranks/ranks.h"
#include "ptq/state/measurement.h"

/* Are linears with quantized inputs products of whole numbers (ptq/model/int_linear.h) where the run measures?  They
 * are unless its recipe has exact_float, or no scheme of its pool quantizes inputs to codes. */
bool calm_run_ints(const calm_run *run);

/* Key of the evaluation of a subject on windows, by the run's arithmetic. */
calm_status calm_run_evaluation_key(calm_ctx *ctx, const calm_run *run, const char *subject_key,
                                    const calm_windows *windows, char key[CALM_SHA256_HEX]);

/* Measure subjects [n <= CALM_SUBJECTS_AT_ONCE] against the float model: a decoder by its predictions, an encoder by
 * its sentence embeddings.  `reference_measure` (may be NULL) gets the float model's own measure (encoders.c). */
calm_status calm_run_measure(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                             const calm_subject *subjects, size_t n, calm_measure *measures,
                             const calm_windows *windows, calm_tick_fn *fn, void *user);

/* ---- evaluations in the store (evaluations.c) ---- */

/* Read the evaluation of `subject_key` on these windows from the store, or put one.  find: *id is 0, and *out
 * unchanged, when the store has none. */
calm_status calm_run_find_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key,
                                     const calm_windows *windows, calm_measure *out, int64_t *id);
calm_status calm_run_put_evaluation(calm_ctx *ctx, const calm_run *run, const char *subject_key, const char *subject,
                                    const char *text_name, const calm_windows *windows, const calm_measure *measure,
                                    int64_t *id);

/* ---- where a result diverges (divergence.c) ---- */

/* Number of most-divergent tokens stored per final evaluation. */
#define CALM_RUN_WORST ((size_t)50)

/* As calm_run_measure on run->eval; of a decoder also the tokens that diverge most.  Of an encoder *worst is all
 * zero. */
calm_status calm_run_measure_test(calm_ctx *ctx, const calm_run *run, calm_measure *reference_measure,
                                  const calm_subject *subject, calm_measure *measure, calm_tick_fn *fn, void *user,
                                  calm_eval_worst *worst);

/* Put those tokens as rows of an evaluation; nothing where no token was predicted. */
calm_status calm_run_put_divergence(calm_ctx *ctx, const calm_run *run, const calm_eval_worst *worst,
                                    int64_t evaluation_id);

/* ---- on several ranks (measure_ranks.c, encode_ranks.c) ---- */

/* As calm_evaluate against the float model, or with `worst` as calm_evaluate_worst of one subject.  With several ranks
 * each takes a part of the windows; the bits are those of one rank. */
calm_status calm_division_evaluate(calm_ctx *ctx, const calm_run *run, calm_eval_result *reference_result,
                                   const calm_subject *subjects, size_t n, calm_eval_result *results,
                                   const calm_windows *windows, calm_tick_fn *tick, void *tick_user, size_t most,
                                   calm_eval_worst *worst);

/* As calm_encode of a subject (the float model or a quantized one), divided likewise. */
calm_status calm_division_encode(calm_ctx *ctx, const calm_run *run, const calm_subject *subject,
                                 const calm_windows *windows, calm_tick_fn *tick, void *tick_user,
                                 calm_embeddings *out);

/* Another rank: answer a question CALM_RANK_PREDICTIONS or CALM_RANK_EMBEDDINGS whose kind has been read. */
calm_status calm_rank_predict(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
calm_status calm_rank_encode(calm_ctx *ctx, calm_run *run, calm_rank_message *in, calm_text *answer);
