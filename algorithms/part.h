/* Parts: the steps of an algorithm, which is a chain of parts, and learners.  A new part is one file and one line in
 * parts.def.
 *
 *   transform* -> grid -> rounding -> refit*
 *
 *   transform  changes the weights before rounding: by a per-channel input scale, or by a fit
 *   grid       chooses scale and zero of one group
 *   rounding   chooses the codes, and calls the grid for scales when it needs them (GPTQ may call it late, with
 *              weights that it has already corrected)
 *   refit      improves scales and codes afterwards
 *
 * Shapes:  I input features   O output features, all linears of the job stacked   G = ceil(I / group)
 *
 * Every result is the same for any number of threads: work is divided into row chunks of a fixed size, and no sum
 * crosses a chunk. */
#pragma once

#include <math.h>

#include "algorithms/hessian.h"
#include "algorithms/learner.h"
#include "ptq/base/option.h"
#include "ptq/base/threads.h"
#include "ptq/quant/grid.h"

/* The inverse of the damped H, for a chain with a CALM_NEEDS_INVERSE part (inverse.h). */
typedef struct calm_inverse {
    double damp;      /* damping of u and left, as a share of mean(diag H); 0: u and left are empty     */
    double *u;        /* [I, I] upper triangle: the inverse's factor in the last requested column order  */
    double *left;     /* [I] 1 / [H^-1]_jj: weight of an error that all later columns compensate         */
    double asked;     /* requested damping of u, before it was doubled; 0: u is empty                   */
    size_t *order;    /* [I] column at each position of u                                               */
    bool first;       /* left was computed from this u, not from one in another order                   */
} calm_inverse;

/* The job of a chain with the changes that its transforms have made.  All memory is scratch. */
typedef struct calm_problem {
    const calm_job *job;
    size_t out, in, group, n_groups;    /* O, I, columns per group, G                                      */
    float *w;                           /* [O, I] W diag(in_scale)                                          */
    double *h;                          /* [I, I] H = diag(1/in_scale) X^T X / N diag(1/in_scale), both triangles;
                                         * the identity when calibration saw no input; its diagonal is damped from
                                         * the first calm_problem_damped on.  NULL: no part reads H itself */
    const double *gram;                 /* [I, I] X^T X, which calm_inverse_factor reads where h is NULL; NULL:
                                         * calibration saw no input, or H is shared                        */
    double *h_diag;                     /* [I] the undamped diagonal of H, >= 0; NULL: no part needs H      */
    const calm_hessian *shared;         /* the job's H, which h points to and other chains also read; NULL: h is the
                                         * chain's own                                                      */
    float *in_scale;                    /* [I] > 0; NULL: ones                                              */
    float global;                       /* the job's scales are multiples of this (grid.h); 0: none        */
    float act_global;                   /* the same for scales of activations (act_levels.h), or their one static
                                         * scale (act_static.h)                                            */
    calm_inverse *inverse;              /* NULL unless a part needs H^-1                                   */
    const calm_inverse *common;         /* the job's shared inverse, read-only; NULL: none                 */
    const struct calm_part *grid;       /* the chain's grid part; transforms may call it, too              */
    const void *grid_opts;
} calm_problem;

/* One group of weights, the input of a grid part. */
typedef struct calm_group {
    const calm_problem *problem;
    size_t row, index;    /* row of the job, number of the group in the row */
    const double *w;      /* [n] weights, as corrected so far   */
    const double *h;      /* [n] diagonal of H, or NULL          */
    const double *left;   /* [n] 1 / [H^-1]_jj if the rounding compensates errors, else NULL */
    size_t n;
} calm_group;

/* Bytes of ctx->scratch that a part allocates. */
typedef struct calm_part_memory {
    size_t kept;    /* bytes that stay allocated until the chain ends                */
    size_t most;    /* peak bytes in addition while the part runs, all its workers together */
} calm_part_memory;

typedef enum calm_part_kind {
    CALM_KIND_TRANSFORM,
    CALM_KIND_GRID,
    CALM_KIND_ROUND,
    CALM_KIND_REFIT,
    CALM_KIND_BLOCK,    /* a learner (learner.h), which is not a step of a chain */
} calm_part_kind;

