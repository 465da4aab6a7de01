/* Recipe spec: a recipe as written by the user - nothing resolved, nothing looked up.
 *
 * One table (calm_spec_table) says every value: its name on a command line, its place in a recipe's JSON, its type,
 * bounds and default.  Flags and documents fill the same struct through it: calm_spec_set, calm_spec_read
 * (ptq/recipe/document.h). Paths are relative to the working folder. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"

/* Calibration texts of a recipe at most: each is a domain whose statistics are kept apart. */
#define CALM_TEXTS_MAX 16

/* Room for the options of the table. */
#define CALM_SPEC_OPTIONS 72

/* SHA-256 that inputs must have; NULL and 0: any. */
typedef struct calm_demanded {
    const char *calib_sha256, *eval_sha256;    /* of the texts                         */
    const char **files, **sha256;              /* [n_files] of the model's directory   */
    size_t n_files;
} calm_demanded;

/* Of `calib_dtype`, behind those of calm_operands: what the CPU is fast with. */
enum { CALM_SPEC_OPERANDS_AUTO = CALM_OPERANDS_BF16X2 + 1 };

struct calm_recipe_spec {
    const char *model;                         /* directory, alias, ORG/NAME[@REVISION] */
    const char *adapter;                       /* directory; NULL: none                */
    calm_words accept_keys;
    int rotate;                                /* calm_rotate_kind                     */
    long long rotate_seed, bits;
    const char *gguf_type;                     /* "Q4_K_M"; NULL: none                 */
    calm_words schemes, algorithms;
    int scale_dtype, act_rule;                 /* 0: bf16, 1: f16; calm_act_rule       */
    calm_words calib;                          /* texts; none: the bundled one         */
    const char *tokens;
    const char *imatrix;                       /* importance matrix; NULL: none        */
    long long samples, seqlen, seed;           /* seed -1: the first windows           */
    bool no_special, encoder_stream;
    long long score_samples, guard_samples, probe_samples, expert_tokens;
    int sensitivity;                           /* calm_sensitivity                     */
    int prefix;                                /* calm_prefix                          */
    int weight;                                /* calm_row_weight                      */
    int calib_dtype;                           /* calm_operands, CALM_SPEC_OPERANDS_AUTO */
    const char *eval_text;
    long long eval_samples;
    bool no_eval;
    calm_range blocks;
    calm_words keep_float, ignore;             /* names or re:patterns of modules; two names of one list */
    const char *group_fallback;                /* "float", "row", columns; NULL: none  */
    calm_numbers budgets;
    const char *size;                          /* "3.0MB"; NULL: none                  */
    double file_bits;                          /* bits per weight of the file; 0: none */
    double act_budget;                         /* 0: none                              */
    int kv_cache;                              /* 0: none, 1: fp8                      */
    int preset;                                /* calm_recipe_preset                   */
    int unit, rule, effort;                    /* calm_unit, calm_choice_rule, calm_effort */
    double shortlist;                          /* 0: the rule's own                    */
    const char *metric;                        /* NULL: the rule's own                 */
    bool keep_hybrid, keep_candidates, split_v, exact_float;
    int learn;                                 /* calm_learn                           */
    long long learn_steps;
    int learn_loss;                            /* calm_learn_loss                      */
    calm_pairs pins;                           /* unit, candidate                      */
    calm_words forbid, gates, formats;
    const char *max_shard_size, *gguf_pre;
    int gguf_float;                            /* calm_export_float                    */
    const char *embed_scheme, *head_scheme;    /* NULL: the format's own                */
    const char *target, *kernels;
    const char *output, *store, *memory;
    bool force;
    bool given[CALM_SPEC_OPTIONS]; /* [options of the table] said by calm_spec_set: counts more than a document */
    calm_demanded demanded;                    /* a document alone says them           */
    const char *overrides; /* JSON object of what was given although the document has it; NULL: nothing */
};

/* Every option with its default, ended by a NULL name.  The first calm_spec_shared() of them, those before
 * "budget", are about candidates and their calibration, the others about choosing and writing one result. */
extern const calm_option calm_spec_table[];
size_t calm_spec_shared(void);

/* The defaults. */
calm_status calm_spec_init(calm_ctx *ctx, calm_recipe_spec *out);

/* Was the option of this name given? */
bool calm_spec_given(const calm_recipe_spec *spec, const char *name);

/* The command-line option of a key in a message: "budget" for "choice.budget" and for "budget"; NULL:
 * none. */
const char *calm_spec_flag(const char *key);

/* Comma lists of the schemes and algorithms of a spec that names none: those of `bits`, of a budget or of a
 * size.  Schemes NULL: there is none of this many bits.  Algorithms NULL: the default pool of the schemes. */
const char *calm_spec_default_schemes(const calm_recipe_spec *spec);
const char *calm_spec_default_algorithms(const calm_recipe_spec *spec);

/* What `keep-float` and `ignore` name together; in ctx->out. */
calm_status calm_spec_keep_float(calm_ctx *ctx, const calm_recipe_spec *spec, calm_words *out);

/* Has the file a size to keep to? */
bool calm_spec_sized(const calm_recipe_spec *spec);
