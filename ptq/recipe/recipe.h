/* Recipe: what a quantization run is asked to do, resolved - every value filled in, every name found. */
#pragma once

#include "algorithms/algorithm.h"
#include "algorithms/learner.h"
#include "ptq/export/rotate.h"
#include "ptq/recipe/formats.h"
#include "ptq/recipe/gates.h"
#include "ptq/recipe/model_names.h"
#include "ptq/base/option.h"
#include "ptq/base/sha256.h"
#include "ptq/model/model.h"
#include "ptq/plan/engines.h"
#include "ptq/io/json.h"
#include "ptq/plan/requests.h"
#include "ptq/plan/scores.h"

/* What every unit is offered: an algorithm and the scheme it is to reach. */
typedef struct calm_entry {
    const calm_algorithm *algorithm;
    calm_scheme scheme;
    size_t of_scheme;                       /* index into the recipe's schemes                            */
    const char *name;                       /* "gptq-hls"; with several schemes "gptq-hls w3a16_g128"     */
} calm_entry;

/* Whose output calibration rows of a block come from. */
typedef enum calm_prefix {
    CALM_PREFIX_FLOAT,
    CALM_PREFIX_QUANTIZED,
    CALM_PREFIX_ASYMMETRIC,    /* quantized, with the float one in lockstep: what outputs are to be */
} calm_prefix;

/* Where a job's input may have a channel scale.  A checkpoint holds the first alone; the others are to measure. */
typedef enum calm_input_scales {
    CALM_SCALES_FOLDED,    /* where a norm or a weight takes it                              */
    CALM_SCALES_NORMS,     /* also behind a norm that a residual or a router reads as well   */
    CALM_SCALES_FREE       /* everywhere                                                     */
} calm_input_scales;

#define CALM_INPUT_SCALES_NAMES "folded|norms|free"    /* in the order of calm_input_scales, for option tables */

/* What says how much a unit counts under a budget: the model run with it quantized, or gradients of the float model. */
/* AUTO is a wish: a recipe that is resolved has one of the others. */
typedef enum calm_sensitivity {
    CALM_SENSITIVITY_AUTO,
    CALM_SENSITIVITY_PROBE,
    CALM_SENSITIVITY_GRADIENT
} calm_sensitivity;
#define CALM_SENSITIVITY_NAMES "auto|probe|gradient"    /* in the order of calm_sensitivity, for option tables */

/* What a calibration row counts where algorithms are fitted to it (ptq/search/row_weights.h). */
typedef enum calm_row_weight {
    CALM_WEIGHT_NONE,
    CALM_WEIGHT_GRADIENT,
    CALM_WEIGHT_FIRST,
    CALM_WEIGHT_AUTO    /* none or first: calm_inputs_row_weight */
} calm_row_weight;
#define CALM_WEIGHT_NAMES "none|gradient|first|auto"    /* in the order of calm_row_weight, for option tables */

#define CALM_PREFIX_NAMES "float|quantized|asymmetric"    /* in the order of calm_prefix, for option tables */

/* What continues from a result by gradients, and how much a run tries; names in the order of the values. */
typedef enum calm_learn { CALM_LEARN_NONE, CALM_LEARN_BLOCKS, CALM_LEARN_KL, CALM_LEARN_BOTH, CALM_N_LEARN } calm_learn;
typedef enum calm_effort { CALM_EFFORT_FULL, CALM_EFFORT_LIGHT, CALM_EFFORT_HIGH } calm_effort;
/* What tuning an encoder is by: its embeddings; the relations of its last attention, too. */
typedef enum calm_learn_loss { CALM_LEARN_OUTPUT, CALM_LEARN_MINI } calm_learn_loss;
#define CALM_LEARN_LOSS_NAMES "output|mini"
#define CALM_LEARN_NAMES "none|blocks|kl|both"
#define CALM_EFFORT_NAMES "full|light|high"

