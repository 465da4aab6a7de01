/* The public interface of quantization algorithms: parse an algorithm by its name or chain, and quantize one job.
 *
 * Shapes:  I input features   O output features of all linears of the job together   G = ceil(I / group)
 * An algorithm sees matrices and statistics, never files or models. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/scheme.h"
#include "ptq/quant/stats.h"

/* The sizes and flags that determine how much memory a chain needs for a job. */
typedef struct calm_job_shape {
    size_t out, in, group, n_groups;    /* O, I, columns per group, G                                */
    size_t n_samples;                   /* number of kept input rows                                 */
    size_t n_absorb_groups;             /* 0: every input has its own scale                          */
    size_t n_threads;                   /* number of threads that share the work on the job          */
    calm_operands operands;             /* operand type of float products (float32 or bfloat16)      */
    bool symmetric;                     /* the scheme has no zero points                             */
    int family;                         /* the scheme's family, CALM_FAMILY_*                        */
    bool biased;                        /* a linear has a bias                                       */
    bool fixed_inputs;                  /* activations have one static scale                         */
    bool reordered;                     /* groups hold the inputs by falling power (act_order.h)     */
    bool shared;                        /* chains share the job's H (hessian.h)                      */
    double damp, factor;                /* damping of the shared H; of the shared factor of H^-1, 0: none */
} calm_job_shape;

/* Returns the shape of a job that has one thread and an H for each chain, but no kept rows, absorb groups or biases. */
calm_job_shape calm_job_shape_of(const calm_scheme *scheme, size_t out, size_t in);

/* Name of the scheme float and of its only algorithm, which has no steps and does not run. */
#define CALM_FLOAT "float"

#define CALM_NEEDS_GRAM    (1u << 0)
#define CALM_NEEDS_ABSMAX  (1u << 1)
#define CALM_NEEDS_SUMS    (1u << 2)
#define CALM_NEEDS_SAMPLES (1u << 3)
#define CALM_NEEDS_INVERSE (1u << 4)    /* inverse of the Gram matrix, made once for the chain */
#define CALM_NEEDS_CROSS   (1u << 5)    /* products of the input with the same input after float blocks */
#define CALM_GRAM_INVERSE  (1u << 11)   /* the part reads only the diagonal and the inverse of H, not H itself */
#define CALM_NEEDS_DATA                                                                                                \
    (CALM_NEEDS_GRAM | CALM_NEEDS_ABSMAX | CALM_NEEDS_SUMS | CALM_NEEDS_SAMPLES | CALM_NEEDS_CROSS)
#define CALM_SETS_IN_SCALE (1u << 8)
#define CALM_SETS_BIAS     (1u << 10)   /* only if a linear has a bias; needs the sum of the inputs, and kept rows where
                                         * the scheme quantizes inputs */
#define CALM_FITS_INPUT    (1u << 9)    /* fits weights to the current input: no transform may follow */

/* The least number of calibration rows per input for a fit by cross products. */
#define CALM_CROSS_ROWS_PER_INPUT ((size_t)16)

/* Returns the preset's name, or for other chains the text of the chain with the options that differ from their
 * defaults. */
const char *calm_algorithm_name(const calm_algorithm *algorithm);

/* Returns the chain with every option and each part's revision, which enters the candidate's key:
 * "hls@1(signed=true,rounds=8)+gptq@1(order=activation,damp=0.01)". */
const char *calm_algorithm_canonical(const calm_algorithm *algorithm);

/* Is the algorithm a preset of presets.def, whether the user typed its name or its chain? */
bool calm_algorithm_is_preset(const calm_algorithm *algorithm);

/* Do both algorithms run the same steps with the same options on such a job, so that they give the same bits?
 * `absorbs`: the job can absorb input scales; if not, transforms that set such scales are skipped.  `biased`: a linear
 * of the job has a bias; if not, refits that correct biases are skipped. */
bool calm_algorithm_agrees(const calm_algorithm *a, const calm_algorithm *b, bool absorbs, bool biased);

/* Returns the CALM_NEEDS_* bits of the statistics that the algorithm needs for a job at this scheme; `biased` as
 * above. */
unsigned calm_algorithm_needs(const calm_algorithm *algorithm, const calm_scheme *scheme, bool biased);

/* Returns the CALM_NEEDS_* and CALM_SETS_* bits of all parts together. */
unsigned calm_algorithm_caps(const calm_algorithm *algorithm);

/* Does the algorithm have a transform that sets input scales, which move outliers of the input into the weights? */
bool calm_algorithm_smooths(const calm_algorithm *algorithm);

/* Estimates the algorithm's work as a number of products W H of weights and Gram matrix, 2 O I^2 operations each.
 * `gain`, here and below: how many times faster float products run with the operands of the run than in float32; 1 for
 * operands in float32. */
double calm_algorithm_products(const calm_algorithm *algorithm, double gain);

/* Estimates how many factors of H^-1 the parts compute in addition to the shared factor of the job: one for each new
 * order of the columns. */
double calm_algorithm_factors(const calm_algorithm *algorithm, double gain);

/* Checks that the algorithm can quantize to this scheme.  CALM_EUNSUPPORTED if not, with algorithm, part, scheme and
 * reason. */
calm_status calm_algorithm_reaches(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_scheme *scheme);

/* Returns the damping of H in the first part that reads a damped H; 0: no part does. */
double calm_algorithm_damping(const calm_algorithm *algorithm);

/* Returns the damping of the job's H^-1 factor, with columns by falling diagonal, that the chain reads first; 0: it
 * reads no such factor, or a transform changes H before. */
double calm_algorithm_factor(const calm_algorithm *algorithm);

/* Return the bytes that a run leaves in ctx->out, and the peak bytes of ctx->scratch of all its workers together. */
size_t calm_algorithm_run_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape);
size_t calm_algorithm_run_scratch_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape);

/* ---- the registries, for `calm algorithms` and the conformance tests ---- */

typedef struct calm_preset {
    const char *name, *chain, *summary, *reference;
} calm_preset;

/* Returns the rows of presets.def in file order; *n is their number. */
const calm_preset *calm_presets(size_t *n);
