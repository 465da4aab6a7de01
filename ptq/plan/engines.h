/* Engines: what their kernels can run in each format - which scheme for which linear, and which linears must share a
 * scheme.
 *
 *   engine      has a name; `any` has no limits
 *   reading     one format that the engine reads, with the schemes that it runs for dense linears and for experts
 *   tie         jobs that the engine stores in one tensor or under one quantization method: they share a scheme
 *
 * The facts are in the table of engine_table.c (docs/targets.md prints it, docs/evidence/engine_rules.csv lists its
 * sources).  The table knows neither models nor checkpoints: the solver reads it before anything is quantized, `calm
 * check` reads it for written files.  Shapes are those of one device: each slice of tensor parallelism must itself
 * satisfy the rules. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/quant/scheme.h"

/* Names of the engines, `any` first, as the values of an option. */
#define CALM_ENGINE_NAMES "any|vllm|vllm-cpu|vllm-rocm|sglang|llamacpp|mlx|transformers"

/* The rule that a scheme breaks, in the order in which the rules are checked. */
typedef enum calm_engine_rule {
    CALM_ENGINE_TAKES,       /* no rule is broken                                   */
    CALM_ENGINE_FORMAT,      /* the engine does not read the format                 */
    CALM_ENGINE_FAMILY,      /* no kernel for levels and scales of this kind        */
    CALM_ENGINE_ACTIVATIONS, /* no kernel quantizes activations this way           */
    CALM_ENGINE_BITS,        /* no kernel for weights of this many bits             */
    CALM_ENGINE_ZEROS,       /* no kernel for zero points at this many bits         */
    CALM_ENGINE_GROUP,       /* no kernel for this group size                      */
    CALM_ENGINE_ORDER,       /* groups of columns that are not neighbours          */
    CALM_ENGINE_COLUMNS,     /* number of input columns is not a multiple of what kernels or groups need */
    CALM_ENGINE_ROWS,        /* number of output rows is not a multiple of what kernels need             */
    CALM_ENGINE_HEAD,        /* the engine's loader cannot load such a head        */
    CALM_N_ENGINE_RULES
} calm_engine_rule;

/* Which jobs share a scheme; each value ties all jobs that the value before it ties. */
typedef enum calm_tie {
    CALM_TIE_NONE,          /* no job shares                                                 */
    CALM_TIE_PROJECTION,    /* experts of a block: gate and up of all share, down of all share */
    CALM_TIE_BLOCK,         /* experts of a block share in all projections                   */
    CALM_TIE_EXPERTS,       /* all experts of the model share                                */
    CALM_TIE_MODEL          /* all jobs share                                                */
} calm_tie;

typedef struct calm_engine calm_engine;

/* A linear as the engine computes it: q, k, v (or gate, up) of one input are one linear, and `out` counts all rows. */
typedef struct calm_engine_linear {
    const char *name;    /* for messages; NULL is allowed where no message is made       */
    size_t out, in;
    bool expert;         /* of a mixture's expert; the shared expert counts as dense     */
    size_t part;         /* greatest common divisor of the row counts of all parts (q, k; gate) but the last;
                          * 0: one part, or the parts are unknown                        */
    bool head;           /* the model's head, with one row per token of the vocabulary   */
} calm_engine_linear;

/* Returns the `part` after one more part of `rows` rows: the greatest common divisor of both (`rows` if part is 0). */
size_t calm_engine_part(size_t part, size_t rows);

/* Returns the engine of that name; NULL: there is none. */
const calm_engine *calm_engine_find(const char *name);

/* Finds the engine of that name.  CALM_EARG: there is none; the message has the nearest name and all names. */
calm_status calm_engine_parse(calm_ctx *ctx, const char *name, const calm_engine **out);

/* Return "vllm"; and the formats that the engine reads, best first, comma-separated ("" for `any`).  Static. */
const char *calm_engine_name(const calm_engine *engine);
const char *calm_engine_formats(const calm_engine *engine);

/* Returns the hardware that the table's limits are for: "NVIDIA GPUs", "x86 CPUs with AVX-512"; "" for `any`. */
const char *calm_engine_hardware(const calm_engine *engine);

/* Returns true if the engine is `any` or NULL, which have no limits. */
bool calm_engine_is_any(const calm_engine *engine);

/* Returns true if the engine reads the format ("compressed-tensors", "gptq", "awq", "gguf", "mlx"); `any` reads all. */
bool calm_engine_reads(const calm_engine *engine, const char *format);

/* Returns the first rule that the scheme breaks for the linear in this format (NULL: the engine's first format), or
 * CALM_ENGINE_TAKES.  A float scheme (bits 0) breaks no rule.  The linear needs no name. */
calm_engine_rule calm_engine_verdict(const calm_engine *engine, const char *format, const calm_engine_linear *linear,
                                     const calm_scheme *scheme);

/* Describes what that rule asks and what was found, half a sentence in ctx->out: "takes groups of 32, 64, 128 or one
 * per row, not 256".  For CALM_ENGINE_TAKES the text is "takes it". */
calm_status calm_engine_explain(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                const calm_engine_linear *linear, const calm_scheme *scheme, char **out);

/* Fails with CALM_EARG unless the engine takes the scheme for the linear, which must have a name.  The sentence names
 * engine, linear, scheme, the broken rule and a remedy. */
calm_status calm_engine_check_scheme(calm_ctx *ctx, const calm_engine *engine, const char *format,
                                     const calm_engine_linear *linear, const calm_scheme *scheme);

/* Returns which jobs share a scheme in this format (NULL: the engine's first format). */
calm_tie calm_engine_tie(const calm_engine *engine, const char *format);

/* Returns the tie that ties more jobs. */
calm_tie calm_tie_stronger(calm_tie a, calm_tie b);

/* Returns the tie in words, "all experts of a block"; static. */
const char *calm_tie_text(calm_tie tie);

/* Returns the number of a job's set: jobs with the same number share a scheme; 0: the job is free.  `expert`: the job
 * is an expert's; `down`: it is the expert's down projection. */
size_t calm_tie_number(calm_tie tie, size_t block, bool expert, bool down);
