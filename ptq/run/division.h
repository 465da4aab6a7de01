/* The division of a run among ranks: which blocks each computes, and how its rows come into the one store.
 *
 * Every function does nothing, or the one-rank thing, where the run has no cluster. */
#ifndef CALM_RUN_DIVISION_H
#define CALM_RUN_DIVISION_H

#include "ptq/run/block_work.h"

/* All ranks have the same program, kernels, recipe, model and windows, and share the store's folder; after the keys are
 * known, or where that failed: then all ranks fail.  CALM_EUNSUPPORTED, CALM_EIO: calm_cluster_agree,
 * calm_cluster_probe. */
calm_status calm_division_check(calm_ctx *ctx, calm_run *run);

/* Open the run's store: rank 0 the one of the recipe, others one in memory whose rows are told to rank 0. */
calm_status calm_division_open_store(calm_ctx *ctx, calm_run *run);

/* Collective, after rank 0's survey: what is missing, and the candidates that are there, to all ranks; and who computes
 * which block, into missing->owner. */
calm_status calm_division_share(calm_ctx *ctx, calm_run *run, calm_missing *missing);

/* Does this rank compute the block? */
bool calm_division_mine(const calm_run *run, const calm_missing *missing, size_t block);

/* Collective, after the blocks: rank 0 has the rows of all ranks, and result.ranks and the log say what each did
 * (rank_facts.c). */
calm_status calm_division_collect(calm_ctx *ctx, calm_run *run, const calm_missing *missing);

/* Rank 0, at the end: how long each rank was idle since the blocks were divided, into result.ranks, and as `ranks` of
 * the run's environment into the store. */
calm_status calm_division_account(calm_ctx *ctx, calm_run *run);

/* ---- measuring (measure_ranks.c, encode_ranks.c) ---- */

/* As calm_evaluate against the float model, or with `worst` calm_evaluate_worst of one subject.  With several ranks
 * each takes a part of the windows: the bits are those of one. */
calm_status calm_division_evaluate(calm_ctx *ctx, const calm_run *run, calm_eval_result *reference_result,
                                   const calm_subject *subjects, size_t n, calm_eval_result *results,
                                   const calm_windows *windows, calm_tick_fn *tick, void *tick_user, size_t most,
                                   calm_eval_worst *worst);

/* As calm_encode of a subject, the float model among them; divided likewise. */
calm_status calm_division_encode(calm_ctx *ctx, const calm_run *run, const calm_subject *subject,
                                 const calm_windows *windows, calm_tick_fn *tick, void *tick_user,
                                 calm_embeddings *out);

/* Another rank, after the blocks: do what rank 0 asks for until the run ends; its status (serve_ranks.c). */
calm_status calm_division_serve(calm_ctx *ctx, calm_run *run);

/* ---- rows between ranks (relay.c) ---- */

/* Where rows go that are put here: to rank 0.  `run` outlives the store. */
calm_store_relay calm_relay_to_rank_0(calm_run *run);

/* A candidate of the store as a message, appended. */
void calm_relay_encode(calm_text *out, size_t job, const calm_store_candidate *row);

/* Put the rows of messages [n] of another rank into the run's store.  CALM_EFORMAT: they are none. */
calm_status calm_relay_put(calm_ctx *ctx, calm_run *run, const char *bytes, size_t n);

#endif
