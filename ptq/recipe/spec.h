/* Recipe spec: a recipe as the user wrote it; no name is resolved.
 *
 * One table (calm_spec_table) has for every value: its command-line option, its place in a recipe's JSON, its type,
 * bounds and default.  Options and documents fill the same struct through the table: calm_spec_set, calm_spec_read
 * (ptq/recipe/document.h).  Paths are relative to the working folder. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"

/* The most calibration texts; calm keeps statistics of each text, a domain, separately. */
#define CALM_TEXTS_MAX 16

/* The most options of the table. */
#define CALM_SPEC_OPTIONS 72

/* SHA-256 digests that input files must have; NULL and 0: any. */
typedef struct calm_demanded {
    const char *calib_sha256, *eval_sha256;    /* of the texts                         */
    const char **files, **sha256;              /* [n_files] files of the model's directory */
    size_t n_files;
} calm_demanded;

/* A value of `calib_dtype` after those of calm_operands: the dtype that is fastest on this CPU. */
enum { CALM_SPEC_OPERANDS_AUTO = CALM_OPERANDS_BF16X2 + 1 };

struct calm_recipe_spec {
    const char *model;                         /* directory, alias, ORG/NAME[@REVISION] */
    const char *adapter;                       /* directory; NULL: none                */
    calm_words accept_keys;                    /* keys of config.json that may be unknown */
    int rotate;                                /* calm_rotate_kind                     */
    long long rotate_seed, bits;
    const char *gguf_type;                     /* "Q4_K_M"; NULL: none                 */
    calm_words schemes, algorithms;
    int scale_dtype, act_rule;                 /* 0: bf16, 1: f16; calm_act_rule       */
    calm_words calib;                          /* texts; empty: the bundled text */
    const char *tokens;
    const char *imatrix;                       /* importance matrix; NULL: none        */
    long long samples, seqlen, seed;           /* seed -1: the first windows           */
    bool no_special, encoder_stream;
    long long score_samples, guard_samples, probe_samples, expert_tokens;    /* the first two: -1: by the run */
    int sensitivity;                           /* calm_sensitivity                     */
    int prefix;                                /* calm_prefix                          */
    int weight;                                /* calm_row_weight                      */
    int calib_dtype;                           /* calm_operands, CALM_SPEC_OPERANDS_AUTO */
    const char *eval_text;
    long long eval_samples;
    bool no_eval;
    calm_range blocks;
    calm_words keep_float, ignore;             /* names or re:patterns of modules; calm_spec_keep_float joins both */
    const char *group_fallback;                /* "float", "row", columns; NULL: none  */
    calm_numbers budgets;
    const char *size;                          /* "3.0MB"; NULL: none                  */
    double file_bits;                          /* bits per weight of the file; 0: none */
    double act_budget;                         /* 0: none                              */
    int kv_cache;                              /* 0: none, 1: fp8                      */
    int preset;                                /* calm_recipe_preset                   */
    int unit, rule, effort;                    /* calm_unit, calm_choice_rule, calm_effort */
    double shortlist;                          /* 0: the rule's default */
    const char *metric;                        /* NULL: the rule's default */
    bool keep_hybrid, keep_candidates, split_v, exact_float;
    int learn;                                 /* calm_learn                           */
    long long learn_steps;
    int learn_loss;                            /* calm_learn_loss                      */
    calm_pairs pins;                           /* unit, candidate                      */
    calm_words forbid, gates, formats;
    const char *max_shard_size, *gguf_pre;
    int gguf_float;                            /* calm_export_float                    */
    const char *embed_scheme, *head_scheme;    /* NULL: the format's default */
    const char *target, *kernels;
    const char *output, *store, *memory;
    bool force;
    bool given[CALM_SPEC_OPTIONS]; /* [options of the table] set by calm_spec_set; wins over a document */
    calm_demanded demanded;                    /* only a document sets it */
    const char *overrides; /* JSON object of given options that the document has too; NULL: none */
};

/* Every option with its default, ended by a NULL name.  The first calm_spec_shared() options, those before "budget",
 * are about candidates and calibration; the others are about choosing and writing one result. */
extern const calm_option calm_spec_table[];
size_t calm_spec_shared(void);

/* Fills a spec with the defaults. */
calm_status calm_spec_init(calm_ctx *ctx, calm_recipe_spec *out);

/* Returns true if the option of this name was given. */
bool calm_spec_given(const calm_recipe_spec *spec, const char *name);

/* Returns the command-line option of a key in a message: "budget" for "choice.budget" and for "budget"; NULL: the key
 * has none. */
const char *calm_spec_flag(const char *key);

/* Return the default schemes and algorithms of a spec that names none, as comma lists; they depend on `bits`, a budget
 * or a size.  Schemes NULL: there is none of this many bits.  Algorithms NULL: the default pool of the schemes. */
const char *calm_spec_default_schemes(const calm_recipe_spec *spec);
const char *calm_spec_default_algorithms(const calm_recipe_spec *spec);

/* Joins `keep-float` and `ignore` in ctx->out. */
calm_status calm_spec_keep_float(calm_ctx *ctx, const calm_recipe_spec *spec, calm_words *out);

/* Returns true if the file has a size limit. */
bool calm_spec_sized(const calm_recipe_spec *spec);
