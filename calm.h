/* calm: post-training quantization of large language models, as a library.
 *
 *   calm_ctx *ctx;
 *   calm_recipe_spec *spec;
 *   calm_outcome outcome;
 *   if (calm_start(&ctx) || calm_spec_new(ctx, &spec) || calm_spec_set(ctx, spec, "model", "/models/Qwen3-0.6B") ||
 *       calm_spec_set(ctx, spec, "output", "out") || calm_quantize(ctx, spec, NULL, &outcome))
 *       fprintf(stderr, "%s\n", calm_error_text(ctx));
 *   calm_stop(&ctx);
 *
 * Rules that hold for every function:
 *
 *   Contexts   One thread at a time may use a context; different contexts are independent.
 *   Memory     A context owns the results of its calls: they are valid until calm_clear or calm_stop.  Objects that
 *              have a _close function (models, tokenizers) belong to the caller, who closes them before calm_stop.
 *   Failure    A function that fails returns a status other than CALM_OK, and calm_error_text returns one sentence
 *              about the failure.  NULL in place of a required pointer is CALM_EARG.  The next call clears the failure.
 *              Messages name a wrong key of a recipe in backquotes: `choice.budget`.
 *   Output     The library prints nothing: notes go to the log function, progress to the event function.  A file
 *              appears under its final name only when it is complete.
 *   Bytes      The same input gives the same bytes for any number of threads.
 *
 * docs/library.md has examples, and lists the settings that the library changes in its process. */
#ifndef CALM_H
#define CALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks the functions that the shared library exports. */
#if defined(__GNUC__)
#define CALM_API __attribute__((visibility("default")))
#else
#define CALM_API
#endif

/* ---- status ---- */

/* X(NAME, "description in a few words") */
#define CALM_STATUS_LIST(X)                                                                                            \
    X(OK, "ok")                                                                                                        \
    X(EARG, "wrong argument")                /* the caller or user gave a wrong value: exit status 2     */            \
    X(EIO, "input or output error")          /* the system refused a file operation                      */            \
    X(ENOSPC, "no space left")               /* disk full: nothing half-written stays under a final name */            \
    X(ENOTFOUND, "not found")                                                                                          \
    X(EEXIST, "already exists")                                                                                        \
    X(EBUSY, "in use")                       /* another process uses the file                            */            \
    X(EFORMAT, "malformed data")             /* a file contradicts its own format                        */            \
    X(EUNSUPPORTED, "not supported")         /* well-formed, but calm does not know this                 */            \
    X(ENUMERIC, "numerical failure")         /* NaN, infinity, not positive definite                     */            \
    X(ENOMEM, "out of memory")                                                                                         \
    X(EMISMATCH, "verification mismatch")    /* exit status 3                                            */            \
    X(EINTERRUPTED, "interrupted")

typedef enum calm_status {
#define CALM_STATUS_ENUM(name, words) CALM_##name,
    CALM_STATUS_LIST(CALM_STATUS_ENUM)
#undef CALM_STATUS_ENUM
    CALM_N_STATUS
} calm_status;

/* Returns a description in a few words ("malformed data"); never NULL, also for values outside the list. */
CALM_API const char *calm_status_words(calm_status status);

/* Returns the version of the library: "0.1.0". */
CALM_API const char *calm_version(void);

/* ---- context ---- */

/* A context holds the memory of results, the first error, the number of threads and the log function; opaque. */
typedef struct calm_ctx calm_ctx;

/* Creates a context with one thread per core, no log function and no event function.  It also sets OpenBLAS in the
 * whole process to one thread per call, so that sums have a fixed order.  CALM_ENOMEM: *out is NULL. */
CALM_API calm_status calm_start(calm_ctx **out);

/* Frees a context with all its results and sets the pointer to NULL.  NULL, and a pointer to NULL, are allowed. */
CALM_API void calm_stop(calm_ctx **ctx);

/* Frees all results of a context: recipes, algorithms, outcomes, quantized jobs. */
CALM_API void calm_clear(calm_ctx *ctx);

/* Returns one sentence about the failure of the last call, "" after success; the text is valid until the next call
 * with this context.  Never NULL: for a NULL ctx the sentence says that the context is missing. */
CALM_API const char *calm_error_text(const calm_ctx *ctx);

