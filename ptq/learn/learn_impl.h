/* Private parts of learning: one block while it is learned, its rows in the store, and the guard's judgement.  Only
 * files of this folder and their tests include it. */
#pragma once

#include "algorithms/tune.h"
#include "ptq/eval/predict.h"
#include "ptq/model/block_back.h"
#include "ptq/model/pooling.h"
#include "ptq/plan/block_vectors.h"
#include "ptq/learn/learn.h"

/* With fewer windows nothing is learned, or it warns: what fits them says little of other text. */
#define CALM_LEARN_LEAST_WINDOWS ((size_t)8)
#define CALM_LEARN_FEW_WINDOWS ((size_t)32)

/* ---- a block as it is learned (learn_view.c) ---- */

/* Decoded weights and gradients of the linears of a block, which views of one shape after the other may share. */
typedef struct calm_learn_room {
    float **effective, **grad;    /* [n] by the number of a linear in its block */
    size_t n;
} calm_learn_room;

/* A block of a plan with its codes, scales and norms in arrays that a learner may change, and where gradients go. */
typedef struct calm_learn_view {
    size_t index, begin, end;                /* of the block; its jobs                                   */
    calm_block block;                        /* runs with what is below                                  */
    calm_qjob *jobs;                         /* [end - begin] of the folded form; empty: it stays float  */
    calm_learn_linear *linears;              /* [n_linears]; codes and scales are those of the jobs      */
    float **linear_grads;                    /* [n_linears] what linears[].grad reads; NULL: none        */
    calm_learn_vector *vectors;              /* [n_vectors] the norms, and biases where they are wanted  */
    float **vector_grads;                    /* [n_vectors] what vectors[].grad reads                    */
    calm_block_vector *all;                  /* [n_all] norms and biases as they are                     */
    const float **floats;                    /* [n_all] those of the float model                         */
    size_t n_linears, n_vectors, n_all;
    calm_block_grads grads;                  /* where the backward pass puts them                        */
    float *input_norm_grad;                  /* [D] of the norm that q, k and v read, which follows from theirs
                                                (calm_learn_view_complete); NULL: the backward pass gives it */
    calm_expert_grads *expert_grads;         /* [n_experts of a sparse block]                            */
    calm_weight (*experts)[CALM_N_ROLES];    /* likewise                                                 */
} calm_learn_view;

/* What is wanted of a view besides. */
typedef struct calm_learn_view_options {
    const calm_learner *learner;    /* linears that it changes get gradients; NULL: all do */
    bool targets;                   /* linears[].w                                         */
    const calm_learn_room *room;    /* for decoded weights and gradients; NULL: own ones   */
    bool biases;                    /* vectors[] has those of linears and norms, too       */
} calm_learn_view_options;

/* Block `index` of a plan, which may leave some of its jobs float, in ctx->out; *out must stay where it is.  Decoded
 * weights of a shared room are those of the view only after calm_learn_view_decode.  Fails as assembly does. */
calm_status calm_learn_view_open(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                 const calm_learn_view_options *options, calm_learn_view *out);

/* linears[].effective = what codes, scales and zeros represent. */
void calm_learn_view_decode(calm_ctx *ctx, const calm_learn_view *view);

/* All gradients to zero: the backward pass adds to them. */
void calm_learn_view_clear(const calm_learn_view *view);

/* The gradient that follows from others, after the backward pass. */
void calm_learn_view_complete(const calm_learn_view *view);

/* Norms and biases that are not those of the float block, as the checkpoint stores them; in ctx->out. */
calm_status calm_learn_view_vectors(calm_ctx *ctx, const calm_learn_view *view, calm_vectors *out);

/* Room for every block of the model, and what it takes. */
calm_status calm_learn_room_new(calm_ctx *ctx, const calm_model *model, calm_learn_room *out);
size_t calm_learn_room_new_bytes(const calm_model *model);

/* What a view leaves in ctx->out without targets and room, its jobs all being of `scheme`; and what opening it holds
 * besides for a while. */
size_t calm_learn_view_open_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_learn_view_opening_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                                     unsigned extras);

/* What a learner takes for a problem of these shapes; at most the sum of what it takes for its parts. */
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

/* The result, in ctx->out. */
typedef struct calm_learn_result {
    calm_qjob *jobs;       /* [jobs of the block] of the folded form; empty: it stays float */
    calm_vectors vectors;  /* norms and biases that are not the float model's */
    calm_learn_outcome outcome;
} calm_learn_result;

/* Learn one block.  Fails as assembly and the passes through the block do; numerical failures leave it at its start. */
calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out);

/* Rows of one window of a batch. */
calm_status calm_learn_rows(calm_ctx *ctx, const calm_batch *batch, size_t window, float **x);

/* M of the loss of a block: the mean over all tokens of |y|^2, rows y of a batch. */
calm_status calm_learn_mean_square(calm_ctx *ctx, const calm_batch *batch, double *out);

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

/* stage->blocks with their keys, stage->there and the facts of those.  `whole`: the key of a block covers the starts of
 * all blocks, not of those before it alone. */
calm_status calm_learn_look_up(calm_ctx *ctx, calm_learn_stage *stage, bool whole);

