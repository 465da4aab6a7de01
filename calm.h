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
 *   Memory     A context owns results: they live until calm_clear or calm_stop.  The caller closes objects that have
 *              a _close function (models, tokenizers) before it stops their context.
 *   Failure    A status other than CALM_OK; calm_error_text has one sentence about it.  NULL instead of a needed value
 *              is CALM_EARG.  The next call starts without the failure of the last one.  Messages name a recipe's
 *              wrong key in backquotes: `choice.budget`.
 *   Output     The library does not print: notes go to the log function, progress to the event function.  A file
 *              appears under its name when it is complete.
 *   Bytes      The same input gives the same bytes for any number of threads.
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
    X(EARG, "wrong argument")                /* the caller or user gave a wrong value: exit status 2     */            \
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

/* Make a context with one thread per core, no log and no events.  It sets OpenBLAS to one thread per caller in the
 * whole process, so that sums have a fixed order.  CALM_ENOMEM: *out is NULL. */
CALM_API calm_status calm_start(calm_ctx **out);

/* Free a context with all its results and set the pointer to NULL.  NULL, and a pointer to NULL, are allowed. */
CALM_API void calm_stop(calm_ctx **ctx);

/* Free all results of a context: recipes, algorithms, outcomes, quantized jobs. */
CALM_API void calm_clear(calm_ctx *ctx);

/* One sentence about the last call's failure, "" after success; valid until the next call with this context.  Never
 * NULL; if ctx is NULL, a sentence that says so. */
CALM_API const char *calm_error_text(const calm_ctx *ctx);

/* Workers of parallel loops: 1 or more; 0: one per core.  CALM_EARG. */
CALM_API calm_status calm_set_threads(calm_ctx *ctx, int n_threads);

typedef enum calm_log_level { CALM_LOG_DEBUG, CALM_LOG_INFO, CALM_LOG_WARNING } calm_log_level;

/* Receives one line without a newline.  Several threads may call it at the same time: it must lock what it needs. */
typedef void calm_log_fn(void *user, calm_log_level level, const char *line);

/* Set the function that receives notes and warnings; NULL: none.  If OpenBLAS has loaded kernels that are slow on this
 * CPU, the function gets a warning at once that names the variable to set (docs/library.md). */
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

/* `stage` has done `done` of `total`; total 0: the stage is complete.  Any thread may call it. */
typedef void calm_event_fn(void *user, calm_stage stage, size_t done, size_t total);

/* Set the function that receives the progress of quantize, select, assemble, verify and evaluations; NULL: none. */
CALM_API calm_status calm_set_events(calm_ctx *ctx, calm_event_fn *fn, void *user);

/* From any thread or a signal handler: the call that runs with this context, or else the next one, fails with
 * CALM_EINTERRUPTED before its next candidate or sublayer.  A run that is repeated continues from its store. */
CALM_API void calm_interrupt(calm_ctx *ctx);

/* ---- recipes ---- */

/* A recipe as the user writes it: what a run shall do; docs/recipes.md lists the keys.  Opaque. */
typedef struct calm_recipe_spec calm_recipe_spec;

/* Make a spec in which every key has its default. */
CALM_API calm_status calm_spec_new(calm_ctx *ctx, calm_recipe_spec **out);

/* Fill a spec from a recipe file, or from a shipped recipe by its name ("qwen-w4"); values of calm_spec_set have
 * priority.  CALM_ENOTFOUND; CALM_EFORMAT: not a recipe, with the place in the document. */
CALM_API calm_status calm_spec_load(calm_ctx *ctx, calm_recipe_spec *spec, const char *path);

/* Set one value by its key ("choice.budget", or the key's last word if it is unique), from text as on a command line.
 * For a list key, each call adds an item.  CALM_EARG: an unknown key (with the nearest), a value that it refuses. */
CALM_API calm_status calm_spec_set(calm_ctx *ctx, calm_recipe_spec *spec, const char *key, const char *value);