/* Sets the number of worker threads of parallel loops, 1 or more; 0: one per core.  CALM_EARG: a negative number. */
CALM_API calm_status calm_set_threads(calm_ctx *ctx, int n_threads);

typedef enum calm_log_level { CALM_LOG_DEBUG, CALM_LOG_INFO, CALM_LOG_WARNING } calm_log_level;

/* Receives one line without a newline.  Several threads may call it at the same time: it must lock what it needs. */
typedef void calm_log_fn(void *user, calm_log_level level, const char *line);

/* Sets the function that receives notes and warnings; NULL: none.  If OpenBLAS has loaded kernels that are slow on
 * this CPU, the function immediately gets a warning that names the environment variable to set (docs/library.md). */
CALM_API calm_status calm_set_log(calm_ctx *ctx, calm_log_fn *fn, void *user);

/* Stages of long work in the order of a run.  The comments say what `done` and `total` of a calm_event_fn count. */
typedef enum calm_stage {
    CALM_STAGE_PULL,         /* bytes of a model that are downloaded from the hub */
    CALM_STAGE_WEIGH,        /* blocks of the forward and backward passes */
    CALM_STAGE_CALIBRATE,    /* blocks                                  */
    CALM_STAGE_QUANTIZE,     /* candidates                              */
    CALM_STAGE_SCORE,        /* candidates                              */
    CALM_STAGE_PROBE,        /* windows                                 */
    CALM_STAGE_CHOOSE,       /* guard windows                           */
    CALM_STAGE_LEARN,        /* optimization steps of all blocks        */
    CALM_STAGE_ASSEMBLE,     /* blocks                                  */
    CALM_STAGE_EVALUATE,     /* windows                                 */
    CALM_N_STAGES
} calm_stage;

/* Receives progress: `done` of `total` units of `stage` are complete; total 0: the stage is complete.  Any thread
 * may call it. */
typedef void calm_event_fn(void *user, calm_stage stage, size_t done, size_t total);

/* Sets the function that receives the progress of quantize, select, assemble, verify and evaluations; NULL: none. */
CALM_API calm_status calm_set_events(calm_ctx *ctx, calm_event_fn *fn, void *user);

/* Asks the call that runs with this context, or else the next one, to fail with CALM_EINTERRUPTED before its next
 * candidate or sublayer.  May be called from any thread or a signal handler.  When the run is repeated, it
 * continues from its store. */
CALM_API void calm_interrupt(calm_ctx *ctx);

/* ---- recipes ---- */

/* A recipe as the user writes it: the settings of a run; docs/recipes.md lists the keys.  Opaque. */
typedef struct calm_recipe_spec calm_recipe_spec;

/* Creates a spec in which every key has its default. */
CALM_API calm_status calm_spec_new(calm_ctx *ctx, calm_recipe_spec **out);

/* Fills a spec from a recipe file, or from a shipped recipe by its name ("qwen-w4"); values of calm_spec_set have
 * priority.  CALM_ENOTFOUND; CALM_EFORMAT: not a recipe, with the place in the document. */
CALM_API calm_status calm_spec_load(calm_ctx *ctx, calm_recipe_spec *spec, const char *path);

/* Sets one value by its key ("choice.budget", or the key's last word if it is unique), from text as on a command
 * line.  For a list key, each call adds an item.  CALM_EARG: an unknown key (the message suggests the nearest one),
 * or a value that the key does not accept. */
CALM_API calm_status calm_spec_set(calm_ctx *ctx, calm_recipe_spec *spec, const char *key, const char *value);

