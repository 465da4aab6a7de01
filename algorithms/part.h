/* Parts: the steps an algorithm is a chain of, and learners.  A new part is one file and one line in parts.def.
 *
 *   transform* -> grid -> rounding -> refit*
 *
 *   transform  changes what is to be rounded: a per-channel input scale, fitted weights
 *   grid       picks scale and zero of one group
 *   rounding   picks the codes, and asks the grid for scales when it needs them (GPTQ may ask late, from weights
 *              that it has already corrected)
 *   refit      improves scales and codes afterwards
 *
 * Shapes:  I input features   O output features, all linears of the job stacked   G = ceil(I / group)
 *
 * Everything here is deterministic for any number of threads: work is cut into row chunks of a fixed size, and no
 * sum crosses a chunk. */
#pragma once

#include <math.h>

#include "algorithms/hessian.h"
#include "algorithms/learner.h"
#include "ptq/base/option.h"
#include "ptq/base/threads.h"
#include "ptq/quant/grid.h"

/* H^-1, H damped, for a chain with a part of CALM_NEEDS_INVERSE (inverse.h). */
typedef struct calm_inverse {
    double damp;      /* damping of u and left, as a share of the mean of diag H; 0: both are empty     */
    double *u;        /* [I, I] upper triangle: the inverse's factor in the last requested column order  */
    double *left;     /* [I] 1 / [H^-1]_jj: weight of an error that all later columns compensate         */
    double asked;     /* requested damping of u, before it was doubled; 0: u is empty                   */
    size_t *order;    /* [I] position -> column, of u                                                   */
    bool first;       /* left was made of this u, not of one in another order                           */
} calm_inverse;

/* The job of a chain, as its transforms have changed it.  All memory is scratch. */
typedef struct calm_problem {
    const calm_job *job;
    size_t out, in, group, n_groups;    /* O, I, columns per group, G                                      */
    float *w;                           /* [O, I] W diag(in_scale)                                          */
    double *h;                          /* [I, I] H = diag(1/in_scale) X^T X / N diag(1/in_scale), both triangles;
                                         * the identity when no input was seen; from the first calm_problem_damped
                                         * on with a damped diagonal.  NULL unless a part needs it, and where
                                         * calm_inverse_factor alone would read it: */
    const double *gram;                 /* [I, I] then X^T X, NULL when no input was seen                  */
    double *h_diag;                     /* [I] the diagonal of H, >= 0; NULL: no part needs H               */
    const calm_hessian *shared;         /* h is the job's, which other chains also read; NULL: the chain's own */
    float *in_scale;                    /* [I] > 0; NULL = ones                                             */
    float global;                       /* the job's scales are multiples of this (grid.h); 0: none        */
    float act_global;                   /* the same for scales of activations (act_levels.h), or their one scale
                                         * (act_static.h)                                                  */
    calm_inverse *inverse;              /* NULL unless a part needs it                                     */
    const calm_inverse *common;         /* the job's, read-only; NULL: none                                */
    const struct calm_part *grid;       /* the chain's grid part, set after the transforms                 */
    const void *grid_opts;
} calm_problem;

/* One group of weights, as the input of a grid part. */
typedef struct calm_group {
    const calm_problem *problem;
    size_t row, index;    /* of O and of G */
    const double *w;      /* [n] weights, as corrected so far   */
    const double *h;      /* [n] diagonal of H, or NULL          */
    const double *left;   /* [n] 1 / [H^-1]_jj if the rounding compensates errors, else NULL */
    size_t n;
} calm_group;

/* Bytes that a part takes of ctx->scratch. */
typedef struct calm_part_memory {
    size_t kept;    /* until the chain ends                                          */
    size_t most;    /* in addition, while the part runs: all its workers together    */
} calm_part_memory;

typedef enum calm_part_kind {
    CALM_KIND_TRANSFORM,
    CALM_KIND_GRID,
    CALM_KIND_ROUND,
    CALM_KIND_REFIT,
    CALM_KIND_BLOCK,    /* a learner (learner.h): no step of a chain */
} calm_part_kind;

/* What a learner does. */
typedef struct calm_block_steps {
    /* As calm_learner_run. */
    calm_status (*learn)(calm_ctx *ctx, const calm_learn_problem *problem, const void *opts,
                         calm_learn_outcome *outcome);
    /* Losses with gradients, and without, of one block that has this many windows. */
    void (*losses)(const void *opts, size_t n_windows, size_t *steps, size_t *checks);
    /* As calm_learner_tokens. */
    size_t (*tokens)(const void *opts);
    /* Bytes of ctx->scratch that it holds besides the loss. */
    size_t (*memory)(const calm_learn_problem *problem, const void *opts);
} calm_block_steps;

