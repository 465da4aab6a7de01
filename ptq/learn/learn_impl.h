/* Private parts of learning: one block while it is learned, its rows in the store, and the guard's judgement.  Only
 * this folder and its tests include this file. */
#pragma once

#include "algorithms/tune.h"
#include "ptq/eval/predict.h"
#include "ptq/layers/block_back.h"
#include "ptq/model/pooling.h"
#include "ptq/plan/block_vectors.h"
#include "ptq/learn/learn.h"

/* Below LEAST windows learning is refused, below FEW it warns, because a fit to so few says little about other text. */
#define CALM_LEARN_LEAST_WINDOWS ((size_t)8)
#define CALM_LEARN_FEW_WINDOWS ((size_t)32)

/* ---- one block while it is learned (learn_view.c) ---- */

/* Memory for decoded weights and gradients of a block's linears, which views of one shape may share in turn. */
typedef struct calm_learn_buffers {
    float **effective, **grad;    /* [n] arrays, by the number of the linear in its block */
    size_t n;
} calm_learn_buffers;

/* A block of a plan: its codes, scales and norms in arrays that a learner may change, and its gradients. */
typedef struct calm_learn_view {
    size_t index, begin, end;                /* number of the block; its jobs begin .. end - 1           */
    calm_block block;                        /* the block, which reads the arrays below                  */
    calm_qjob *jobs;                         /* [end - begin] in folded form; empty: the job stays float */
    calm_learn_linear *linears;              /* [n_linears]; codes and scales point into jobs            */
    float **linear_grads;                    /* [n_linears] memory of linears[].grad; NULL: none         */
    calm_learn_vector *vectors;              /* [n_vectors] the norms, and with options.biases biases    */
    float **vector_grads;                    /* [n_vectors] memory of vectors[].grad                     */
    calm_block_vector *all;                  /* [n_all] all norms and biases, current values             */
    const float **floats;                    /* [n_all] their values in the float model                  */
    size_t n_linears, n_vectors, n_all;
    calm_block_grads grads;                  /* output arrays of the backward pass                       */
    float *input_norm_grad;                  /* [D] gradient of the norm before q, k and v, which
                                                calm_learn_view_complete derives from theirs; NULL: the backward pass
                                                computes it */
    calm_expert_grads *expert_grads;         /* [n_experts] of a sparse block                            */
    calm_weight (*experts)[CALM_N_ROLES];    /* [n_experts] of a sparse block                            */
} calm_learn_view;

/* Options of calm_learn_view_open. */
typedef struct calm_learn_view_options {
    const calm_learner *learner;    /* linears that it changes get gradients; NULL: all do    */
    bool targets;                   /* set linears[].w                                        */
    const calm_learn_buffers *room;    /* memory for decoded weights and gradients; NULL: own    */
    bool biases;                    /* vectors[] also has the biases of linears and norms     */
} calm_learn_view_options;

/* Opens block `index` of a plan, which may leave some of its jobs float, in ctx->out; *out must stay at its address.
 * With a shared room, linears[].effective belongs to this view only after calm_learn_view_decode.  Fails as assembly
 * does. */
calm_status calm_learn_view_open(calm_ctx *ctx, const calm_model *model, const calm_plan *plan, size_t index,
                                 const calm_learn_view_options *options, calm_learn_view *out);

/* Computes linears[].effective from codes, scales and zeros. */
void calm_learn_view_decode(calm_ctx *ctx, const calm_learn_view *view);

/* Sets all gradients to zero, because the backward pass adds to them. */
void calm_learn_view_clear(const calm_learn_view *view);

/* Computes input_norm_grad after the backward pass. */
void calm_learn_view_complete(const calm_learn_view *view);

/* Returns the norms and biases that differ from the float block's, as the checkpoint stores them; in ctx->out. */
calm_status calm_learn_view_vectors(calm_ctx *ctx, const calm_learn_view *view, calm_vectors *out);

/* Allocates a room that is large enough for every block of the model in ctx->out; returns its bytes. */
calm_status calm_learn_room_new(calm_ctx *ctx, const calm_model *model, calm_learn_buffers *out);
size_t calm_learn_room_new_bytes(const calm_model *model);

/* Return the bytes that calm_learn_view_open leaves in ctx->out without targets and room, if all jobs have `scheme`;
 * and the additional peak bytes while it runs. */