/* The recipe as a JSON document, which calm_spec_load reads. */
CALM_API calm_status calm_spec_text(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* Resolve a spec - fill in every value, find every name, compare every file's digest - and give the result as JSON.
 * Fails as calm_quantize fails before its work begins. */
CALM_API calm_status calm_spec_resolve(calm_ctx *ctx, const calm_recipe_spec *spec, const char **json);

/* ---- runs ---- */

/* Forecast of a run on this machine. */
typedef struct calm_needs {
    double seconds;
    double memory_bytes, store_bytes;       /* most resident memory; candidates on disk */
    double bytes_before, bytes_after;       /* of the checkpoint                       */
    double bits_per_weight;                 /* of the quantized linears                */
    size_t n_candidates;
} calm_needs;

/* Forecast the run of a spec: open the model and measure the machine for a second; write nothing. */
CALM_API calm_status calm_forecast_run(calm_ctx *ctx, const calm_recipe_spec *spec, calm_needs *out);

/* Result of a run, of a selection, or of an assembly.  Figures that were not measured are NaN. */
typedef struct calm_outcome {
    int64_t run;                            /* number in the store; 0: a selection with dry_run                    */
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

/* Run a spec from start to end: capture, quantize, score, choose, guard, write, evaluate.  The store (SQLite) keeps
 * candidates, scores and choices, so that the same call after a kill continues from there.
 *
 *   lock   file for the digests of inputs and outputs, for calm_verify; NULL: none
 *
 * CALM_EARG: a key is missing or unknown, or does not fit; CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED: the model
 * or a text; CALM_EEXIST: the output exists and `force` is not set; CALM_ENOMEM: the run does not fit in `memory`;
 * CALM_EMISMATCH: a gate does not hold, but *out is filled. */
CALM_API calm_status calm_quantize(calm_ctx *ctx, const calm_recipe_spec *spec, const char *lock, calm_outcome *out);

/* A new choice from the candidates that a run left in the store, without the model.  NULL and 0: as in the run. */
typedef struct calm_select_request {
    const char *store;
    int64_t run;
    const char *unit, *rule, *metric;       /* "job", "sublayer", "block"; "token", "argmax"; "rel_mae"            */
    double budget;                          /* bits per weight                                                     */
    double act_budget;                      /* mean bits of activations                                            */
    double shortlist;                       /* factor of the rule "token", from 1: docs/method.md section 5        */
    const char *const *forbid;              /* [n_forbid] a name, a pattern, or "#12"; added to those of the run   */
    size_t n_forbid;
    const char *const *pins;                /* [2 n_pins] unit, candidate, ...; they have priority over the run's  */
    size_t n_pins;
    const char *engine;                     /* engine that must run the plan: "vllm"                               */
    bool dry_run;                           /* write nothing                                                       */
} calm_select_request;

/* Choose, and store the choice as a new run unless dry_run is set.  CALM_ENOTFOUND: no such store or run; CALM_EARG: a
 * metric that the unit does not have, a name that matches no candidate or unit, a budget that cannot be reached. */
CALM_API calm_status calm_select(calm_ctx *ctx, const calm_select_request *request, calm_outcome *out);

typedef struct calm_assemble_request {
    const char *store;
    int64_t run;
    const char *output;
    const char *model;                      /* directory of the float model; NULL: where the run read it           */
    const char *const *formats;             /* [n_formats] "gguf", "awq", ...; n_formats 0: those of the run       */
    size_t n_formats;
    bool hybrid;                            /* the run's choices, even if a uniform run was its result             */
    bool force;                             /* replace the output                                                  */
} calm_assemble_request;

/* Write the checkpoint of a run from its stored candidates, without a new run. */
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
    int64_t rows, blob_bytes;               /* removed; blob_bytes includes rows that a guard has left behind      */
    int64_t bytes_before, bytes_after;      /* of the database file                                                */
} calm_gc_outcome;

/* Drop runs from a store, and every row and blob that no remaining run needs. */
CALM_API calm_status calm_gc(calm_ctx *ctx, const calm_gc_request *request, calm_gc_outcome *out);

/* One difference from a lock. */
typedef struct calm_difference {
    const char *what;                       /* "output tensor"                                                     */
    const char *name;
    const char *expected, *found;           /* digests, or words; NULL: missing                                    */
} calm_difference;

typedef struct calm_verify_request {
    const char *lock;
    const char *output;                     /* compare only this directory; NULL: repeat the run                   */
    const char *work;                       /* parent of the run's temporary folder; NULL: "calm-out"              */
    const char *model, *store, *memory;     /* replace the recipe's; NULL: its model, an empty store, its default  */
} calm_verify_request;

typedef struct calm_verification {
    size_t n_checked, n_differences;
    const calm_difference *differences;     /* [n_differences] in the order of names                               */
} calm_verification;

/* Repeat the run of a lock, or read an output, and compare every digest.  CALM_EMISMATCH: something differs, and *out
 * lists it; CALM_EUNSUPPORTED: the lock needs other OpenBLAS kernels than this process has loaded. */
CALM_API calm_status calm_verify(calm_ctx *ctx, const calm_verify_request *request, calm_verification *out);

/* ---- models and evaluation ---- */

typedef struct calm_model calm_model;
typedef struct calm_tokenizer calm_tokenizer;

/* Find the directory of a model by its name: a path, an alias ("qwen"), or ORG/NAME[@REVISION] on the hub, which is
 * fetched if it is not in the cache.  CALM_ENOTFOUND, with the nearest alias. */
CALM_API calm_status calm_find(calm_ctx *ctx, const char *name, const char **dir);

/* Open a checkpoint - float, or in a quantized format that calm reads - and check presence, shape and type of every
 * tensor against config.json.  CALM_ENOTFOUND, CALM_EFORMAT, CALM_EUNSUPPORTED: file, tensor, expected, found. */
CALM_API calm_status calm_model_open(calm_ctx *ctx, const char *dir, calm_model **out);
CALM_API void calm_model_close(calm_model *model);

/* Read `path`, a tokenizer.json; *out is NULL on failure.  CALM_ENOTFOUND, CALM_EIO; CALM_EFORMAT: not JSON, larger
 * than 64 MiB, or contradictory; CALM_EUNSUPPORTED: a part that calm does not know, with its place. */
CALM_API calm_status calm_tokenizer_open(calm_ctx *ctx, const char *path, calm_tokenizer **out);
CALM_API void calm_tokenizer_close(calm_tokenizer *tokenizer);

/* Encode a text to ids [*n_ids]; `special`: add the special tokens of the template.  The text of an added token
 * ("<|im_end|>") always becomes its id.  CALM_EFORMAT: the text is not UTF-8, with the byte's offset; the search for a
 * pattern exceeds its limits; a Unigram without an unknown token meets an unknown character.  CALM_EARG: 2 GiB or
 * more. */
CALM_API calm_status calm_tokenizer_encode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *text,
                                           size_t n_bytes, bool special, uint32_t **ids, size_t *n_ids);

