/* Engines: what their kernels can run in each format - which scheme for which linear, and which linears must share a
 * scheme.
 *
 *   engine      by name; `any` asks for nothing
 *   reading     one format that it reads, with the schemes it takes in it for dense linears and for experts
 *   tie         jobs that the engine keeps in one tensor or under one quantization method: they share a scheme
 *
 * All is the table of engine_table.c (docs/targets.md has it as text, docs/evidence/engine_rules.csv its sources).
 * It knows neither models nor checkpoints: the solver asks it before anything is quantized, `calm check` about what is
 * on disk.  Shapes are those of one device: slices of tensor parallelism must satisfy the rules themselves. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/scheme.h"

/* Their names, `any` first, as the values of an option. */
#define CALM_ENGINE_NAMES "any|vllm|vllm-cpu|vllm-rocm|sglang|llamacpp|mlx|transformers"

/* What a scheme may break, in the order in which the rules are tried. */
typedef enum calm_engine_rule {
    CALM_ENGINE_TAKES,       /* no rule is broken                                   */
    CALM_ENGINE_FORMAT,      /* the engine does not read the format                 */
    CALM_ENGINE_FAMILY,      /* no kernel for levels and scales of this kind        */
    CALM_ENGINE_ACTIVATIONS, /* no kernel quantizes activations so                  */
    CALM_ENGINE_BITS,        /* no kernel for weights of this many bits             */
    CALM_ENGINE_ZEROS,       /* no kernel for zero points at this many bits         */
    CALM_ENGINE_GROUP,       /* a group size that no kernel has                     */
    CALM_ENGINE_ORDER,       /* groups that are not of neighbouring columns         */
    CALM_ENGINE_COLUMNS,     /* input columns that kernels or groups do not divide  */
    CALM_ENGINE_ROWS,        /* output rows that the kernels do not divide          */
    CALM_ENGINE_HEAD,        /* what its loader of heads does not put together      */
    CALM_N_ENGINE_RULES
} calm_engine_rule;

/* Which jobs share a scheme; each ties all that the one before it does. */
typedef enum calm_tie {
    CALM_TIE_NONE,          /* each its own                                                       */
    CALM_TIE_PROJECTION,    /* the experts of a block: gate and up of all, down of all            */
    CALM_TIE_BLOCK,         /* the experts of a block, all projections                            */
    CALM_TIE_EXPERTS,       /* the experts of the whole model                                     */
    CALM_TIE_MODEL          /* every job                                                          */
} calm_tie;

typedef struct calm_engine calm_engine;

/* A linear as the engine computes it: q, k, v and gate, up of one input are one (`out` of all of them). */
typedef struct calm_engine_linear {
    const char *name;    /* for messages; may be NULL where none is asked for                     */
    size_t out, in;
    bool expert;         /* of a mixture; the shared expert is none                               */
    size_t part;         /* rows that divide those of all its parts but the last: q, k; gate; 0: it has one part,
                          * or they are not known */
    bool head;           /* the model's head, one row for each token of the vocabulary */
} calm_engine_linear;

/* calm_engine_linear.part with one more part of `rows` rows. */
size_t calm_engine_part(size_t part, size_t rows);

/* By name; NULL: there is none. */
const calm_engine *calm_engine_find(const char *name);

/* By name.  CALM_EARG with the nearest and all of them. */
calm_status calm_engine_parse(calm_ctx *ctx, const char *name, const calm_engine **out);

/* "vllm"; the formats that it reads, best first, comma between ("" of `any`: every one).  Static. */
const char *calm_engine_name(const calm_engine *engine);
const char *calm_engine_formats(const calm_engine *engine);

/* What it was judged for: "NVIDIA GPUs", "x86 CPUs with AVX-512"; "" of `any`.  Static. */
const char *calm_engine_hardware(const calm_engine *engine);

/* Does it ask for nothing?  Also of NULL. */
bool calm_engine_is_any(const calm_engine *engine);

/* Does the engine read the format ("compressed-tensors", "gptq", "awq", "gguf", "mlx")?  `any` reads every one. */
bool calm_engine_reads(const calm_engine *engine, const char *format);

/* The first rule that the scheme breaks for the linear in this format (NULL: the engine's first), or CALM_ENGINE_TAKES.
 * A float scheme (bits 0) breaks none.  Needs no context and no name. */
calm_engine_rule calm_engine_verdict(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                                     const calm_scheme *scheme);

/* What that rule asks and what was found, half a sentence in ctx->out: "takes groups of 32, 64, 128 or one per row, not
 * 256".  Of CALM_ENGINE_TAKES "takes it". */
calm_status calm_engine_explain(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                const calm_engine_linear *linear, const calm_scheme *scheme, char **out);

/* CALM_EARG unless the engine takes the scheme for the linear, which has a name: engine, linear, scheme, the rule and
 * what would do, in one sentence. */
calm_status calm_engine_check_scheme(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                     const calm_engine_linear *linear, const calm_scheme *scheme);

/* Which jobs share a scheme in this format (NULL: the engine's first). */
calm_tie calm_engine_tie(const calm_engine *engine, const char *format);

/* The one of both that ties more: they are nested in the order of calm_tie. */
calm_tie calm_tie_both(calm_tie a, calm_tie b);

/* "all experts of a block"; static. */
const char *calm_tie_text(calm_tie tie);

/* Jobs with the same number share a scheme; 0: the job is free.  `expert` is false of a dense job, `down` tells the two
 * projections of an expert apart. */
size_t calm_tie_number(calm_tie tie, size_t block, bool expert, bool down);