size_t calm_learn_view_open_bytes(const calm_model *model, size_t block, const calm_scheme *scheme, unsigned extras);
size_t calm_learn_view_opening_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                                     unsigned extras);

/* Returns the bytes that a learner needs for a problem of these shapes; at most the sum over the problem's parts. */
typedef size_t calm_learn_bytes_fn(const calm_learn_problem *shapes, const void *user);

/* Sums `bytes` over the linears and vectors of a block whose jobs all have `scheme`. */
size_t calm_learn_sum_bytes(const calm_model *model, size_t block, const calm_scheme *scheme,
                            calm_learn_bytes_fn *bytes, const void *user);

/* ---- learning one block (learn_block.c) ---- */

/* The data that a block is learned from; inputs and targets are of the same windows. */
typedef struct calm_learn_task {
    const calm_run *run;
    const calm_plan *start;     /* the plan before learning                       */
    size_t block;
    const calm_batch *inputs;   /* hidden states that enter the quantized block   */
    const calm_batch *targets;  /* hidden states that leave the float block       */
    calm_tick_fn *tick;         /* after each step; NULL: none */
    void *user;
} calm_learn_task;

/* The result, in ctx->out. */
typedef struct calm_learn_result {
    calm_qjob *jobs;       /* [jobs of the block] in folded form; empty: the job stays float */
    calm_vectors vectors;  /* norms and biases that differ from the float model's */
    calm_learn_outcome outcome;
} calm_learn_result;

/* Learns one block.  Fails as assembly and the passes through the block do; after numerical failures the block stays at
 * its start. */
calm_status calm_learn_block(calm_ctx *ctx, const calm_learn_task *task, calm_learn_result *out);

/* Returns in *x the hidden states of one window of a batch. */
calm_status calm_learn_rows(calm_ctx *ctx, const calm_batch *batch, size_t window, float **x);

/* Computes M of a block's loss: the mean of |y|^2 over the hidden states y of all tokens of a batch. */
calm_status calm_learn_mean_square(calm_ctx *ctx, const calm_batch *batch, double *out);

/* ---- learned blocks in the store (learn_store.c) ---- */

/* One kind of learning over the blocks of a run. */
typedef struct calm_learn_stage {
    calm_run *p;
    const char *learner;          /* canonical text, which enters keys and rows                           */
    const char *suffix;           /* suffix of the learned plan's name                                    */
    const calm_plan *start;       /* the plan that learning begins with                                   */
    calm_learned_facts *facts;    /* figures for the run's result                                         */
    calm_learned **blocks;        /* [n_blocks] in the run's arena; NULL: the block cannot be learned     */
    bool *there;                  /* [n_blocks] the store has the learned block                           */
} calm_learn_stage;

/* Computes the keys of stage->blocks, reads those that the store has, and sets stage->there and their figures.
 * `whole`: the key of a block covers the starts of all blocks, instead of only those before the block. */
calm_status calm_learn_look_up(calm_ctx *ctx, calm_learn_stage *stage, bool whole);

/* Writes a learned block to the store, in the caller's transaction. */
calm_status calm_learn_keep(calm_ctx *ctx, calm_learn_stage *stage, size_t block, const calm_learn_result *result,
                            double seconds);

/* Returns the plan with blocks 0 .. end - 1 learned, in ctx->out. */
calm_status calm_learn_plan(calm_ctx *ctx, const calm_learn_stage *stage, size_t end, calm_plan *out);

/* Compares the learned plan with the result on the guard's windows, which neither was fitted to.  The learned plan
 * becomes the result if the guard's rule says so, or if there are no such windows. */
calm_status calm_learn_judge(calm_ctx *ctx, const calm_learn_stage *stage, const calm_plan *plan);

/* Returns the number of steps until learning has used each of its windows once (calm_learner_tokens). */
size_t calm_learn_round(const calm_run *run, const calm_learner *learner);

/* ---- the divergence of the whole model (learn_divergence.c) ---- */