/* The functions of a learner; opts is its options struct. */
typedef struct calm_block_steps {
    /* Does what calm_learner_run does. */
    calm_status (*learn)(calm_ctx *ctx, const calm_learn_problem *problem, const void *opts,
                         calm_learn_outcome *outcome);
    /* Gives *steps losses with gradients and *checks losses without, for one block with n_windows windows. */
    void (*losses)(const void *opts, size_t n_windows, size_t *steps, size_t *checks);
    /* Does what calm_learner_tokens does. */
    size_t (*tokens)(const void *opts);
    /* Returns the peak bytes of ctx->scratch, without those of the loss function. */
    size_t (*memory)(const calm_learn_problem *problem, const void *opts);
} calm_block_steps;

/* The last object of algorithms/<kind>_<name>.c, called calm_<kind>_<name>. */
typedef struct calm_part {
    const char *name;                      /* [a-z0-9_]+, the name in chains and keys; unique within its kind    */
    int revision;                          /* raised when outputs change: enters the candidate's key             */
    const char *summary, *reference;
    calm_part_kind kind;                   /* says which member of `run` is set                                  */
    unsigned caps;                         /* CALM_NEEDS_* and CALM_SETS_*; a part without any, except a transform,
                                            * must not change the problem's w                                    */
    double products;                       /* estimated work with default options, as a number of products W H of
                                            * weights and Gram matrix in double; a product in float32 counts half;
                                            * 0: much less than one product                                       */
    double factors;                        /* number of factors of H^-1 that the part computes, default options   */
    bool in_float;                         /* products and factors use float32, or the operands of ctx->operands  */
    size_t opts_size;
    const calm_option *opts;               /* NULL: the part has no options                                      */
    calm_status (*check)(calm_ctx *ctx, const void *opts);    /* refuses options that exclude each other, or NULL */
    const char *(*refuses)(const calm_scheme *scheme);        /* returns why the part does not support a scheme, or
                                                               * NULL if it does; no function: supports all       */
    double (*factor)(const void *opts);    /* returns the damping of the factor that the part reads with columns by
                                            * falling diag H; 0, or no function: it reads no such factor          */
    calm_part_memory (*memory)(const calm_job_shape *shape, const void *opts);    /* NULL: it allocates nothing  */
    union {
        /* Changes w, h, h_diag and in_scale of the problem.  A transform that sets in_scale runs only where the job
         * can absorb input scales. */
        calm_status (*transform)(calm_ctx *ctx, calm_problem *problem, const void *opts);
        /* Computes the scale, rounded as the scheme stores it, and the zero or minimum of one group.  Several threads
         * call it at once. */
        calm_status (*grid)(calm_ctx *ctx, const calm_group *group, const void *opts, calm_grid *out);
        /* Computes codes, scales and zeros of the whole job.  May change w (gptq clears columns without input). */
        calm_status (*round)(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob);
        /* Improves codes and scales, or changes in_scale through calm_problem_scale; run_chain.c copies in_scale to
         * the qjob after the last refit. */
        calm_status (*refit)(calm_ctx *ctx, calm_problem *problem, const void *opts, calm_qjob *qjob);
        const calm_block_steps *block;
    } run;
} calm_part;

/* Returns the rows of parts.def in file order; *n is their number. */
const calm_part *const *calm_parts(size_t *n);

/* Returns "transform", "grid", "rounding", "refit" or "block". */
const char *calm_part_kind_name(calm_part_kind kind);

/* ---- for parts ---- */

/* Number of rows of one task; fixed, so that no result depends on the number of threads. */
#define CALM_ROW_CHUNK ((size_t)128)

/* Return an upper bound of the number of row chunks, and of how many of them threads work on at the same time. */
size_t calm_shape_chunks(const calm_job_shape *shape);
size_t calm_shape_workers(const calm_job_shape *shape);

/* Returns the number of weights whose grids are computed together: those of a super-block, or of a block of rows. */
size_t calm_shape_together(const calm_job_shape *shape);

