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
 *   Contexts   One context belongs to one thread at a time; different contexts do not disturb each other.
 *   Memory     Results belong to the context: they live until calm_clear or calm_stop.  What has its own _close
 *              (models, tokenizers) is closed by the caller, before its context is stopped.
 *   Failure    A status other than CALM_OK; calm_error_text has one sentence about it.  A NULL where a value is needed
 * is CALM_EARG.  The next call starts without the failure of the last one.  Messages name the recipe's key that is at
 * fault in backquotes: `choice.budget`. Output     Nothing is printed: notes go to the log function, progress to the
 * event function.  Files appear under their names complete or not at all. Bytes      The same input gives the same
 * bytes for any number of threads.
 *
 * docs/library.md has examples, and what the library sets in its process. */
#ifndef CALM_H
#define CALM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what the shared library exports. */
#if defined(__GNUC__)
#define CALM_API __attribute__((visibility("default")))
#else
#define CALM_API
#endif

/* ---- status ---- */

/* X(NAME, "a few words") */
#define CALM_STATUS_LIST(X)                                                                                            \
    X(OK, "ok")                                                                                                        \
    X(EARG, "wrong argument")                /* the caller's or user's words are off: exit status 2      */            \
    X(EIO, "input or output error")          /* the system refused a file operation                      */            \
    X(ENOSPC, "no space left")               /* disk full: nothing half-written stays under a final name */            \
    X(ENOTFOUND, "not found")                                                                                          \
    X(EEXIST, "already exists")                                                                                        \
    X(EBUSY, "in use")                       /* another process holds it                                 */            \
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

/* A few words ("malformed data"); never NULL, also for values outside the list. */
CALM_API const char *calm_status_words(calm_status status);

/* Version of the library: "0.1.0". */
CALM_API const char *calm_version(void);

/* ---- context ---- */

/* Memory, the first error, threads, the log; opaque. */
typedef struct calm_ctx calm_ctx;

/* A context with one thread per core, no log and no events.  Matrix products run in OpenBLAS, which is set to one
 * thread for each caller in the whole process, so that sums have a fixed order.  CALM_ENOMEM: *out is NULL. */
CALM_API calm_status calm_start(calm_ctx **out);

/* Free a context with all its results and set the pointer to NULL.  NULL, and a pointer to NULL, are allowed. */
CALM_API void calm_stop(calm_ctx **ctx);

/* Free all results of a context: recipes, algorithms, outcomes, quantized jobs. */
CALM_API void calm_clear(calm_ctx *ctx);

/* One sentence about the last call's failure, "" after success; valid until the next call with this context.  Never
 * NULL; of the context NULL it says that there is none. */
CALM_API const char *calm_error_text(const calm_ctx *ctx);

/* Workers of parallel loops: 1 or more; 0: one per core.  CALM_EARG. */
CALM_API calm_status calm_set_threads(calm_ctx *ctx, int n_threads);

typedef enum calm_log_level { CALM_LOG_DEBUG, CALM_LOG_INFO, CALM_LOG_WARNING } calm_log_level;

/* Receives one line without a newline.  May be called from several threads at once: it locks if it must. */
typedef void calm_log_fn(void *user, calm_log_level level, const char *line);

/* Where notes and warnings go; NULL: nowhere.  Where OpenBLAS has loaded kernels that are slow on this CPU, the first
 * log of a context is told so at once, with the variable to set (docs/library.md). */
CALM_API calm_status calm_set_log(calm_ctx *ctx, calm_log_fn *fn, void *user);

/* Stages of long work in the order of a run, with what each counts. */
typedef enum calm_stage {
    CALM_STAGE_PULL,         /* bytes of a model that come from the hub */
    CALM_STAGE_WEIGH,        /* blocks, forward and back                */
    CALM_STAGE_CALIBRATE,    /* blocks                                  */
    CALM_STAGE_QUANTIZE,     /* candidates                              */
    CALM_STAGE_SCORE,        /* candidates                              */
    CALM_STAGE_PROBE,        /* windows                                 */
    CALM_STAGE_CHOOSE,       /* guard windows                           */
    CALM_STAGE_LEARN,        /* steps of all blocks                     */
    CALM_STAGE_ASSEMBLE,     /* blocks                                  */
    CALM_STAGE_EVALUATE,     /* windows                                 */
    CALM_N_STAGES
} calm_stage;