typedef struct calm_recipe {
    calm_named_model model;
    calm_model_how how;                     /* the model is opened */
    calm_rotate_kind rotate;                /* what of the float model is rotated before anything else */
    long long rotate_seed;
    calm_scheme *schemes;                   /* [n_schemes] */
    bool *act_range_explicit;               /* [n_schemes] the name says the range of activations */
    size_t n_schemes;
    const char *scheme_note;                /* how they were completed; NULL: they are as typed */
    const char *pool_note;                  /* the same of the pool                             */
    calm_entry *pool;                       /* [n_pool] scheme after scheme, each with its algorithms */
    size_t n_pool;
    const char *calib_path, *calib_name;    /* text or JSON lines; as shown ("bundled ...", "a.txt + b.txt") */
    const char **more_texts;                /* [n_more_texts] paths of those after it, which share its windows */
    size_t n_more_texts;
    bool calib_is_token_ids;                /* calib_path is a token file */
    long long calib_windows, seqlen, seed;  /* windows, tokens per window, < 0: the first windows */
    long long score_windows;                /* of the calibration windows, the first ones */
    long long score_rows;                   /* at most this many of their rows; 0: all */
    bool unscored;                          /* one candidate per unit, whose scores nothing asks for */
    long long guard_windows;                /* outside calibration; 0: no guard */
    bool add_special_tokens;                /* windows of texts begin as the tokenizer's template does */
    bool encoder_stream;                    /* encoders read windows as decoders do, not sentences */
    calm_selection selection;
    unsigned score_points;                  /* bit k: score at calm_point k; of a job always */
    bool want_cka_linear;                   /* cka_linear is wanted of every job */
    calm_prefix prefix;
    calm_row_weight weight;                 /* of calibration rows */
    const char *imatrix;                    /* file of mean squares of inputs; NULL: the calibration's own */
    calm_operands operands;                 /* of the calibration's products; of all: calm_recipe_operands */
    calm_input_scales input_scales;
    bool skip_smoothing;                    /* smoothing is not tried where inputs have no outliers */
    double *budgets;                        /* [n_budgets] bits per weight, rising; none: no budget; infinity
                                             * alone: activations or the file have one */
    size_t n_budgets;
    size_t file_bytes;                      /* that the file may have; 0: any.  A size is an infinite budget, of which
                                             * the pool's file says what it is (ptq/plan/pool.h) */
    double file_bits;                       /* the same as bits per weight of its tensors; 0: any */
    const char *file_asked;                 /* "`choice.size` 3.0MB"; NULL: neither */
    double act_budget;                      /* mean bits of activations; 0: no budget */
    long long probe_windows;                /* of the calibration windows, the first ones */
    calm_sensitivity sensitivity;           /* of units under a budget */
    calm_learn learn;                       /* what continues from the result */
    calm_learner *learner;                  /* of blocks; NULL: none */
    long long learn_steps;
    long long tune_steps;                   /* of the whole model; 0: none */
    double tune_rate;
    calm_learn_loss learn_loss;
    bool kv_cache;                          /* keys and values are kept in 8 bits */
    bool split_v;                           /* v is its own job                     */
    bool exact_float;                       /* quantized inputs are simulated in float where plans are measured */
    bool keep_hybrid;                       /* even when a uniform run is better */
    bool keep_candidates;                   /* the store keeps the codes of rejected candidates too */
    const char *eval_path, *eval_name;      /* NULL: no evaluation */
    long long eval_windows;                 /* 0: all; -1: what the run's cost allows */
    calm_formats formats;                   /* that the result is written in */
    const char *output;                     /* checkpoint directory; NULL: none is written */
    const char *store;                      /* SQLite file */
    bool force;
    long long first_block, last_block;      /* blocks to quantize, both included; last < 0: to the end */
    calm_words keep_float;                  /* names or re:patterns of modules that stay float */
    calm_words float_pins;                  /* names or patterns of units that stay float */
    bool float_groups;                      /* linears that groups do not divide stay float */
    long long least_tokens;                 /* an expert that saw fewer is rounded without data; 0: 4 groups */
    const struct calm_knobs *knobs;         /* instead of those that fit (memory_plan.h); NULL: chosen by memory */
    calm_pin *pins;                         /* [n_pins] units whose candidate is said */
    size_t n_pins;
    calm_word *forbidden;                   /* [n_forbidden] as typed; what is named so is not in the pool */
    size_t n_forbidden;
    calm_word *forbid;                      /* [n_forbid] those that name one candidate by its number */
    size_t n_forbid;
    const calm_engine *engine;              /* engine that the result is for; NULL: any */
    const char *engine_format;              /* of the formats to write, one that it reads; NULL: its first */
    calm_tie engine_tie;                    /* jobs that share a scheme for it and for what is written */
    calm_gate *gates;                       /* [n_gates] what the result must hold */
    size_t n_gates;
    const char *kernels;                    /* OpenBLAS core type; NULL: what it takes itself */
    const char *overrides;                  /* JSON object of what the command line says instead of the recipe
                                             * file; NULL: nothing.  Not in calm_recipe_json                      */
    const char *document; /* JSON text of the recipe file that says the same (ptq/recipe/document.h), which
                           * goes into the checkpoint; NULL: the resolved form does              */
    const char *memory;                     /* bytes this process may have resident: "2GB"; NULL: 70 % of free */
} calm_recipe;

/* least_tokens, or its default: 4 times the scheme's group (of 128, for a scheme without groups). */
size_t calm_recipe_least_tokens(const calm_recipe *recipe);

/* Is float one of the schemes? */
bool calm_recipe_has_float(const calm_recipe *recipe);