/* The last object of algorithms/<kind>_<name>.c, called calm_<kind>_<name>. */
typedef struct calm_part {
    const char *name;                      /* [a-z0-9_]+ : what chains and keys call it; unique within its kind  */
    int revision;                          /* raised when outputs change: enters the candidate's key             */
    const char *summary, *reference;
    calm_part_kind kind;                   /* tags `run`                                                         */
    unsigned caps;                         /* CALM_NEEDS_* and CALM_SETS_*; without any, and no transform, it
                                            * leaves the problem's w as it is                                    */
    double products;                       /* work with default options, in products W H of weights and Gram matrix
                                            * in double, about; a product in float32 counts half; 0: much less than
                                            * one                                                                 */
    double factors;                        /* factors of H^-1 that the part makes itself, with default options    */
    bool in_float;                         /* both are in float32, or of operands as ctx->operands says           */
    size_t opts_size;
    const calm_option *opts;               /* NULL: takes none                                                   */
    calm_status (*check)(calm_ctx *ctx, const void *opts);    /* options that exclude each other; may be NULL    */
    const char *(*refuses)(const calm_scheme *scheme);        /* the reason why the part does not support a scheme, or
                                                               * NULL if it does; no function: supports all       */
    double (*factor)(const void *opts);    /* damping of the factor that it reads, in the order of falling diag H; 0:
                                            * it reads other factors; no function: others, or none                */
    calm_part_memory (*memory)(const calm_job_shape *shape, const void *opts);    /* NULL: it takes none         */
    union {
        /* Change w, h, h_diag and in_scale of the problem.  One that sets in_scale runs only where the job
         * can absorb. */
        calm_status (*transform)(calm_ctx *ctx, calm_problem *problem, const void *opts);
        /* Scale, rounded as the scheme says for a group by itself, and zero or minimum of one group.  Called from
         * several threads. */
        calm_status (*grid)(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out);
        /* Codes, scales and zeros of the whole job.  May change w (gptq clears columns without input). */
        calm_status (*round)(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob);
        /* Better codes and scales, or another in_scale for them, by calm_problem_scale alone; qjob has it once all
         * refits are done. */
        calm_status (*refit)(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob);
        const calm_block_steps *block;
    } run;
} calm_part;

/* Rows of parts.def in file order. */
const calm_part *const *calm_parts(size_t *n);

/* "transform", "grid", "rounding", "refit", "block". */
const char *calm_part_kind_name(calm_part_kind kind);

/* ---- for parts ---- */

/* Rows that one task handles; fixed, so that no result depends on the number of threads. */
#define CALM_ROW_CHUNK ((size_t)128)

/* Chunks of the job's rows, at most, and how many of them are in work at once. */
size_t calm_shape_chunks(const calm_job_shape *shape);
size_t calm_shape_workers(const calm_job_shape *shape);

/* Number of weights whose grids are found together: those of a super-block, or of a block of rows. */
size_t calm_shape_together(const calm_job_shape *shape);

/* Multiply the channels of w by s [I] (> 0), divide H accordingly, forget its inverse, and multiply in_scale by s. */
calm_status calm_problem_scale(calm_ctx *ctx, calm_problem *problem, const float *s);

/* Bytes that calm_problem_scale keeps of ctx->scratch, the first time. */
size_t calm_problem_scale_bytes(size_t in);

/* First column and number of columns of group g. */
size_t calm_problem_group_start(const calm_problem *problem, size_t g);
size_t calm_problem_group_columns(const calm_problem *problem, size_t g);

/* Fill scales and zeros of the whole job from the problem's weights. */
calm_status calm_problem_grids(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob);

/* The same with the nearest codes on those grids. */
calm_status calm_problem_nearest(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob);

/* Grids and nearest codes of the rows of one chunk, of the weights w [n, I] that they would have: qjob is a job of
 * those n rows alone. */
calm_status calm_problem_chunk_nearest(calm_ctx *ctx, const calm_problem *problem, size_t chunk, const float *w,
                                       calm_qjob *qjob);

/* The most bytes that any of these three holds of ctx->scratch, all workers together. */
size_t calm_problem_nearest_scratch_bytes(const calm_job_shape *shape);

/* H + damp mean(diag H) I [I, I], both triangles, until the next call: problem->h with another diagonal. */
const double *calm_problem_damped(const calm_problem *problem, double damp);

/* The power of two that takes numbers up to `most` to [.5, 1), for copies in float; 1 where that is no finite number
 * above 0. */
static inline double calm_problem_unit(double most)
{
    enum { MOST = 300 };    /* so that a product of three and its inverse are finite, too */
    int exponent;
    if (!(most > 0) || !isfinite(most))
        return 1;
    frexp(most, &exponent);
    return ldexp(1, exponent < -MOST ? MOST : exponent > MOST ? -MOST : -exponent);
}

/* Ask the chain's grid for groups g .. g + n - 1 of `row`, which are all of one super-block (calm_problem_super), whose
 * weights lie one after the other in w: their grids rounded together. */
calm_status calm_problem_run(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, size_t n,
                             const double *w, calm_grid *out);

/* The grid of group g of rows first .. first + n - 1, which share it: w [n, columns of g]. */
calm_status calm_problem_block(calm_ctx *ctx, const calm_problem *problem, size_t first, size_t n, size_t g,
                               const double *w, calm_grid *out);

/* Groups of the super-block that begins with group g. */
size_t calm_problem_super(const calm_problem *problem, size_t g);

/* The grid, or CALM_ENUMERIC naming row and group when its scale left the storable range. */
calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out);

/* For schemes whose scales are multiples of one number for the whole job.  CALM_ENUMERIC, with the row and group of the
 * largest weight: because of this weight more than half of the groups become zero (without those that are zero in any
 * scheme). */
calm_status calm_problem_check_global(calm_ctx *ctx, const calm_problem *problem);

/* Put a grid into a job's arrays. */
void calm_qjob_set_grid(calm_qjob *qjob, size_t row, size_t g, calm_grid grid);

/* Number of chunks of the job's rows: CALM_ROW_CHUNK rows each, or the rows that share scales. */
size_t calm_problem_chunks(const calm_problem *problem);

/* The first row of chunk `index`, and how many it has. */
size_t calm_problem_chunk(const calm_problem *problem, size_t index, size_t *first);

/* Run fn over the chunks; index is the chunk's number. */
calm_status calm_problem_each_chunk(calm_ctx *ctx, const calm_problem *problem, calm_task_fn *fn, void *user);