/* Decode ids [n] to a text of *n_bytes bytes and a NUL, in valid UTF-8 (incomplete characters become U+FFFD);
 * `special`: keep special tokens.  CALM_EARG: an id without a token. */
CALM_API calm_status calm_tokenizer_decode(calm_ctx *ctx, const calm_tokenizer *tokenizer, const uint32_t *ids,
                                           size_t n, bool special, char **text, size_t *n_bytes);

/* A model to evaluate, and the text to evaluate it on. */
typedef struct calm_measure_request {
    const char *model, *reference;          /* directories or names; reference NULL: none (encoders need one)      */
    const char *text;                       /* text or JSON lines; NULL: the bundled WikiText-2 test               */
    size_t seqlen, samples;                 /* tokens per window, 0: 512; windows or sentences, 0: all             */
    bool no_special;                        /* no special tokens (BOS) before a window                             */
} calm_measure_request;

/* Means over the text.  Encoders have only the last four, decoders all others; figures that were not measured are
 * NaN. */
typedef struct calm_figures {
    size_t n_windows, n_tokens;             /* windows or sentences; tokens predicted, or read                     */
    double nll, ppl;                        /* negative log-likelihood per token; exp of it                        */
    double kl, top1, top5;                  /* against the reference                                               */
    double error, cosine, cosine_min;       /* of sentence embeddings against the reference's                      */
    double spearman;                        /* correlation of the ranks of pairwise cosines                        */
} calm_figures;