/* Returns the recipe as a JSON document, which calm_spec_load reads. */
CALM_API calm_status calm_spec_text(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* Resolves a spec - fills in every value, finds every name, compares every file's digest - and returns the result
 * as JSON.  It fails where calm_quantize would fail before its work begins. */
CALM_API calm_status calm_spec_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* ---- runs ---- */

/* Forecast of a run on this machine. */
typedef struct calm_needs {
    double seconds;
    double memory_bytes, store_bytes;       /* peak resident memory; candidates on disk */
    double bytes_before, bytes_after;       /* size of the checkpoint                  */
    double bits_per_weight;                 /* of the quantized linear layers          */
    size_t n_candidates;
} calm_needs;

/* Forecasts the run of a spec: opens the model, measures the machine for about a second, and writes nothing. */
CALM_API calm_status calm_forecast_run(calm_ctx *ctx, const calm_recipe_spec *spec, calm_needs *out);

/* Result of a run, of a selection, or of an assembly.  Figures that were not measured are NaN. */
typedef struct calm_outcome {
    int64_t run;                            /* number of the run in the store; 0: a selection with dry_run         */
    const char *store, *output, *lock;      /* paths; output and lock NULL: none was written                       */
    const char *result, *verdict;           /* "hybrid" or an algorithm; the reason in a sentence (NULL: not judged) */
    double bits_per_weight;                 /* of the quantized linear layers                                      */
    int64_t bytes_before, bytes_after;      /* size of the checkpoint; after 0: none was written                   */
    double ppl_float, ppl, kl, top1;        /* perplexities; KL divergence from the float model; top-1 agreement   */
    double cosine, error, spearman;         /* encoders only: sentence embeddings compared with the float model's  */
    size_t n_cached;                        /* candidates that the store had already                               */
    size_t n_changed;                       /* selections only: units whose choice differs from the previous run   */
    double seconds;
} calm_outcome;

/* Runs a spec from start to end: capture, quantize, score, choose, guard, write, evaluate.  The store (SQLite)
 * keeps candidates, scores and choices, so that the same call continues from there after the process was killed.
 *
 *   lock   file to write the digests of inputs and outputs to, for calm_verify; NULL: none
 *
 * CALM_EARG: a key is missing, unknown, or contradicts another; CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED:
 * the model or a text; CALM_EEXIST: the output exists and `force` is not set; CALM_ENOMEM: the run does not fit in
 * `memory`; CALM_EMISMATCH: a gate of the recipe fails, but *out is filled. */
CALM_API calm_status calm_quantize(calm_ctx *ctx, const calm_recipe_spec *spec, const char *lock, calm_outcome *out);

/* A request for a new choice from the candidates that a run left in the store, without the model.  A field that is
 * NULL or 0 keeps the run's value. */
typedef struct calm_select_request {
    const char *store;
    int64_t run;
    const char *unit, *rule, *metric;       /* "job", "sublayer", "block"; "token", "argmax"; "rel_mae"            */
    double budget;                          /* bits per weight                                                     */
    double act_budget;                      /* mean bits of activations                                            */
    double shortlist;                       /* factor of the rule "token", from 1: docs/method.md section 5        */
    const char *const *forbid;              /* [n_forbid] a name, a pattern, or "#12"; added to the run's list     */
    size_t n_forbid;
    const char *const *pins;                /* [2 n_pins] unit, candidate, ...; they have priority over the run's  */
    size_t n_pins;
    const char *engine;                     /* engine that must run the plan: "vllm"                               */
    bool dry_run;                           /* write nothing                                                       */
} calm_select_request;

/* Chooses a candidate for each unit, and stores the choice as a new run unless dry_run is set.  CALM_ENOTFOUND: no
 * such store or run; CALM_EARG: a metric that the unit does not have, a name that matches no candidate or unit, a
 * budget that cannot be reached. */
CALM_API calm_status calm_select(calm_ctx *ctx, const calm_select_request *request, calm_outcome *out);

typedef struct calm_assemble_request {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;                      /* directory of the float model; NULL: the path in the run's recipe    */
    const char *const *formats;             /* [n_formats] "gguf", "awq", ...; n_formats 0: the run's formats      */
    size_t n_formats;
    bool hybrid;                            /* write the per-unit choices even if a uniform run won                */
    bool force;                             /* replace the output                                                  */
} calm_assemble_request;

/* Writes the checkpoint of a run from its stored candidates, without a new run. */
CALM_API calm_status calm_assemble(calm_ctx *ctx, const calm_assemble_request *request, calm_outcome *out);

typedef struct calm_gc_request {
    const char *store;
    const int64_t *drop;                    /* [n_drop] runs to drop                                               */
    size_t n_drop;
    int64_t keep;                           /* keep only this many of the newest runs; < 0: all                    */
    bool dry_run;                           /* report, but remove nothing                                          */
} calm_gc_request;

typedef struct calm_gc_outcome {
    size_t n_dropped, n_kept;               /* runs                                                                */
    int64_t rows, blob_bytes;               /* removed; blob_bytes includes rows that a guard left unused          */
    int64_t bytes_before, bytes_after;      /* size of the database file                                           */
} calm_gc_outcome;

/* Removes runs from a store, and every row and blob that no remaining run needs. */
CALM_API calm_status calm_gc(calm_ctx *ctx, const calm_gc_request *request, calm_gc_outcome *out);

/* One difference from a lock. */
typedef struct calm_difference {
    const char *what;                       /* "output tensor"                                                     */
    const char *name;
    const char *expected, *found;           /* digests, or descriptions; NULL: missing                             */
} calm_difference;

typedef struct calm_verify_request {
    const char *lock;
    const char *output;                     /* compare only this directory; NULL: repeat the run                   */
    const char *work;                       /* parent of the run's temporary folder; NULL: "calm-out"              */
    const char *model, *store, *memory;     /* replace the recipe's values; NULL: its model, an empty store, its
                                             * default */
} calm_verify_request;

typedef struct calm_verification {
    size_t n_checked, n_differences;
    const calm_difference *differences;     /* [n_differences] sorted by name                                      */
} calm_verification;

/* Repeats the run of a lock, or reads an output directory, and compares every digest.  CALM_EMISMATCH: something
 * differs, and *out lists it; CALM_EUNSUPPORTED: the lock needs other OpenBLAS kernels than this process has
 * loaded. */
CALM_API calm_status calm_verify(calm_ctx *ctx, const calm_verify_request *request, calm_verification *out);

/* ---- models and evaluation ---- */

typedef struct calm_model calm_model;
typedef struct calm_tokenizer calm_tokenizer;

/* Finds the directory of a model by its name: a path, an alias ("qwen"), or ORG/NAME[@REVISION] on the hub, which
 * is downloaded if it is not in the cache.  CALM_ENOTFOUND, with the nearest alias. */
CALM_API calm_status calm_find(calm_ctx *ctx, const char *name, const char **dir);

/* Opens a checkpoint - float, or in a quantized format that calm reads - and checks presence, shape and type of
 * every tensor against config.json.  CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED: the message names file,
 * tensor, expected and found. */
CALM_API calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out);
CALM_API void calm_model_close(calm_model *model);

