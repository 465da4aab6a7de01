/* Learning on from the result of a run: one block as it is learned, what the store keeps of it, the judgement.  Only
 * files of this folder and their tests include it. */
#ifndef CALM_RUN_LEARN_IMPL_H
#define CALM_RUN_LEARN_IMPL_H

#include "ptq/model/block_back.h"
#include "ptq/plan/block_vectors.h"
#include "ptq/run/run_impl.h"

/* With fewer windows nothing is learned, or it warns: what fits them says little of other text. */
#define CALM_LEARN_LEAST_WINDOWS ((size_t)8)
#define CALM_LEARN_FEW_WINDOWS ((size_t)32)

/* ---- a block as it is learned (learn_view.c) ---- */

/* A block of a plan with its codes, scales and norms in arrays that a learner may change, and where gradients go. */
typedef struct calm_learn_view {
    size_t index, begin, end;                /* of the block; its jobs                                   */
    calm_block block;                        /* runs with what is below                                  */
    calm_qjob *jobs;                         /* [end - begin] of the folded form                         */
    calm_learn_linear *linears;              /* [n_linears]; codes and scales are those of the jobs      */
    float **linear_grads;                    /* [n_linears] what linears[].grad reads; NULL: none        */
    calm_learn_vector *vectors;              /* [n_vectors] the norms                                    */
    float **vector_grads;                    /* [n_vectors] what vectors[].grad reads                    */
    calm_block_vector *all;                  /* [n_all] norms and biases as they are                     */
    const float **floats;                    /* [n_all] those of the float model                         */
    size_t n_linears, n_vectors, n_all;
    calm_block_grads grads;                  /* where the backward pass puts them                        */
    calm_expert_grads *expert_grads;         /* [n_experts of a sparse block]                            */
    calm_weight (*experts)[CALM_N_ROLES];    /* likewise                                                 */
} calm_learn_view;

/* Block `index` of a plan that quantizes all of its jobs, in ctx->out, with the weights that its codes stand for;
 * linears that `learner` changes get gradients.  *out must stay where it is.  Fails as assembly does. */
calm_status calm_learn_view_open(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                 const calm_learner *learner, calm_learn_view *out);

/* All gradients to zero: the backward pass adds to them. */
void calm_learn_view_clear(const calm_learn_view *view);

/* Norms and biases that are not those of the float block, as the checkpoint stores them; in ctx->out. */
calm_status calm_learn_view_vectors(calm_ctx *ctx, const calm_learn_view *view, calm_vectors *out);

/* What a view leaves in ctx->out besides float weights and gradients, its jobs all being of `scheme`; and what opening
 * it holds besides for a while. */
size_t calm_learn_view_open_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_learn_view_opening_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                                     unsigned extras);

/* What a learner takes for a problem of these shapes; at most the sum of what it takes for parts of it. */
typedef size_t calm_learn_bytes_fn(const calm_learn_problem *shapes, const void *user);

/* The same for a block whose jobs are all of `scheme`. */
size_t calm_learn_sum_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                            calm_learn_bytes_fn *bytes, const void *user);

/* ---- learning one block (learn_block.c) ---- */

/* What a block is learned from: the plan as it was before, the hidden rows that enter the quantized block, and those
 * that leave the float one; of the same windows. */
typedef struct calm_learn_task {
    const calm_run *run;
    const calm_plan *start;
    size_t block;
    const calm_batch *inputs, *targets;
    calm_tick_fn *tick;    /* after each step; NULL: none */
    void *user;
} calm_learn_task;

/* What came of it, in ctx->out. */
typedef struct calm_learn_result {
    calm_qjob *jobs;       /* [jobs of the block] of the folded form */
    calm_vectors vectors;  /* norms and biases that are not the float model's */
    calm_learn_outcome outcome;
} calm_learn_result;

/* Learn one block.  Fails as assembly and the passes through the block do; numerical failures leave it at its start. */
calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out);

/* Rows of one window of a batch. */
calm_status calm_learn_rows(calm_ctx *ctx, const calm_batch *batch, size_t window, float **x);

/* The most that learning the run's blocks holds of all arenas, hidden rows included; `spill`: those lie in a file.
 * 0: the recipe does not ask for it. */
size_t calm_learn_bytes(const calm_run *run, unsigned extras, bool spill, size_t n_threads);

/* ---- what the store has of learned blocks (learn_store.c) ---- */

/* One kind of learning over the blocks of a run. */
typedef struct calm_learn_stage {
    calm_run *p;
    const char *learner;          /* canonical text: enters keys and rows                                 */
    const char *suffix;           /* of the names of what is learned                                      */
    const calm_plan *start;       /* what is learned on from                                              */
    calm_learned_facts *facts;    /* of the result                                                        */
    calm_learned **blocks;        /* [n_blocks] in the run's arena; NULL: not a block that can be learned */
    bool *there;                  /* [n_blocks] the store has it                                          */
} calm_learn_stage;

/* stage->blocks with their keys, stage->there and the facts of those. */
calm_status calm_learn_look_up(calm_ctx *ctx, calm_learn_stage *stage);

/* Put a learned block, in the caller's transaction. */
calm_status calm_learn_keep(calm_ctx *ctx, calm_learn_stage *stage, size_t block, const calm_learn_result *result,
                            double seconds);

/* The plan with blocks 0 .. end - 1 as they were learned, in ctx->out. */
calm_status calm_learn_plan(calm_ctx *ctx, const calm_learn_stage *stage, size_t end, calm_plan *out);

/* The learned plan beside the result on the guard's windows, which neither was made from: it becomes the result where
 * the guard's rule says so, or where there are no such windows. */
calm_status calm_learn_judge(calm_ctx *ctx, const calm_learn_stage *stage, const calm_plan *plan);

/* Windows that learning sees: those that candidates were fitted to. */
size_t calm_learn_windows(const calm_run *run);

#endif