/* `stage` has done `done` of `total`; total 0: it is complete, whatever it counted.  May be called from any thread. */
typedef void calm_event_fn(void *user, calm_stage stage, size_t done, size_t total);

/* Receives the progress of quantize, select, assemble, verify and evaluations; NULL: nothing does. */
CALM_API calm_status calm_set_events(calm_ctx *ctx, calm_event_fn *fn, void *user);

/* ---- recipes ---- */

/* What is asked of a run, as people write it; docs/recipes.md lists the keys.  Opaque. */
typedef struct calm_recipe_spec calm_recipe_spec;

/* A spec in which every key has its default. */
CALM_API calm_status calm_spec_new(calm_ctx *ctx, calm_recipe_spec **out);

/* Fill a spec from a recipe file, or from a shipped recipe by its name ("qwen-w4"); what calm_spec_set has set counts
 * more.  CALM_ENOTFOUND; CALM_EFORMAT: not a recipe, with the place in the document. */
CALM_API calm_status calm_spec_load(calm_ctx *ctx, calm_recipe_spec *spec, const char *path);

/* Set one value by its key ("choice.budget", or its last word where that is unique), from text as a command line has
 * it.  A list grows.  CALM_EARG: an unknown key (with the nearest), a value that it refuses. */
CALM_API calm_status calm_spec_set(calm_ctx *ctx, calm_recipe_spec *spec, const char *key, const char *value);