/* Opens the tokenizer.json at `path`; *out is NULL on failure.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: not JSON,
 * larger than 64 MiB, or contradictory; CALM_EUNSUPPORTED: a component that calm does not know, with its place. */
CALM_API calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out);
CALM_API void calm_tokenizer_close(calm_tokenizer *tokenizer);

/* Encodes a text to ids [*n_ids]; `special`: adds the special tokens of the template.  The text of an added token
 * ("<|im_end|>") always becomes its id.  CALM_EFORMAT: the text is not UTF-8, with the byte's offset; a regular
 * expression exceeds its search limits; a Unigram model without an unknown token meets an unknown character.
 * CALM_EARG: a text of 2 GiB or more. */
CALM_API calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *text,
                                           size_t n_bytes, bool special, uint32_t **ids, size_t *n_ids);

/* Decodes ids [n] to a NUL-terminated text of *n_bytes bytes in valid UTF-8 (incomplete characters become U+FFFD);
 * `special`: keeps special tokens.  CALM_EARG: an id without a token. */
CALM_API calm_status calm_tokenizer_decode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids,
                                           size_t n, bool special, char **text, size_t *n_bytes);

/* A model to evaluate, and the text to evaluate it on. */
typedef struct calm_measure_request {
    const char *model, *reference;          /* directories or names; reference NULL: none (encoders need one)      */
    const char *text;                       /* path of a text or JSON lines; NULL: the bundled WikiText-2 test     */
    size_t seqlen, samples;                 /* tokens per window, 0: 512; windows or sentences, 0: all             */
    bool no_special;                        /* no special tokens (BOS) before a window                             */
} calm_measure_request;

/* Means over the text.  An encoder has only the last four figures, a decoder only the others; a figure that was not
 * measured is NaN. */