/* Evaluate a model on a text: perplexity and divergence of a decoder, distance of the embeddings of an encoder.
 * Linears with quantized inputs are computed as exact integer sums, as in the figures of calm_quantize. */
CALM_API calm_status calm_measure_model(calm_ctx *ctx, const calm_measure_request *request, calm_figures *out);

/* Compute the embeddings x [*n, *width] of the sentences of a text by an encoder: as the model's modules.json says, or
 * without it means of the last hidden state over tokens. */
CALM_API calm_status calm_embed(calm_ctx *ctx, const calm_measure_request *request, const double **x, size_t *n,
                                size_t *width);

typedef struct calm_task_figures {
    size_t n_tasks;
    double acc, acc_norm;                   /* share of right answers; by log-probability per character            */
    double acc_se, acc_norm_se;             /* standard errors                                                     */
    double reference_acc, same;             /* the reference's; share that both answer alike                       */
} calm_task_figures;

/* Let a model, and its reference, answer the multiple-choice tasks in the file `request->text`: JSON lines {"context",
 * "choices", "answer"}. */
CALM_API calm_status calm_answer(calm_ctx *ctx, const calm_measure_request *request, calm_task_figures *out);

/* ---- checkpoints ---- */

/* A fault in a checkpoint: an engine would fail on it, or read other values. */
typedef struct calm_check_fault {
    const char *rule, *severity;            /* "CT002"; "note", "warning", "error"                                 */
    const char *where, *what, *remedy;      /* module, tensor, file or key; found and expected; what to do         */
} calm_check_fault;

typedef struct calm_check_outcome {
    const char *format;                     /* "compressed-tensors", "gguf"; NULL: unknown                         */
    size_t n_tensors, n_quantized;
    size_t n_faults, n_errors;
    const calm_check_fault *faults; /* [n_faults]                                                          */
} calm_check_outcome;

/* Check a quantized directory or GGUF file for an engine: "vllm", "sglang", "transformers", "llamacpp", "mlx"; "any":
 * the rules that hold for every engine.  Errors in the checkpoint are faults in *out, not a failure. */
CALM_API calm_status calm_check_path(calm_ctx *ctx, const char *path, const char *engine, calm_check_outcome *out);

/* Write a quantized directory or GGUF file as plain floats of dtype "f32", "f16" or "bf16"; NULL: the checkpoint's. */
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

/* The rule by which a token's range gives the scale of its activations.  A checkpoint does not say which of the first
 * two rules holds. */
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
    int family;               /* 0: integers; else the number that calm_scheme_parse gives for a name like "nvfp4" */
    int mix;                  /* 0: the same for every linear; else its number for a name like "gguf_q4_k_m" */
    int group_else;           /* columns per scale if `group` does not divide; -1: one per row; 0: none      */
    bool act_order;           /* groups hold inputs by falling power, not neighbours                         */
} calm_scheme;

/* Parse the name of a scheme.  CALM_EARG, with the fault and examples. */
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
    const double *cross;     /* [I, I] sum of x y^T, y the same input after float blocks; or NULL   */
} calm_stats;