/* The recipe as a JSON document, which calm_spec_load reads. */
CALM_API calm_status calm_spec_text(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* Resolve a spec - every value filled in, every name found, every file's digest compared - and give that as JSON.
 * Fails as calm_quantize does before its work begins. */
CALM_API calm_status calm_spec_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* ---- runs ---- */

/* What a run would take on this machine. */
typedef struct calm_needs {
    double seconds;
    double memory_bytes, store_bytes;       /* resident at most; of candidates on disk */
    double bytes_before, bytes_after;       /* of the checkpoint                       */
    double bits_per_weight;                 /* of the quantized linears                */
    size_t n_candidates;
} calm_needs;

/* Forecast the run of a spec: the model is opened and the machine measured for a second; nothing is written. */
CALM_API calm_status calm_forecast_run(calm_ctx *ctx, const calm_recipe_spec *spec, calm_needs *out);

/* What came of a run, of a selection, or of an assembly.  Figures that were not measured are NaN. */
typedef struct calm_outcome {
    int64_t run;                            /* number in the store; 0: none, a selection that was only tried       */
    const char *store, *output, *lock;      /* files; output and lock NULL: none was written                       */
    const char *result, *verdict;           /* "hybrid" or an algorithm; why, in a sentence (NULL: not judged)     */
    double bits_per_weight;                 /* of the quantized linears                                            */
    int64_t bytes_before, bytes_after;      /* of the checkpoint; after 0: none was written                        */
    double ppl_float, ppl, kl, top1;        /* perplexities; KL divergence from the float model; top-1 agreement   */
    double cosine, error, spearman;         /* of an encoder: sentence embeddings against the float model's        */
    size_t n_cached;                        /* candidates that were in the store already                           */
    size_t n_changed;                       /* of a selection: units that differ from the run before               */
    double seconds;
} calm_outcome;

/* Run a spec from start to end: capture, quantize, score, choose, guard, write, evaluate.  Candidates, scores and
 * choices are in the store (sqlite3), so that the same call after a kill continues from there.
 *
 *   lock   file for the digests of what went in and came out, for calm_verify; NULL: none is written
 *
 * CALM_EARG: a key that is missing, unknown or does not fit; CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED: of the
 * model or a text; CALM_EEXIST: the output is there and `force` is not set; CALM_ENOMEM: the run does not fit in
 * `memory`; CALM_EMISMATCH: a gate does not hold, and *out is filled all the same. */
CALM_API calm_status calm_quantize(calm_ctx *ctx, const calm_recipe_spec *spec, const char *lock, calm_outcome *out);

/* Choosing anew from what a run left in the store; the model is not read.  NULL and 0: as in the run. */
typedef struct calm_select_request {
    const char *store;
    int64_t run;
    const char *unit, *rule, *metric;       /* "job", "sublayer", "block"; "token", "argmax"; "rel_mae"            */
    double budget;                          /* bits per weight                                                     */
    double act_budget;                      /* mean bits of activations                                            */
    double shortlist;                       /* factor of the rule "token", from 1: docs/method.md section 5        */
    const char *const *forbid;              /* [n_forbid] a name, a pattern, or "#12", besides what the run had    */
    size_t n_forbid;
    const char *const *pins;                /* [2 n_pins] unit, candidate, ...; they count more than the run's     */
    size_t n_pins;
    const char *engine;                     /* that the plan is for: "vllm"                                        */
    bool dry_run;                           /* write nothing                                                       */
} calm_select_request;

/* Choose, and unless it is a dry run keep the result as its own run.  CALM_ENOTFOUND: no such store or run;
 * CALM_EARG: a metric that the unit has not, a request that names nothing, a budget that cannot be reached. */
CALM_API calm_status calm_select(calm_ctx *ctx, const calm_select_request *request, calm_outcome *out);

typedef struct calm_assemble_request {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;                      /* directory of the float model; NULL: where the run read it           */
    const char *const *formats;             /* [n_formats] "gguf", "awq", ...; none: those of the run              */
    size_t n_formats;
    bool hybrid;                            /* the run's choices also where a uniform run was its result           */
    bool force;                             /* replace the output                                                  */
} calm_assemble_request;

/* Write the checkpoint of a run from its stored candidates; nothing is computed again. */
CALM_API calm_status calm_assemble(calm_ctx *ctx, const calm_assemble_request *request, calm_outcome *out);

typedef struct calm_gc_request {
    const char *store;
    const int64_t *drop;                    /* [n_drop] runs that go                                               */
    size_t n_drop;
    int64_t keep;                           /* only this many of the newest runs stay; < 0: all                      */
    bool dry_run;                           /* only say what would go                                              */
} calm_gc_request;

typedef struct calm_gc_outcome {
    size_t n_dropped, n_kept;               /* runs                                                                */
    int64_t rows, blob_bytes;               /* that went; of blobs, and of rows that a guard has left behind       */
    int64_t bytes_before, bytes_after;      /* of the database file                                                */
} calm_gc_outcome;

/* Drop runs from a store, and every row and blob that no run which is left needs. */
CALM_API calm_status calm_gc(calm_ctx *ctx, const calm_gc_request *request, calm_gc_outcome *out);

/* One thing that is not as a lock says. */
typedef struct calm_difference {
    const char *what;                       /* "output tensor"                                                     */
    const char *name;
    const char *expected, *found;           /* digests, or words; NULL: there is no such thing                     */
} calm_difference;

typedef struct calm_verify_request {
    const char *lock;
    const char *output;                     /* compare this directory and compute nothing; NULL: run it again      */
    const char *work;                       /* where a folder for the run is made and removed; NULL: "calm-out"    */
    const char *model, *store, *memory;     /* instead of the recipe's; NULL: model as it says, an empty store     */
} calm_verify_request;

typedef struct calm_verification {
    size_t n_checked, n_differences;
    const calm_difference *differences;     /* [n_differences] in the order of names                               */
} calm_verification;

/* Repeat the run of a lock, or look at an output, and compare every digest.  CALM_EMISMATCH: something differs, and
 * *out says what; CALM_EUNSUPPORTED: the lock is of other OpenBLAS kernels than this process has loaded. */
CALM_API calm_status calm_verify(calm_ctx *ctx, const calm_verify_request *request, calm_verification *out);

/* ---- models and evaluation ---- */

typedef struct calm_model calm_model;
typedef struct calm_tokenizer calm_tokenizer;

/* The directory that a name means: a path, an alias ("qwen"), ORG/NAME[@REVISION] of the hub, which is fetched when it
 * is not in the cache.  CALM_ENOTFOUND, with the nearest alias. */
CALM_API calm_status calm_find(calm_ctx *ctx, const char *name, const char **dir);

/* Open a checkpoint - float, or in a quantized format that calm reads - and check every tensor's presence, shape and
 * type against config.json.  CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED: file, tensor, expected, found. */
CALM_API calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out);
CALM_API void calm_model_close(calm_model *model);