/* A model whose scales and norms are tuned, and the float model. */
typedef struct calm_tuning {
    calm_learn_stage of;
    calm_learn_view *views;      /* [n_blocks]                                                 */
    calm_tune **tunes;           /* [n_blocks] NULL: the block is not tuned                    */
    size_t first;                /* the first block that is tuned                              */
    calm_learn_buffers room;        /* decoded weights and gradients, shared by the views         */
    calm_batch floats;           /* final hidden states of the float model, all calibration windows */
    calm_subject subjects[2];    /* the float model, the tuned one                             */
    calm_predictors set;         /* the heads of both                                          */
    calm_norm norm;              /* encoder: the norm after its blocks, or none                */
    calm_pooling pooling;        /* encoder: the pooling of hidden states to an embedding      */
    bool mini;                   /* the loss includes the relations of the last attention      */
    calm_batch entering;         /* mini: hidden states of the float model before its last block */
    double relations;            /* mini: the relations' loss in the last step                 */
    float **inputs;              /* [n_blocks + 1][calm_tuning_rows, D] a step's hidden states before each block and
                                  * after the last */
    uint32_t *targets;           /* [longest] for calm_predict: 0, as only the KL is read, or CALM_NO_TARGET */
} calm_tuning;

/* Sets everything but `of` and `mini`, in ctx->out.  The caller closes `floats` and `entering`, also after a failure;
 * they have no file before the call. */
calm_status calm_tuning_open(calm_ctx *ctx, calm_tuning *tuning);

/* Runs windows first .. end - 1 of a step forward.  *loss is the mean divergence of their predictions, or of an encoder
 * the mean of 1 - cosine of their embeddings; d [T, D], unless NULL, its gradient with respect to the last block's
 * output. */
calm_status calm_tuning_divergence(calm_ctx *ctx, calm_tuning *tuning, size_t first, size_t end, float *d,
                                   double *loss);

/* Runs block `b` backward after calm_tuning_divergence, from the last block to the first tuned one: computes the
 * gradients of the block's view, and turns d from the gradient of its output to that of its input.  With `mini` the
 * last block sets tuning->relations, and gradients include this loss. */
calm_status calm_tuning_back(calm_ctx *ctx, calm_tuning *tuning, size_t b, size_t first, size_t end, float *d);

/* ---- tuning the whole model (learn_model.c; its cost: learn_model_cost.c) ---- */

/* Number of steps between two measurements on held-out windows. */
#define CALM_LEARN_LOOK_STEPS ((size_t)16)

/* Tunes scales and norms of the result on the divergence from the float model, as the recipe asks.  Fails as learning
 * blocks does. */
calm_status calm_learn_model(calm_ctx *ctx, calm_run *run);

/* Returns the number of windows for measurements during tuning: some of the held-out windows, or if there are none the
 * first calibration windows, which are then not learned from. */
size_t calm_learn_model_held(const calm_run *run);

/* Returns the first window that is learned from. */
size_t calm_learn_model_from(const calm_run *run);

/* Does the run tune the whole model? */
bool calm_learn_tunes(const calm_run *run);

/* Estimates operations, updates and peak memory of tuning; 0: the run does not tune. */
void calm_learn_model_estimate(const calm_run *run, calm_learned_facts *out);

/* ---- passes through all windows on several ranks (learn_ranks.c) ----
 *
 * The steps of a block depend on each other and on the block before, so rank 0 does them alone.  The passes between
 * them are divided by windows, which share no sum: while rank 0 learns a block, the other ranks run the next float
 * block; then all ranks run a part of the windows through the learned block.  The experts of a mixture multiply the
 * hidden states of all windows together, so there one other rank runs the float block, and rank 0 the learned one. */

/* Logs what is divided; rank 0 calls it before the first block.  Does nothing on one rank. */
void calm_learn_ranks_note(calm_ctx *ctx, const calm_run *run);

/* Advances *floats, the hidden states of the windows to learn from, through float block `block`.  Blocks come in order
 * from 0; block 0 embeds the tokens first. */
calm_status calm_learn_ranks_float(calm_ctx *ctx, const calm_run *run, size_t block, calm_batch *floats);

/* Lets other ranks begin with the float block `next`, which will be needed. */
calm_status calm_learn_ranks_ahead(calm_ctx *ctx, const calm_run *run, size_t next, const calm_batch *floats);

/* After that, advances *quantized through the block as the plan quantizes it; plan NULL: through the float block. */
calm_status calm_learn_ranks_quantized(calm_ctx *ctx, const calm_run *run, size_t block, const calm_plan *plan,
                                       calm_batch *quantized);
