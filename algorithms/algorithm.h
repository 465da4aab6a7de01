/* Algorithms as their users see them: quantize one job.
 *
 * Shapes:  I input features   O output features of all linears of the job together   G = ceil(I / group)
 * An algorithm sees matrices and statistics, never files or models. */
#ifndef CALM_ALGORITHMS_ALGORITHM_H
#define CALM_ALGORITHMS_ALGORITHM_H

#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"
#include "ptq/quant/qjob.h"
#include "ptq/quant/scheme.h"
#include "ptq/quant/stats.h"

/* One weight matrix. */
typedef struct calm_linear {
    const char *name;     /* of the module, for messages: "model.layers.0.self_attn.q_proj" */
    size_t out, in;
    const float *w;       /* [out, in], borrowed */
} calm_linear;

/* The linears of one block that read the same input. */
typedef struct calm_job {
    const char *name;             /* for messages: "model.layers.0.qkv"                             */
    const calm_linear *linears;   /* [n_linears], all with the same `in`                            */
    size_t n_linears;
    const calm_stats *stats;
    calm_scheme scheme;
    bool can_absorb;              /* a per-channel input scale can be folded into what feeds it     */
    const uint32_t *absorb_group; /* [I] inputs with equal numbers share one scale; NULL: each its own
                                   * (o: all query heads of a kv head read the same row of v)       */
    size_t n_absorb_groups;       /* numbers in absorb_group are below this                         */
} calm_job;

/* What the memory for a job follows from. */
typedef struct calm_job_shape {
    size_t out, in, group, n_groups;    /* O, I, columns per group, G                                */
    size_t n_samples;                   /* kept rows                                                 */
    size_t n_absorb_groups;             /* 0: every input has a scale of its own                     */
    size_t n_threads;                   /* that share the work on the job                            */
    bool symmetric;
} calm_job_shape;

/* Of a job with one thread, and neither kept rows nor groups of inputs. */
calm_job_shape calm_job_shape_of(const calm_scheme *scheme, size_t out, size_t in);

/* A parsed chain of parts with resolved options; opaque. */
typedef struct calm_algorithm calm_algorithm;

#define CALM_NEEDS_GRAM    (1u << 0)
#define CALM_NEEDS_ABSMAX  (1u << 1)
#define CALM_NEEDS_SUMS    (1u << 2)
#define CALM_NEEDS_SAMPLES (1u << 3)
#define CALM_SETS_IN_SCALE (1u << 8)
#define CALM_FITS_INPUT    (1u << 9)    /* to the input as it is then: no transform may follow */

/* Parse a name of presets.def ("gptq-hls") or a chain ("smooth(alpha=0.75)+hls(signed=true)+gptq") into ctx->out.
 * CALM_EARG: unknown name (the nearest is suggested), parts of the wrong kinds or order, a bad option. */
calm_status calm_algorithm_parse(calm_ctx *ctx, const char *text, calm_algorithm **out);

/* Preset name, or the chain as canonical text for one written by hand. */
const char *calm_algorithm_name(const calm_algorithm *algorithm);

/* The chain with every option and each part's revision: enters the candidate's key.
 * "hls@1(signed=true,rounds=8)+gptq@1(order=activation,damp=0.01)" */
const char *calm_algorithm_canonical(const calm_algorithm *algorithm);

/* CALM_NEEDS_* and CALM_SETS_* bits of all parts together. */
unsigned calm_algorithm_caps(const calm_algorithm *algorithm);

/* Can the algorithm quantize to this scheme?  CALM_EUNSUPPORTED, naming algorithm, part, scheme and why, when it
 * cannot. */
calm_status calm_algorithm_reaches(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_scheme *scheme);

/* Quantize a job into ctx->out; temporaries in ctx->scratch.
 * CALM_ENUMERIC: NaN or infinity in weights or statistics, no positive definite Gram matrix within the damping
 * limit, a scale out of range - with tensor, row and group; too few kept rows for a fit.  CALM_EUNSUPPORTED: as
 * calm_algorithm_reaches.
 * Runs in parallel over rows where that changes no sum (ctx->n_threads). */
calm_status calm_algorithm_run(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                               calm_qjob *out);

/* What it leaves in ctx->out, and the most that it holds of ctx->scratch, its workers together. */
size_t calm_algorithm_run_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape);
size_t calm_algorithm_run_scratch_bytes(const calm_algorithm *algorithm, const calm_job_shape *shape);

/* ---- the registries, for `calm algorithms` and the conformance tests ---- */

typedef struct calm_preset {
    const char *name, *chain, *summary, *reference;
} calm_preset;

/* Rows of presets.def in file order; *n their number. */
const calm_preset *calm_presets(size_t *n);

#endif