/* Read `path`, a tokenizer.json; *out is NULL on failure.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: not JSON, larger
 * than 64 MiB, or contradictory; CALM_EUNSUPPORTED: a part that calm does not know, with its place. */
CALM_API calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out);
CALM_API void calm_tokenizer_close(calm_tokenizer *tokenizer);

/* Ids [*n_ids] of a text as one string; `special`: with the special tokens of the template around it.  The text of an
 * added token ("<|im_end|>") inside always becomes its id.  CALM_EFORMAT: not UTF-8, with the byte's offset; a
 * pattern's search passes its limits; a Unigram without an unknown token meets an unknown character.  CALM_EARG: 2 GiB
 * or more. */
CALM_API calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *text,
                                           size_t n_bytes, bool special, uint32_t **ids, size_t *n_ids);

/* Text [*n_bytes] and a NUL of ids [n], well-formed UTF-8 (pieces of characters become U+FFFD); `special`: special
 * tokens are kept.  CALM_EARG: an id without a token. */
CALM_API calm_status calm_tokenizer_decode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids,
                                           size_t n, bool special, char **text, size_t *n_bytes);

/* What to evaluate, and on what. */
typedef struct calm_measure_request {
    const char *model, *reference;          /* directories or names; reference NULL: none (encoders need one)      */
    const char *text;                       /* text or JSON lines; NULL: the bundled WikiText-2 test               */
    size_t seqlen, samples;                 /* tokens per window, 0: 512; windows or sentences, 0: all             */
    bool no_special;                        /* windows without what the tokenizer's template begins with (BOS)     */
} calm_measure_request;

/* Means over the text.  Of a decoder all but the last four, of an encoder those; what was not measured is NaN. */
typedef struct calm_figures {
    size_t n_windows, n_tokens;             /* windows or sentences; tokens predicted, or read                     */
    double nll, ppl;                        /* negative log-likelihood per token; exp of it                        */
    double kl, top1, top5;                  /* against the reference                                               */
    double error, cosine, cosine_min;       /* of sentence embeddings against the reference's                      */
    double spearman;                        /* correlation of the ranks of pairwise cosines                        */
} calm_figures;

/* Evaluate a model on a text: perplexity and divergence of a decoder, distance of the embeddings of an encoder.
 * Linears whose inputs are quantized to codes are exact sums of whole numbers, as in the figures of calm_quantize. */
CALM_API calm_status calm_measure_model(calm_ctx *ctx, const calm_measure_request *request, calm_figures *out);

/* Embeddings x [*n, *width] of the sentences of a text by an encoder: means of the last hidden state over tokens,
 * or what the model's modules.json makes of it. */
CALM_API calm_status calm_embed(calm_ctx *ctx, const calm_measure_request *request, const double **x, size_t *n,
                                size_t *width);

typedef struct calm_task_figures {
    size_t n_tasks;
    double acc, acc_norm;                   /* share of right answers; by log-probability per character            */
    double acc_se, acc_norm_se;             /* standard errors                                                     */
    double reference_acc, same;             /* the reference's; share that both answer alike                       */
} calm_task_figures;

/* Let a model, and its reference, answer multiple-choice tasks: JSON lines {"context", "choices", "answer"}.
 * `request->text` is the file of tasks. */
CALM_API calm_status calm_answer(calm_ctx *ctx, const calm_measure_request *request, calm_task_figures *out);

/* ---- checkpoints ---- */

/* What an engine would fail on, or read otherwise than is meant. */
typedef struct calm_check_fault {
    const char *rule, *severity;            /* "CT002"; "note", "warning", "error"                                 */
    const char *where, *what, *remedy;      /* module, tensor, file or key; found and expected; what to do         */
} calm_check_fault;

typedef struct calm_check_outcome {
    const char *format;                     /* "compressed-tensors", "gguf"; NULL: none that is known              */
    size_t n_tensors, n_quantized;
    size_t n_faults, n_errors;
    const calm_check_fault *faults; /* [n_faults]                                                          */
} calm_check_outcome;