typedef struct calm_figures {
    size_t n_windows, n_tokens;             /* windows or sentences; tokens predicted (encoders: tokens read)      */
    double nll, ppl;                        /* negative log-likelihood per token; exp of it                        */
    double kl, top1, top5;                  /* KL divergence and top-1, top-5 agreement with the reference         */
    double error, cosine, cosine_min;       /* sentence embeddings compared with the reference's                   */
    double spearman;                        /* rank correlation of pairwise cosine similarities                    */
} calm_figures;

/* Evaluates a model on a text: perplexity of a decoder and its divergence from the reference, or distance of an
 * encoder's embeddings from the reference's.  Linear layers with quantized inputs are computed as exact integer
 * sums, as in the figures of calm_quantize. */
CALM_API calm_status calm_measure_model(calm_ctx *ctx, const calm_measure_request *request, calm_figures *out);

/* Computes the sentence embeddings x [*n, *width] of a text with an encoder: pooled as the model's modules.json
 * says, or without that file as the mean of the last hidden states over tokens. */
CALM_API calm_status calm_embed(calm_ctx *ctx, const calm_measure_request *request, const double **x, size_t *n,
                                size_t *width);

typedef struct calm_task_figures {
    size_t n_tasks;
    double acc, acc_norm;                   /* accuracy; accuracy by log-probability per character                 */
    double acc_se, acc_norm_se;             /* standard errors                                                     */
    double reference_acc, same;             /* accuracy of the reference; share of tasks that both answer alike    */
} calm_task_figures;

/* Evaluates a model, and its reference if one is given, on the multiple-choice tasks in the file `request->text`:
 * JSON lines {"context", "choices", "answer"}. */
CALM_API calm_status calm_answer(calm_ctx *ctx, const calm_measure_request *request, calm_task_figures *out);

/* ---- checkpoints ---- */

/* A fault in a checkpoint: an engine would fail on it, or would read other values than intended. */
typedef struct calm_check_fault {
    const char *rule, *severity;            /* "CT002"; "note", "warning", "error"                                 */
    const char *where, *what, *remedy;      /* module, tensor, file or key; found and expected; how to repair      */
} calm_check_fault;

typedef struct calm_check_outcome {
    const char *format;                     /* "compressed-tensors", "gguf"; NULL: unknown                         */
    size_t n_tensors, n_quantized;
    size_t n_faults, n_errors;
    const calm_check_fault *faults;         /* [n_faults]                                                          */
} calm_check_outcome;

/* Checks a quantized directory or GGUF file for an engine: "vllm", "sglang", "transformers", "llamacpp", "mlx";
 * "any": only the rules that hold for every engine.  Errors in the checkpoint are faults in *out, not a failure. */
CALM_API calm_status calm_check_path(calm_ctx *ctx, const char *path, const char *engine, calm_check_outcome *out);

/* Writes a quantized directory or GGUF file as plain floats of dtype "f32", "f16" or "bf16"; NULL: the dtype that
 * the checkpoint names. */
CALM_API calm_status calm_dequantize_to(calm_ctx *ctx, const char *path, const char *output, const char *dtype,
                                        bool force);

/* ---- algorithms on plain matrices ---- */

/* X(NAME, bytes) - element types of tensors. */
#define CALM_DTYPE_LIST(X)                                                                                             \
    X(F64, 8) X(F32, 4) X(F16, 2) X(BF16, 2) X(I64, 8) X(I32, 4) X(I16, 2) X(I8, 1) X(U64, 8) X(U32, 4)                \
    X(U16, 2) X(U8, 1) X(BOOL, 1) X(F8_E4M3, 1) X(F8_E8M0, 1)

typedef enum calm_dtype {
#define CALM_DTYPE_ENUM(name, bytes) CALM_##name,
    CALM_DTYPE_LIST(CALM_DTYPE_ENUM)
#undef CALM_DTYPE_ENUM
    CALM_N_DTYPES
} calm_dtype;

/* The rule that computes the scale of quantized activations from their range.  A checkpoint does not say which of
 * the first two rules holds. */
typedef enum calm_act_rule {
    CALM_ACT_RULE_COMPRESSED_TENSORS,
    CALM_ACT_RULE_VLLM,
    CALM_ACT_RULE_FP8,      /* FP8, one scale per token           */
    CALM_ACT_RULE_MXFP4,
    CALM_ACT_RULE_NVFP4,
    CALM_ACT_RULE_STATIC,   /* integers, one scale for all tokens from the calibration set */
    CALM_ACT_RULE_FP8_GROUPS,   /* FP8, one scale per token and 128 channels  */
    CALM_ACT_RULE_FP8_STATIC    /* FP8, one scale for all tokens from the calibration set      */
} calm_act_rule;

