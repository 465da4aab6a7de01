/* Recipe: all settings of a quantization run after resolving: every value is filled in, every name is found. */
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

/* One entry of the pool: an algorithm at a scheme. */
typedef struct calm_entry {
    const calm_algorithm *algorithm;
    calm_scheme scheme;
    size_t of_scheme;                       /* index into the recipe's schemes                            */
    const char *name;                       /* "gptq-hls"; with several schemes "gptq-hls w3a16_g128"     */
} calm_entry;

/* Which blocks compute the calibration inputs of a block: float blocks, or the quantized blocks before it. */
typedef enum calm_prefix {
    CALM_PREFIX_FLOAT,
    CALM_PREFIX_QUANTIZED,
    CALM_PREFIX_ASYMMETRIC,    /* inputs from quantized blocks, target outputs from float blocks */
} calm_prefix;

/* Which jobs may have an input scale per channel.  Only CALM_SCALES_FOLDED can be exported; the others are for
 * measurements. */
typedef enum calm_input_scales {
    CALM_SCALES_FOLDED,    /* jobs whose scale can be folded into a norm or a weight */
    CALM_SCALES_NORMS,     /* also jobs behind a norm that a residual or a router reads too */
    CALM_SCALES_FREE       /* all jobs */
} calm_input_scales;

#define CALM_INPUT_SCALES_NAMES "folded|norms|free"    /* in the order of calm_input_scales, for option tables */

/* How the sensitivity of a unit is measured for a budget: the KL of the model with that unit quantized, or gradients of
 * the float model.  Resolving replaces AUTO by one of the others. */
typedef enum calm_sensitivity {
    CALM_SENSITIVITY_AUTO,
    CALM_SENSITIVITY_PROBE,
    CALM_SENSITIVITY_GRADIENT
} calm_sensitivity;
#define CALM_SENSITIVITY_NAMES "auto|probe|gradient"    /* in the order of calm_sensitivity, for option tables */

/* The weight of a calibration row (token) in the fits of algorithms (ptq/search/row_weights.c). */
typedef enum calm_row_weight {
    CALM_WEIGHT_NONE,
    CALM_WEIGHT_GRADIENT,
    CALM_WEIGHT_FIRST,
    CALM_WEIGHT_AUTO    /* none or first: calm_inputs_row_weight */
} calm_row_weight;
#define CALM_WEIGHT_NAMES "none|gradient|first|auto"    /* in the order of calm_row_weight, for option tables */

#define CALM_PREFIX_NAMES "float|quantized|asymmetric"    /* in the order of calm_prefix, for option tables */

/* What is learned by gradients from a result, and how many algorithms a run tries; names in the order of the values. */
typedef enum calm_learn { CALM_LEARN_NONE, CALM_LEARN_BLOCKS, CALM_LEARN_KL, CALM_LEARN_BOTH, CALM_N_LEARN } calm_learn;
typedef enum calm_effort { CALM_EFFORT_FULL, CALM_EFFORT_LIGHT, CALM_EFFORT_HIGH } calm_effort;
/* The loss for tuning an encoder: on its embeddings; or also on the relations of its last attention (MiniLM). */
typedef enum calm_learn_loss { CALM_LEARN_OUTPUT, CALM_LEARN_MINI } calm_learn_loss;
#define CALM_LEARN_LOSS_NAMES "output|mini"
#define CALM_LEARN_NAMES "none|blocks|kl|both"
#define CALM_EFFORT_NAMES "full|light|high"