/* Check a quantized directory or GGUF file for an engine: "vllm", "sglang", "transformers", "llamacpp", "mlx"; "any":
 * what holds for every engine.  Whatever is wrong with the checkpoint is a fault, not a failure. */
CALM_API calm_status calm_check_path(calm_ctx *ctx, const char *path, const char *engine, calm_check_outcome *out);

/* Write a quantized directory or GGUF file back as plain floats: "f32", "f16", "bf16"; NULL: the checkpoint's own. */
CALM_API calm_status calm_dequantize_to(calm_ctx *ctx, const char *path, const char *output, const char *dtype,
                                        bool force);

/* ---- algorithms on plain matrices ---- */

/* Element types that scales are rounded to, of the types that tensors have. */
#define CALM_DTYPE_LIST(X)                                                                                             \
    X(F64, 8) X(F32, 4) X(F16, 2) X(BF16, 2) X(I64, 8) X(I32, 4) X(I16, 2) X(I8, 1) X(U64, 8) X(U32, 4)                \
    X(U16, 2) X(U8, 1) X(BOOL, 1) X(F8_E4M3, 1) X(F8_E8M0, 1)

typedef enum calm_dtype {
#define CALM_DTYPE_ENUM(name, bytes) CALM_##name,
    CALM_DTYPE_LIST(CALM_DTYPE_ENUM)
#undef CALM_DTYPE_ENUM
    CALM_N_DTYPES
} calm_dtype;

/* How the scale of a token's activations comes of its range: whose rule is followed, of the first two a checkpoint does
 * not say. */
typedef enum calm_act_rule {
    CALM_ACT_RULE_COMPRESSED_TENSORS,
    CALM_ACT_RULE_VLLM,
    CALM_ACT_RULE_FP8,      /* to small floats, a scale per token */
    CALM_ACT_RULE_MXFP4,
    CALM_ACT_RULE_NVFP4,
    CALM_ACT_RULE_STATIC,   /* one scale for all tokens, found beforehand */
    CALM_ACT_RULE_FP8_GROUPS,   /* to small floats, of 128 channels at a time */
    CALM_ACT_RULE_FP8_STATIC    /* to small floats, one scale for all tokens, found beforehand */
} calm_act_rule;

/* A number format: "w4a16_g128". */
typedef struct calm_scheme {
    int bits;                 /* of a weight: 2 to 8; 0 = float                        */
    size_t group;             /* input columns per scale; 0 = one group per row        */
    bool symmetric;           /* zero point 2^(bits-1) everywhere                      */
    int act_bits;             /* 0 = activations stay float; else per token            */
    bool act_asymmetric;      /* false without act_bits                                */
    calm_act_rule act_rule;   /* CALM_ACT_RULE_COMPRESSED_TENSORS without act_bits     */
    calm_dtype scale_dtype;   /* CALM_BF16 (default) or CALM_F16                       */
    int family;               /* 0: whole numbers; else what calm_scheme_parse makes of a name like "nvfp4" */
    int mix;                  /* 0: the same for every linear; else what it makes of "gguf_q4_k_m"          */
    int group_else;           /* columns per scale where `group` does not divide; -1: one per row; 0: none   */
    bool act_order;           /* groups are of inputs by falling power, not of neighbours                    */
} calm_scheme;

/* Parse a name.  CALM_EARG with what is wrong and examples. */
CALM_API calm_status calm_scheme_parse(calm_ctx *ctx, const char *name, calm_scheme *out);

/* Statistics of the input that the linears of a job share: N rows (tokens), I input features. */
typedef struct calm_stats {
    size_t rows;             /* N                                                              */
    const double *gram;      /* [I, I] X^T X (not divided by N), both triangles; or NULL       */
    const float *absmax;     /* [I] max |x|; or NULL                                           */
    const double *sum;       /* [I] sum of x; or NULL                                          */
    const double *sumsq;     /* [I] sum of x^2; or NULL                                        */
    const double *sumabs;    /* [I] sum of |x|; or NULL                                        */
    const float *samples;    /* [n_samples, I] kept rows; or NULL                               */
    size_t n_samples;
    const double *cross;     /* [I, I] sum of x y^T, y what x would be behind float blocks; or NULL */
} calm_stats;