/* CALM_NEEDS_* and CALM_SETS_* bits of the pool: what at least one algorithm needs or sets. */
unsigned calm_recipe_caps(const calm_recipe *recipe);

/* Operands of products in all of a run but the calibration.  Float32 where that has one bfloat16: in measures rounding
 * would count as a difference of the model, and gradients are small. */
calm_operands calm_recipe_operands(const calm_recipe *recipe);

/* Are rows of the inputs kept for any algorithm of the pool, on jobs whose linears have biases or have none? */
bool calm_recipe_keeps_rows(const calm_recipe *recipe, bool biased);

/* Is cka_linear measured?  Where it is wanted; it is of weight-only schemes, and needs the Gram matrix. */
bool calm_recipe_scores_linear(const calm_recipe *recipe);

/* Are groups of any scheme of inputs by falling power? */
bool calm_recipe_orders(const calm_recipe *recipe);

/* Does anything of the recipe read what the model's linears read?  Rounding to nearest that is not scored does not. */
bool calm_recipe_needs_rows(const calm_recipe *recipe);

/* The algorithm of a head that is quantized: one that is fitted to what the head reads, where the pool has algorithms
 * that read data; where the pool is one algorithm that reads nothing (`rtn`), that one, which rounds the embedding too.
 * NULL: scales are those of the least squared error, or no format of the recipe quantizes tables.
 * calm_recipe_head_choice: the same of formats, and of a pool whose algorithms have `caps` together; `only`: its only
 * one, else NULL. */
const char *calm_recipe_head_algorithm(const calm_recipe *recipe);
const char *calm_recipe_head_choice(const calm_formats *formats, unsigned caps, const char *only);

/* Is that algorithm fitted to data? */
bool calm_recipe_fits_head(const calm_recipe *recipe);

/* Has any scheme quantized activations? */
bool calm_recipe_quantizes_activations(const calm_recipe *recipe);

/* May an input scale of the job stay at its input? */
bool calm_recipe_frees_scale(const calm_recipe *recipe, const calm_job_ref *job);

/* Can input scales of a job be folded into what feeds it?  Those of qkv and gate_up go into a norm; those of o and down
 * into rows whose codes are fixed by then, at any of the recipe's schemes. */
bool calm_recipe_folds_scale(const calm_recipe *recipe, const calm_layout *layout, size_t job);

/* Path of calibration text `i` of 1 + n_more_texts. */
const char *calm_recipe_text(const calm_recipe *recipe, size_t i);

/* Files and folders that a run of the recipe reads or keeps: model, texts, store; into ctx->out.  An output must not
 * replace one of them. */
calm_status calm_recipe_inputs(calm_ctx *ctx, const calm_recipe *recipe, calm_words *out);

/* What several texts are called together, "a.txt + b.txt", in ctx->out. */
calm_status calm_recipe_texts_name(calm_ctx *ctx, const calm_words *names, const char **out);

/* SHA-256 of the calibration text; of several one over theirs, in their order.  CALM_EIO or CALM_ENOTFOUND with the
 * path. */
calm_status calm_recipe_text_digest(calm_ctx *ctx, const calm_recipe *recipe, char hex[CALM_SHA256_HEX]);

/* "blocks" */
const char *calm_recipe_learn_name(calm_learn learn);

/* The recipe as JSON: everything that decides the result, in a fixed order.  Freed by the caller. */
calm_json *calm_recipe_json(const calm_recipe *recipe);

/* How the recipe that `json` is the JSON of opens its model; texts are borrowed from it. */
calm_status calm_recipe_how(calm_ctx *ctx, const calm_json *json, calm_model_how *out);

/* Parse scheme names into recipe->schemes, in ctx->out.  CALM_EARG: none, a bad name, "float", one named twice. */
calm_status calm_recipe_schemes(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe);

/* Parse algorithms - names, or chains "smooth(alpha=0.75)+hls+gptq" - in ctx->out, and make the pool of them and the
 * recipe's schemes.  With several schemes an algorithm is left out where it cannot reach one. CALM_EARG: nothing named,
 * an unknown algorithm, one named twice.  CALM_EUNSUPPORTED: an algorithm that reaches none. */
calm_status calm_recipe_algorithms(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe);

/* Of algorithms that nobody named, as the default pool, keep those that reach one of the recipe's schemes, and that may
 * gain there by what they do; all of them where none does.  Before calm_recipe_algorithms, which refuses an algorithm
 * that reaches none.  CALM_EARG: an unknown one. */
calm_status calm_recipe_keep_reaching(calm_ctx *ctx, const calm_recipe *recipe, calm_words *names);

/* Entries of a recipe's pool as plain data, [n_pool] in ctx->out. */
calm_status calm_recipe_entries(calm_ctx *ctx, const calm_recipe *recipe, calm_pool_entry **out);