/* Compute all statistics of an input x [n, width] and keep every row; x is borrowed.  CALM_EARG: no row, no column.
 * CALM_ENUMERIC: a value that is not finite, with row and column. */
CALM_API calm_status calm_stats_new(calm_ctx *ctx, const float *x, size_t n, size_t width, calm_stats *out);

/* One weight matrix. */
typedef struct calm_linear {
    const char *name;     /* of the module, for messages: "model.layers.0.self_attn.q_proj" */
    size_t out, in;
    const float *w;       /* [out, in], borrowed */
    bool bias;            /* the linear has a bias, which an algorithm may correct */
} calm_linear;

/* The linears of one block that read the same input. */
typedef struct calm_job {
    const char *name;             /* for messages: "model.layers.0.qkv"                             */
    const calm_linear *linears;   /* [n_linears], all with the same `in`                            */
    size_t n_linears;
    const calm_stats *stats;
    calm_scheme scheme;
    bool can_absorb;              /* an input scale per channel can be folded into the layer before  */
    const uint32_t *absorb_group; /* [I] inputs with equal numbers share one scale; NULL: each its own
                                   * (o: all query heads of a kv head read the same row of v)       */
    size_t n_absorb_groups;       /* numbers in absorb_group are below this                         */
} calm_job;

/* A quantized job: W^ = (codes - zeros) * scales approximates W diag(in_scale); in other families
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
    float *mins;         /* [O, G] added to codes times scales; NULL = nothing                      */
    float global;        /* divisor of stored scales, if the scheme has one; else 0                   */
    float act_global;    /* the same for the scales of activations                                    */
    uint32_t *order;     /* [I] column k of codes belongs to input order[k]; NULL: to input k         */
} calm_qjob;

/* A parsed chain of parts with resolved options; opaque. */
typedef struct calm_algorithm calm_algorithm;

/* Parse a preset ("gptq-hls"; calm algorithms lists them) or a chain ("smooth(alpha=0.75)+hls(signed=true)+gptq").
 * CALM_EARG: unknown name (the nearest is suggested), parts of the wrong kinds or order, a bad option. */
CALM_API calm_status calm_algorithm_parse(calm_ctx *ctx, const char *text, calm_algorithm **out);

/* Quantize a job, in parallel over rows; the bytes do not depend on the number of threads.
 *
 * CALM_ENUMERIC: NaN or infinity in weights or statistics, a Gram matrix that is not positive definite within the
 * damping limit, a scale out of range - with tensor, row and group; too few kept rows for a fit.  CALM_EUNSUPPORTED:
 * the algorithm does not support the scheme.  CALM_EARG: a statistic that the algorithm needs is missing. */
CALM_API calm_status calm_algorithm_run(calm_ctx *ctx, const calm_algorithm *algorithm, const calm_job *job,
                                        calm_qjob *out);

/* w [O, I] = (codes - zeros) * scales / in_scale in float32: the weight that replaces W for unscaled inputs. */
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
    bool constant;               /* all rows of Z are equal, and those of Y are not: the candidate fails */
} calm_scores;

/* Everything that scores need of the float outputs Y, shared by all candidates of a sublayer; opaque. */
typedef struct calm_score_ref calm_score_ref;

/* Prepare Y [n, d]; y is borrowed.  CALM_ENUMERIC: a value that is not finite, with row and column; CALM_EARG: n < 4
 * or d = 0. */
CALM_API calm_status calm_score_prepare(calm_ctx *ctx, const float *y, size_t n, size_t d, calm_score_ref **out);

/* Compute all metrics of Z [n, d] against a prepared Y.  Less is better; 0 is the best value except for log_rel_mse.
 * CALM_ENUMERIC: a value that is not finite, with row and column. */
CALM_API calm_status calm_score(calm_ctx *ctx, const calm_score_ref *ref, const float *z, calm_scores *out);

#ifdef __cplusplus
}
#endif

#endif