/* All statistics of an input x [n, width], every row kept; x is borrowed.  CALM_EARG: no row, no column.
 * CALM_ENUMERIC: a value that is not finite, with row and column. */
CALM_API calm_status calm_stats_new(calm_ctx *ctx, const float *x, size_t n, size_t width, calm_stats *out);

/* One weight matrix. */
typedef struct calm_linear {
    const char *name;     /* of the module, for messages: "model.layers.0.self_attn.q_proj" */
    size_t out, in;
    const float *w;       /* [out, in], borrowed */
    bool bias;            /* it adds a bias, which can take a correction */
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

/* A quantized job: W^ = (codes - zeros) * scales approximates W diag(in_scale); of other families
 * W^ = level[codes] * scales + mins.  O output features of all linears together, G = ceil(I / group). */
typedef struct calm_qjob {
    size_t out, in, n_groups, group;   /* O, I, G, columns per group                                */
    calm_scheme scheme;
    uint8_t *codes;      /* [O, I], below 2^bits                                                    */
    float *scales;       /* [O, G], already rounded to what the scheme stores; may be negative       */
    uint8_t *zeros;      /* [O, G]; NULL when symmetric (zero = 2^(bits-1))                         */
    float *in_scale;     /* [I] > 0: the input is divided by it; NULL = ones                        */
    float *bias_delta;   /* [O] to add to the biases of the linears; NULL = nothing                 */
    double damp;         /* damping that the Cholesky factorisation needed, relative; 0 = not used  */
    float *mins;         /* [O, G] added to what scales and codes give; NULL = nothing              */
    float global;        /* what stored scales are divided by, where the scheme has such a factor; else 0 */
    float act_global;    /* the same for the scales of activations                                    */
    uint32_t *order;     /* [I] column k of codes is of input order[k]; NULL: of input k              */
} calm_qjob;

/* A parsed chain of parts with resolved options; opaque. */
typedef struct calm_algorithm calm_algorithm;

/* Parse a preset ("gptq-hls"; calm algorithms lists them) or a chain ("smooth(alpha=0.75)+hls(signed=true)+gptq").
 * CALM_EARG: unknown name (the nearest is suggested), parts of the wrong kinds or order, a bad option. */
CALM_API calm_status calm_algorithm_parse(calm_ctx *ctx, const char *text, calm_algorithm **out);

/* Quantize a job.  Runs in parallel over rows where that changes no sum.
 *
 * CALM_ENUMERIC: NaN or infinity in weights or statistics, no positive definite Gram matrix within the damping
 * limit, a scale out of range - with tensor, row and group; too few kept rows for a fit.  CALM_EUNSUPPORTED: the
 * algorithm cannot reach the scheme.  CALM_EARG: a statistic that the algorithm needs is missing. */
CALM_API calm_status calm_algorithm_run(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                        calm_qjob *out);

/* w [O, I] = (codes - zeros) * scales / in_scale in float32: what replaces W when the input is left as it is. */
CALM_API void calm_qjob_effective(const calm_qjob *qjob, float *w);

/* X(field, "name", "what it is") - one place for names, order and help of all metrics */
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

/* Name ("cka"); static storage. */
CALM_API const char *calm_metric_name(calm_metric metric);

typedef struct calm_scores {
    double value[CALM_N_METRICS];
    size_t n_rows, n_dropped;    /* rows scored; rows cka_drop left out */
    bool constant;               /* Z is the same in all rows and Y is not: a dead candidate */
} calm_scores;

/* What depends on the float outputs Y alone, shared by all candidates of a sublayer; opaque, `y` is borrowed. */
typedef struct calm_score_ref calm_score_ref;

/* Prepare Y [n, d].  CALM_ENUMERIC: a value that is not finite, with row and column; CALM_EARG: n < 4 or d = 0. */
CALM_API calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out);

/* All metrics of Z [n, d] against a prepared Y; 0 is best but for log_rel_mse.  CALM_ENUMERIC: a value that is not
 * finite, with row and column. */
CALM_API calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out);

#ifdef __cplusplus
}
#endif

#endif