typedef struct calm_recipe {
    calm_named_model model;
    calm_model_how how;                     /* how the model is opened */
    calm_rotate_kind rotate;                /* rotation of the float model before anything else */
    long long rotate_seed;
    calm_scheme *schemes;                   /* [n_schemes] */
    bool *act_range_explicit;               /* [n_schemes] the scheme's name sets the range of activations */
    size_t n_schemes;
    const char *scheme_note;                /* how schemes were completed; NULL: they are as typed */
    const char *pool_note;                  /* how the pool was completed; NULL: it is as typed */
    calm_entry *pool;                       /* [n_pool] sorted by scheme, then by algorithm */
    size_t n_pool;
    const char *calib_path, *calib_name;    /* text or JSON lines; its name ("bundled ...", "a.txt + b.txt") */
    const char **more_texts;                /* [n_more_texts] paths of further texts, which share the windows */
    size_t n_more_texts;
    bool calib_is_token_ids;                /* calib_path is a token file */
    long long calib_windows, seqlen, seed;  /* windows; tokens per window; seed < 0: the first windows of the text */
    long long score_windows;                /* the first calibration windows, on which scores are measured */
    long long score_rows;                   /* the most rows (tokens) of these windows; 0: all */
    bool unscored;                          /* one candidate per unit, whose scores nothing reads */
    long long guard_windows;                /* windows outside calibration; 0: no guard */
    bool add_special_tokens;                /* windows of texts begin as the tokenizer's template does */
    bool encoder_stream;                    /* encoders read windows as decoders do, not sentences */
    calm_selection selection;
    unsigned score_points;                  /* bit k: score at calm_point k; CALM_POINT_JOB is always set */
    bool want_cka_linear;                   /* measure cka_linear of every job */
    calm_prefix prefix;
    calm_row_weight weight;                 /* weight of calibration rows */
    const char *imatrix;                    /* file of mean squares of activations; NULL: computed by the calibration */
    calm_operands operands;                 /* dtype of the calibration's matrix products (also calm_recipe_operands) */
    calm_input_scales input_scales;
    bool skip_smoothing;                    /* smoothing is not tried for inputs without outliers */
    double *budgets;                        /* [n_budgets] bits per weight, ascending; n 0: no budget; one infinite
                                             * budget: activations or the file have a budget */
    size_t n_budgets;
    size_t file_bytes;                      /* size limit of the file; 0: none.  A size is an infinite budget, whose
                                             * limit is in the pool's file (ptq/plan/pool.h) */
    double file_bits;                       /* size limit as bits per weight of the file's tensors; 0: none */
    const char *file_asked;                 /* "`choice.size` 3.0MB"; NULL: neither limit */
    double act_budget;                      /* mean bits of activations; 0: no budget */
    long long probe_windows;                /* the first calibration windows, on which units are probed */
    calm_sensitivity sensitivity;           /* how units are weighed for a budget */
    calm_learn learn;                       /* what is learned from the result */
    calm_learner *learner;                  /* learner of blocks; NULL: none */
    long long learn_steps;
    long long tune_steps;                   /* steps of tuning the whole model; 0: none */
    double tune_rate;
    calm_learn_loss learn_loss;
    bool kv_cache;                          /* the KV cache is stored in 8 bits */
    bool split_v;                           /* v is a separate job */
    bool exact_float;                       /* plans are measured with float products, never with integer products */
    bool keep_hybrid;                       /* keep the hybrid even if a uniform run is better */
    bool keep_candidates;                   /* keep the codes of rejected candidates in the store */
    const char *eval_path, *eval_name;      /* NULL: no evaluation */
    long long eval_windows;                 /* 0: all windows; -1: as many as the cost of the run allows */
    calm_formats formats;                   /* formats of the written result */
    const char *output;                     /* checkpoint directory; NULL: nothing is written */
    const char *store;                      /* SQLite file */
    bool force;
    long long first_block, last_block;      /* blocks to quantize, both included; last < 0: the model's last */
    calm_words keep_float;                  /* names or re:patterns of modules that stay float */
    calm_words float_pins;                  /* names or patterns of units that stay float */
    bool float_groups;                      /* linears whose columns the group size does not divide stay float */
    long long least_tokens;                 /* experts with fewer tokens are rounded to nearest; 0: 4 groups */
    const struct calm_knobs *knobs;         /* memory knobs (memory_plan.h); NULL: chosen to fit the memory */
    calm_pin *pins;                         /* [n_pins] pinned units */
    size_t n_pins;
    calm_word *forbidden;                   /* [n_forbidden] as typed; the pool lacks the entries that they name */
    size_t n_forbidden;
    calm_word *forbid;                      /* [n_forbid] the words that name one candidate by its number */
    size_t n_forbid;
    const calm_engine *engine;              /* engine that must run the result; NULL: any */
    const char *engine_format;              /* written format that the engine reads; NULL: the engine's first */
    calm_tie engine_tie;                    /* jobs that engine or written formats tie to one scheme */
    calm_gate *gates;                       /* [n_gates] conditions for the result */
    size_t n_gates;
    const char *kernels;                    /* OpenBLAS core type; NULL: OpenBLAS chooses */
    const char *overrides;                  /* JSON object of the options that override the recipe file; NULL: none.
                                             * Not in calm_recipe_json */
    const char *document;                   /* JSON text of the recipe file (ptq/recipe/document.h) that the checkpoint
                                             * gets; NULL: it gets the resolved form */
    const char *memory;                     /* limit of this process's resident memory: "2GB"; NULL: 70 % of free */
} calm_recipe;

/* Returns least_tokens, or its default: 4 times the scheme's group (4 x 128 for a scheme without groups). */
size_t calm_recipe_least_tokens(const calm_recipe *recipe);

/* Returns true if one of the schemes is float. */
bool calm_recipe_has_float(const calm_recipe *recipe);

/* Returns the union of the CALM_NEEDS_* and CALM_SETS_* bits of the pool's algorithms. */
unsigned calm_recipe_caps(const calm_recipe *recipe);