/* A number format: "w4a16_g128". */
typedef struct calm_scheme {
    int bits;                 /* bits of a weight: 2 to 8; 0 = float                   */
    size_t group;             /* input columns per scale; 0 = one group per row        */
    bool symmetric;           /* the zero point is 2^(bits-1) everywhere               */
    int act_bits;             /* bits of activations, quantized per token; 0 = float   */
    bool act_asymmetric;      /* false without act_bits                                */
    calm_act_rule act_rule;   /* CALM_ACT_RULE_COMPRESSED_TENSORS without act_bits     */
    calm_dtype scale_dtype;   /* CALM_BF16 (default) or CALM_F16                       */
    int family;               /* 0: integers; else the number that calm_scheme_parse assigns to a name like "nvfp4" */
    int mix;                  /* 0: the same scheme for every linear; else the number of a name like "gguf_q4_k_m" */
    int group_else;           /* columns per scale if `group` does not divide the row; -1: one per row; 0: none */
    bool act_order;           /* groups are formed by falling input power, not by position                   */
} calm_scheme;

/* Parses the name of a scheme.  CALM_EARG: the message says what is wrong and gives examples. */
CALM_API calm_status calm_scheme_parse(calm_ctx *ctx, const char *name, calm_scheme *out);

/* Calibration statistics of the input that the linear layers of a job share: N rows (tokens), I input features. */
typedef struct calm_stats {
    size_t rows;             /* N                                                              */
    const double *gram;      /* [I, I] X^T X (not divided by N), both triangles; or NULL       */
    const float *absmax;     /* [I] max |x|; or NULL                                           */
    const double *sum;       /* [I] sum of x; or NULL                                          */
    const double *sumsq;     /* [I] sum of x^2; or NULL                                        */
    const double *sumabs;    /* [I] sum of |x|; or NULL                                        */
    const float *samples;    /* [n_samples, I] kept rows; or NULL                               */
    size_t n_samples;
    const double *cross;     /* [I, I] sum of x y^T, y the same input in the float model; or NULL   */
} calm_stats;

/* Computes all statistics of an input x [n, width] and keeps every row; x is borrowed.  CALM_EARG: no row or no
 * column. CALM_ENUMERIC: a value that is not finite, with row and column. */
CALM_API calm_status calm_stats_new(calm_ctx *ctx, const float *x, size_t n, size_t width, calm_stats *out);

/* One weight matrix. */
typedef struct calm_linear {
    const char *name;     /* of the module, for messages: "model.layers.0.self_attn.q_proj" */
    size_t out, in;
    const float *w;       /* [out, in], borrowed */
    bool bias;            /* the linear has a bias, which an algorithm may correct */
} calm_linear;

/* The linear layers of one block that read the same input. */
typedef struct calm_job {
    const char *name;             /* for messages: "model.layers.0.qkv"                             */
    const calm_linear *linears;   /* [n_linears], all with the same `in`                            */
    size_t n_linears;
    const calm_stats *stats;
    calm_scheme scheme;
    bool can_absorb;              /* the layer before can absorb an input scale per channel          */
    const uint32_t *absorb_group; /* [I] inputs with equal numbers share one scale; NULL: each has its own (o_proj:
                                   * all query heads of a KV head read the same row of v) */
    size_t n_absorb_groups;       /* all numbers in absorb_group are smaller                        */
} calm_job;

/* A quantized job: W^ = (codes - zeros) * scales approximates W diag(in_scale); in other families W^ = level[codes]
 * * scales + mins.  O counts the output features of all linear layers together, G = ceil(I / group). */
