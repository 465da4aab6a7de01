/* Targets: what an engine's kernels take of a format - which scheme for which linear, and which linears share one.
 *
 *   target      an engine by name; `any` asks for nothing
 *   reading     one format that it reads, with the schemes it takes in it for dense linears and for experts
 *   tie         jobs that the engine keeps in one tensor or under one quantization method: they share a scheme
 *
 * Everything is one table in targets.c (docs/targets.md has it as text, with where each rule comes from).  It knows
 * neither models nor checkpoints, so the solver asks it before anything is quantized and `calm check` about what lies on
 * disk.  Shapes are those of one device: slices of tensor parallelism must satisfy the rules themselves. */
#ifndef CALM_PLAN_TARGETS_H
#define CALM_PLAN_TARGETS_H

#include "ptq/base/context.h"
#include "ptq/quant/scheme.h"

/* Their names, `any` first, as the values of an option. */
#define CALM_TARGET_NAMES "any|vllm|sglang|llamacpp|mlx|transformers"

/* X(RULE, name, what a target asks): in the order in which they are tried. */
#define CALM_TARGET_RULE_LIST(X)                                                                             \
    X(FORMAT, "format", "a format that it reads")                                                            \
    X(ACTIVATIONS, "activations", "activations that its kernels quantize")                                   \
    X(BITS, "bits", "weights of so many bits")                                                               \
    X(ZEROS, "zeros", "zero points at so many bits")                                                         \
    X(GROUP, "group", "a group size that its kernels know")                                                  \
    X(COLUMNS, "columns", "input columns that the kernels and groups divide")                                \
    X(ROWS, "rows", "output rows that the kernels divide")

typedef enum calm_target_rule {
    CALM_TARGET_TAKES,    /* no rule is broken */
#define CALM_TARGET_RULE_ENUM(rule, name, help) CALM_TARGET_##rule,
    CALM_TARGET_RULE_LIST(CALM_TARGET_RULE_ENUM)
#undef CALM_TARGET_RULE_ENUM
    CALM_N_TARGET_RULES
} calm_target_rule;

/* "takes", "bits"; static. */
const char *calm_target_rule_name(calm_target_rule rule);

/* Which jobs share a scheme; each ties all that the one before it does. */
typedef enum calm_tie {
    CALM_TIE_NONE,          /* each its own                                                       */
    CALM_TIE_PROJECTION,    /* the experts of a block: gate and up of all, down of all            */
    CALM_TIE_BLOCK,         /* the experts of a block, all projections                            */
    CALM_TIE_EXPERTS,       /* the experts of the whole model                                     */
    CALM_TIE_MODEL          /* every job                                                          */
} calm_tie;

typedef struct calm_target calm_target;

/* A linear as the engine computes it: q, k, v and gate, up of one input are one (`out` of all of them). */
typedef struct calm_target_linear {
    const char *name;    /* for messages; may be NULL where none is asked for                     */
    size_t out, in;
    bool expert;         /* of a mixture; the shared expert is none                               */
} calm_target_linear;

/* The targets in the order of CALM_TARGET_NAMES, `any` first; *n their number.  Static. */
const calm_target *const *calm_targets(size_t *n);

/* By name; NULL: there is none. */
const calm_target *calm_target_find(const char *name);

/* By name.  CALM_EARG with the nearest and all of them. */
calm_status calm_target_parse(calm_ctx *ctx, const char *name, const calm_target **out);

/* "vllm"; a few words about it; the formats it reads, best first, comma between ("" of `any`: every one).  Static. */
const char *calm_target_name(const calm_target *target);
const char *calm_target_summary(const calm_target *target);
const char *calm_target_formats(const calm_target *target);

/* Does it ask for nothing?  Also of NULL. */
bool calm_target_is_any(const calm_target *target);

/* Does the engine read the format ("compressed-tensors", "gptq", "awq", "gguf", "mlx")?  `any` reads every one. */
bool calm_target_reads(const calm_target *target, const char *format);

/* The first rule that the scheme breaks for the linear in this format (NULL: the target's first), or CALM_TARGET_TAKES.
 * A float scheme (bits 0) breaks none.  Needs no context and no name. */
calm_target_rule calm_target_verdict(const calm_target *target, const char *format, const calm_target_linear *linear,
                                     const calm_scheme *scheme);

/* What that rule asks and what was found, half a sentence in ctx->out: "takes groups of 32, 64, 128 or one per row, not
 * 256".  Of CALM_TARGET_TAKES "takes it". */
calm_status calm_target_explain(calm_ctx *ctx, const calm_target *target, const char *format,
                                const calm_target_linear *linear, const calm_scheme *scheme, char **out);

/* A usual scheme that the target takes for the linear, nearest to `scheme` in bits (its kind of activations first), into
 * *out; false: none of the usual ones. */
bool calm_target_propose(const calm_target *target, const char *format, const calm_target_linear *linear,
                         const calm_scheme *scheme, calm_scheme *out);

/* CALM_EARG unless the target takes the scheme for the linear, which has a name: target, linear, scheme, the rule and what
 * would do, in one sentence. */
calm_status calm_target_check_scheme(calm_ctx *ctx, const calm_target *target, const char *format,
                                     const calm_target_linear *linear, const calm_scheme *scheme);

/* CALM_EARG when the target does not read the format: names what it reads. */
calm_status calm_target_check_format(calm_ctx *ctx, const calm_target *target, const char *format);

/* Which jobs share a scheme in this format (NULL: the target's first). */
calm_tie calm_target_tie(const calm_target *target, const char *format);

/* The one of both that ties more: they are nested in the order of calm_tie. */
calm_tie calm_tie_both(calm_tie a, calm_tie b);

/* "all experts of a block"; static. */
const char *calm_tie_text(calm_tie tie);

/* Jobs with the same number share a scheme; 0: the job is free.  `expert` is false of a dense job, `down` tells the two
 * projections of an expert apart. */
size_t calm_tie_number(calm_tie tie, size_t block, bool expert, bool down);

#endif