/* Multiplies the channels of w and in_scale by s [I] (> 0), divides H accordingly, and discards the inverse. */
calm_status calm_problem_scale(calm_ctx *ctx, calm_problem *problem, const float *s);

/* Returns the bytes of ctx->scratch that the first calm_problem_scale allocates. */
size_t calm_problem_scale_bytes(size_t in);

/* Return the first column and the number of columns of group g. */
size_t calm_problem_group_start(const calm_problem *problem, size_t g);
size_t calm_problem_group_columns(const calm_problem *problem, size_t g);

/* Computes scales and zeros of the whole job from the problem's weights. */
calm_status calm_problem_grids(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob);

/* Computes scales, zeros and the nearest codes of the whole job from the problem's weights. */
calm_status calm_problem_nearest(calm_ctx *ctx, const calm_problem *problem, calm_qjob *qjob);

/* Computes grids and nearest codes of the rows of one chunk, from weights w [n, I] instead of the problem's; qjob has
 * only these n rows. */
calm_status calm_problem_chunk_nearest(calm_ctx *ctx, const calm_problem *problem, size_t chunk, const float *w,
                                       calm_qjob *qjob);

/* Returns the peak bytes of ctx->scratch of any of these three functions, all workers together. */
size_t calm_problem_nearest_scratch_bytes(const calm_job_shape *shape);

/* Returns problem->h [I, I] after setting its diagonal to that of H + damp mean(diag H) I; valid until the next
 * call. */
const double *calm_problem_damped(const calm_problem *problem, double damp);

/* Returns the power of two that scales `most` into [.5, 1), for copies in float32; 1 if `most` is not a positive finite
 * number. */
static inline double calm_problem_unit(double most)
{
    enum { MOST = 300 };    /* so that a product of three such powers, and its inverse, are finite */
    int exponent;
    if (!(most > 0) || !isfinite(most))
        return 1;
    frexp(most, &exponent);
    return ldexp(1, exponent < -MOST ? MOST : exponent > MOST ? -MOST : -exponent);
}

/* Computes the grids of groups g .. g + n - 1 of `row` with the chain's grid part.  The groups are one super-block
 * (calm_problem_super); w holds their weights one after the other.  The grids are rounded together. */
calm_status calm_problem_run(calm_ctx *ctx, const calm_problem *problem, size_t row, size_t g, size_t n,
                             const double *w, calm_grid *out);

/* Computes the grid of group g that rows first .. first + n - 1 share, from their weights w [n, columns of g]. */
calm_status calm_problem_block(calm_ctx *ctx, const calm_problem *problem, size_t first, size_t n, size_t g,
                               const double *w, calm_grid *out);

/* Returns the number of groups of the super-block that begins with group g. */
size_t calm_problem_super(const calm_problem *problem, size_t g);

/* Copies `grid` to *out.  CALM_ENUMERIC, naming row and group: its scale or minimum is outside the storable range. */
calm_status calm_group_finish(calm_ctx *ctx, const calm_group *group, calm_grid grid, calm_grid *out);

/* Checks schemes whose scales are multiples of one number for the whole job; others pass.  CALM_ENUMERIC, with the row
 * and group of the largest weight: because of this weight more than half of the groups become zero (groups that are
 * zero in any scheme do not count). */
calm_status calm_problem_check_global(calm_ctx *ctx, const calm_problem *problem);

/* Stores a grid in a job's arrays. */
void calm_qjob_set_grid(calm_qjob *qjob, size_t row, size_t g, calm_grid grid);

/* Returns the number of row chunks of the job: CALM_ROW_CHUNK rows each, or the rows that share scales. */
size_t calm_problem_chunks(const calm_problem *problem);

/* Returns the number of rows of chunk `index`; *first is its first row. */
size_t calm_problem_chunk(const calm_problem *problem, size_t index, size_t *first);

/* Runs fn over the chunks on all threads; fn's index is the chunk's number. */
calm_status calm_problem_each_chunk(calm_ctx *ctx, const calm_problem *problem, calm_task_fn *fn, void *user);