typedef struct calm_qjob {
    size_t out, in, n_groups, group;   /* O, I, G, columns per group                                */
    calm_scheme scheme;
    uint8_t *codes;      /* [O, I], below 2^bits                                                    */
    float *scales;       /* [O, G], rounded to the type that the scheme stores; may be negative      */
    uint8_t *zeros;      /* [O, G]; NULL when symmetric (zero = 2^(bits-1))                         */
    float *in_scale;     /* [I] > 0: the input is divided by it; NULL = ones                        */
    float *bias_delta;   /* [O] correction to add to the biases; NULL = none                        */
    double damp;         /* relative damping that the Cholesky factorization needed; 0 = none       */
    float *mins;         /* [O, G] added to codes times scales; NULL = none                         */
    float global;        /* global scale: divides stored scales, if the scheme has one; else 0        */
    float act_global;    /* static scale, or divisor of the scales, of activations; else 0                */
    uint32_t *order;     /* [I] column k of codes belongs to input order[k]; NULL: to input k         */
} calm_qjob;

/* A parsed chain of algorithm parts with resolved options; opaque. */
typedef struct calm_algorithm calm_algorithm;

/* Parses a preset ("gptq-hls"; `calm algorithms` lists them) or a chain
 * ("smooth(alpha=0.75)+hls(signed=true)+gptq"). CALM_EARG: an unknown name (the message suggests the nearest),
 * parts of the wrong kinds or order, a bad option. */
CALM_API calm_status calm_algorithm_parse(calm_ctx *ctx, const char *text, calm_algorithm **out);

/* Quantizes a job, in parallel over rows; the bytes do not depend on the number of threads.
 *
 * CALM_ENUMERIC: NaN or infinity in weights or statistics, a Gram matrix that is not positive definite within the
 * damping limit, a scale out of range - with tensor, row and group; too few kept rows for a fit.
 * CALM_EUNSUPPORTED: the algorithm does not support the scheme.  CALM_EARG: a statistic that the algorithm needs is
 * missing. */
CALM_API calm_status calm_algorithm_run(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                        calm_qjob *out);

/* Computes w [O, I] = (codes - zeros) * scales / in_scale in float32: the weight that replaces W for unscaled
 * inputs. */
CALM_API void calm_qjob_effective(const calm_qjob *qjob, float *w);

/* X(field, "name", "definition") - names, order and help of all metrics */
#define CALM_METRIC_LIST(X)                                                                                            \
    X(CKA, "cka", "1 - linear CKA, columns centred")                                                                   \
    X(CKA_DEBIASED, "cka_debiased", "1 - debiased linear CKA (n >= 4; may exceed 1)")                                  \
    X(CKA_TOKEN, "cka_token", "1 - CKA of rows divided by the float row's norm, at least 1/8 of the median one")       \
    X(CKA_DROP, "cka_drop", "1 - CKA without rows whose float norm is above 6 medians")                                \
    X(REL_MSE, "rel_mse", "sum |z-y|^2 / sum |y - mean y|^2")                                                          \
    X(LOG_REL_MSE, "log_rel_mse", "mean over tokens of log(|z-y|^2 / |y|^2)")                                          \
    X(COSINE, "cosine", "mean over tokens of 1 - cos(y, z)")                                                           \
    X(REL_MAE, "rel_mae", "sum |z-y| / sum |y|")

typedef enum calm_metric {
#define CALM_METRIC_ENUM(field, name, help) CALM_METRIC_##field,
    CALM_METRIC_LIST(CALM_METRIC_ENUM)
#undef CALM_METRIC_ENUM
    CALM_N_METRICS
} calm_metric;

/* Returns the name of a metric ("cka"); static storage. */
CALM_API const char *calm_metric_name(calm_metric metric);

typedef struct calm_scores {
    double value[CALM_N_METRICS];
    size_t n_rows, n_dropped;    /* rows scored; rows that cka_drop leaves out */
    bool constant;               /* all rows of Z are equal, and those of Y are not: the candidate fails */
} calm_scores;

/* Precomputed statistics of the float outputs Y, shared by all candidates of a sublayer; opaque. */
typedef struct calm_score_ref calm_score_ref;

/* Precomputes the statistics of Y [n, d]; y is borrowed.  CALM_ENUMERIC: a value that is not finite, with row and
 * column; CALM_EARG: n < 4 or d = 0. */
CALM_API calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out);

/* Computes all metrics of Z [n, d] against a prepared Y.  Less is better; 0 is the best value except for
 * log_rel_mse. CALM_ENUMERIC: a value that is not finite, with row and column. */
CALM_API calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out);

#ifdef __cplusplus
}
#endif

#endif