/* Put a learned block, in the caller's transaction. */
calm_status calm_learn_keep(calm_ctx *ctx, calm_learn_stage *stage, size_t block, const calm_learn_result *result,
                            double seconds);

/* The plan with blocks 0 .. end - 1 as they were learned, in ctx->out. */
calm_status calm_learn_plan(calm_ctx *ctx, const calm_learn_stage *stage, size_t end, calm_plan *out);

/* The learned plan next to the result on the guard's windows, which neither was made from: it becomes the result where
 * the guard's rule says so, or where there are no such windows. */
calm_status calm_learn_judge(calm_ctx *ctx, const calm_learn_stage *stage, const calm_plan *plan);

/* How many steps it takes to see all windows that learning sees (calm_learner_tokens). */
size_t calm_learn_round(const calm_run *run, const calm_learner *learner);

/* ---- the divergence of the whole model (learn_divergence.c) ---- */

/* A model whose scales and norms are tuned, and the float one. */
typedef struct calm_tuning {
    calm_learn_stage of;
    calm_learn_view *views;      /* [n_blocks]                                             */
    calm_tune **tunes;           /* [n_blocks] NULL: a block that stays as the plan has it */
    size_t first;                /* block that is tuned                                    */
    calm_learn_room room;
    calm_batch floats;           /* final rows of the float model, all calibration windows */
    calm_subject subjects[2];
    calm_predictors set;         /* the float model, the tuned one: of both only the head  */
    calm_norm norm;              /* of an encoder: behind its blocks, or none              */
    calm_pooling pooling;        /* of an encoder                                          */
    bool mini;                   /* the relations of the last attention count as well      */
    calm_batch entering;         /* then: rows of the float model before its last block    */
    double relations;            /* the loss of those of the last step                     */
    float **inputs;              /* [n_blocks + 1][longest, D] what enters each block      */
    uint32_t *targets;           /* [longest] of rows that predict anything                */
} calm_tuning;

/* Everything but `of` and `mini`, in ctx->out; the caller closes `floats` and `entering`, which have no file yet,
 * whatever comes back. */
calm_status calm_tuning_open(calm_ctx *ctx, calm_tuning *tuning);

/* Of the windows first .. end - 1 of a step the mean divergence of their predictions, or of an encoder the mean of
 * 1 - cosine of their embeddings; d (NULL: not wanted) [T, D] = its gradient by what leaves the last block. */
calm_status calm_tuning_divergence(calm_ctx *ctx, calm_tuning *tuning, size_t first, size_t end, float *d,
                                   double *loss);

/* After that, from the last block to the first that is tuned: gradients of the view of block `b`; d goes from its
 * output to its input.  With `mini` those of the divergence and of tuning->relations, which the last block sets. */
calm_status calm_tuning_back(calm_ctx *ctx, calm_tuning *tuning, size_t b, size_t first, size_t end, float *d);

/* ---- tuning the whole model (learn_model.c; what it takes: learn_model_cost.c) ---- */

/* Steps between two looks at held-out windows. */
#define CALM_LEARN_LOOK_STEPS ((size_t)16)

/* Tune scales and norms of the result on the divergence from the float model, as the recipe asks.  Fails as learning
 * blocks does. */
calm_status calm_learn_model(calm_ctx *ctx, calm_run *run);

/* Windows that are looked at: of those that are held out of everything, or, where none are, the first ones, which are
 * then not learned from. */
size_t calm_learn_model_held(const calm_run *run);

/* The first window that is learned from. */
size_t calm_learn_model_from(const calm_run *run);

/* Does the run do that? */
bool calm_learn_tunes(const calm_run *run);

/* Operations and updates that it takes, and the most that it holds; 0: it is not done. */
void calm_learn_model_estimate(const calm_run *run, calm_learned_facts *out);

/* ---- passes through all windows on several ranks (learn_ranks.c) ----
 *
 * A block's steps need each other, and the block before: rank 0 takes them alone.  What is between is divided by
 * windows, which meet in no sum: the others run the float block ahead while rank 0 learns the block before it, and a
 * part of the windows through the learned block.  Of a mixture, whose experts multiply the rows of all windows
 * together, one other rank runs the float block, and rank 0 the learned one. */

/* Rank 0, before the first block: the log says what is divided; nothing on one rank. */
void calm_learn_ranks_note(calm_ctx *ctx, const calm_run *run);

/* *floats, the learned windows, from the rows that enter the float block to those that leave it.  Blocks come in their
 * order from 0 on; what enters the first is embedded. */
calm_status calm_learn_ranks_float(calm_ctx *ctx, const calm_run *run, size_t block, calm_batch *floats);

/* The next float block will be wanted, too: other ranks begin with it. */
calm_status calm_learn_ranks_ahead(calm_ctx *ctx, const calm_run *run, size_t next, const calm_batch *floats);

/* After that, *quantized likewise through the block as the plan has it (NULL: as it is). */
calm_status calm_learn_ranks_quantized(calm_ctx *ctx, const calm_run *run, size_t block, const calm_plan *plan,
                                       calm_batch *quantized);