/* Returns the dtype of matrix products outside the calibration: float32 if the calibration's is one bfloat16, because
 * its rounding would count as an error of the model in measurements, and because gradients are small. */
calm_operands calm_recipe_operands(const calm_recipe *recipe);

/* Returns true if an algorithm of the pool needs the input rows of jobs whose linears have biases (`biased`) or
 * none. */
bool calm_recipe_keeps_rows(const calm_recipe *recipe, bool biased);

/* Returns true if cka_linear is measured: it is wanted, schemes are weight-only, and there is a Gram matrix. */
bool calm_recipe_scores_linear(const calm_recipe *recipe);

/* Returns true if a scheme groups the inputs in order of falling power (activation order). */
bool calm_recipe_orders(const calm_recipe *recipe);

/* Returns true if the run needs inputs of the model's linears at all; unscored rounding to nearest does not. */
bool calm_recipe_needs_rows(const calm_recipe *recipe);

/* Returns the algorithm for a quantized head: one that is fitted to the head's inputs, if the pool's algorithms read
 * data; the pool's only algorithm if that reads no data (`rtn`), which then rounds the embedding too.  NULL: scales of
 * least squared error, or no format quantizes tables.
 * _choice: the same from formats, the union `caps` of the pool's algorithms, and the pool's only algorithm `only` (or
 * NULL). */
const char *calm_recipe_head_algorithm(const calm_recipe *recipe);
const char *calm_recipe_head_choice(const calm_formats *formats, unsigned caps, const char *only);

/* Returns true if that algorithm is fitted to data. */
bool calm_recipe_fits_head(const calm_recipe *recipe);

/* Returns true if a scheme quantizes activations. */
bool calm_recipe_quantizes_activations(const calm_recipe *recipe);

/* Returns true if an unfolded input scale of the job is allowed to stay at its input. */
bool calm_recipe_frees_scale(const calm_recipe *recipe, const calm_job_ref *job);

/* Returns true if the job's input scale can be folded into what computes its input.  Scales of qkv and gate_up fold
 * into a norm; those of o and down fold into rows of v and up, whose codes are fixed, at any scheme of the recipe. */
bool calm_recipe_folds_scale(const calm_recipe *recipe, const calm_layout *layout, size_t job);

/* Returns the path of calibration text `i` of 1 + n_more_texts. */
const char *calm_recipe_text(const calm_recipe *recipe, size_t i);

/* Lists the files and folders that a run of the recipe reads or keeps (model, texts, store) in ctx->out.  An output
 * must not replace any of them. */
calm_status calm_recipe_inputs(calm_ctx *ctx, const calm_recipe *recipe, calm_words *out);

/* Returns the joint name of several texts, "a.txt + b.txt", in ctx->out. */
calm_status calm_recipe_texts_name(calm_ctx *ctx, const calm_words *names, const char **out);

/* Computes the SHA-256 of the calibration text; for several texts the SHA-256 over their digests, in order.  CALM_EIO,
 * CALM_ENOTFOUND: the message has the path. */
calm_status calm_recipe_text_digest(calm_ctx *ctx, const calm_recipe *recipe, char hex[CALM_SHA256_HEX]);

/* Returns "blocks", ...; static. */
const char *calm_recipe_learn_name(calm_learn learn);

/* Returns the recipe as JSON: everything that decides the result, in a fixed order.  The caller frees it. */
calm_json *calm_recipe_json(const calm_recipe *recipe);

/* Reads from `json` (of calm_recipe_json) how the model is opened; texts point into `json`. */
calm_status calm_recipe_how(calm_ctx *ctx, const calm_json *json, calm_model_how *out);

/* Parses scheme names into recipe->schemes, in ctx->out.  CALM_EARG: no name, a bad name, a name twice, or `float`
 * alone. */
calm_status calm_recipe_schemes(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe);

/* Parses algorithms (names, or chains "smooth(alpha=0.75)+hls+gptq") and builds the pool of them and the recipe's
 * schemes, in ctx->out.  With several schemes, pairs that cannot work are left out.  CALM_EARG: no algorithm, an
 * unknown one, or one twice.  CALM_EUNSUPPORTED: an algorithm that works with none of the schemes. */
calm_status calm_recipe_algorithms(calm_ctx *ctx, const calm_words *names, calm_recipe *recipe);

/* Removes from a default pool the algorithms that work with none of the recipe's schemes or cannot gain there; keeps
 * all if none is left.  Call it before calm_recipe_algorithms, which fails for an algorithm that works with no scheme.
 * CALM_EARG: an unknown algorithm. */
calm_status calm_recipe_drop_unusable(calm_ctx *ctx, const calm_recipe *recipe, calm_words *names);

/* Returns the recipe's pool as plain data [n_pool], in ctx->out. */
calm_status calm_recipe_entries(calm_ctx *ctx, const calm_recipe *recipe, calm_pool_entry **out);
