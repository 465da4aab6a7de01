/* The store: all results of calm, in one SQLite file and a folder of blobs next to it.
 *
 *   calm.db           rows (store/schema.sql documents every table and column)
 *   calm.db.blobs/    quantized jobs, named by their SHA-256 (store/blob.h)
 *   calm.db.lock      locked by the one writer; has its process id and command line
 *   calm.db.v3.bak    a copy of the store from before a newer calm migrated it
 *
 * The store knows strings, numbers and blobs; it does not know what quantization is.
 *
 * Rules.  One writer at a time locks the .lock file; readers are never blocked (WAL).  Rows are found by content keys,
 * never by names or times: calm does not compute a key again that is present, and so a run resumes.  A blob is written
 * before the row that names it is committed.  Every function below that writes more than one row does so in one
 * transaction, or in the caller's if one is open.
 *
 * Conventions.  `ctx` first; ids are > 0, and 0 means "none" (NULL in the database).  A NULL string or a NaN is NULL in
 * the database, where the schema allows it.  Returned strings and arrays are in ctx->out.  A store belongs to one
 * thread.
 * Failures common to all: CALM_ENOSPC the disk is full, CALM_EBUSY another program locks the database for longer than
 * 10 s, CALM_EFORMAT the file is damaged, CALM_EIO; CALM_EARG a row breaks a rule of the schema (unknown id, missing
 * string), which is a mistake of the caller; each message names the file. */
#pragma once

#include <stdint.h>

#include "ptq/base/scope.h"

typedef struct calm_store calm_store;

/* Suffixes of the store's path for the file of the guard's hidden states, from which a killed run continues, and for
 * this file while it is being written. */
#define CALM_STORE_GUARD     ".guard"
#define CALM_STORE_GUARD_NEW ".guard.new"

/* ---- open and close ---- */

typedef enum calm_store_mode {
    CALM_STORE_READ,     /* no lock taken, nothing written; the store must exist */
    CALM_STORE_WRITE,    /* takes the writer's lock; creates the store when absent */
    CALM_STORE_RELAY,    /* a database in memory, whose rows also go to `relay`; blobs next to `path` */
} calm_store_mode;

/* Functions that receive the rows of a CALM_STORE_RELAY store after they were put: candidates, their scores, experts,
 * activations and texts around tokens.  Ids are this store's.  If a function fails, the put fails with its status. */
typedef struct calm_store_relay calm_store_relay;

typedef struct calm_store_how {
    calm_store_mode mode;
    const char *command;    /* WRITE: shown to a second writer ("calm quantize --model qwen"); NULL: "calm" */
    double wait_seconds;    /* WRITE: seconds to wait for another writer; 0: do not wait, < 0: wait without limit */
    const calm_store_relay *relay;    /* RELAY: borrowed for as long as the store is open */
} calm_store_how;

/* Open the store at `path`; `how` NULL means CALM_STORE_READ.  Close with calm_store_close.
 *
 * WRITE: a file that is absent, empty, or has no tables after an interrupted creation becomes a new store; its folder
 * must exist.  While another writer holds the lock, the function waits and logs one warning ("waiting for process 4711
 * (calm quantize ...)").  A store of an older version is copied to PATH.v<version>.bak (.bak.2 ... if that exists), a
 * warning names the copy, and the store is migrated; if it cannot be copied, nothing is changed.  Runs that a dead
 * writer left as `running` become `interrupted`, and its temporary blobs are removed.
 *
 * Fails with
 *   CALM_ENOTFOUND     READ and no such file, or an empty one
 *   CALM_EBUSY         another process has the lock: its id and command are in the message
 *   CALM_EFORMAT       not a SQLite database; damaged or truncated; a database of another program, or one whose tables
 *                      are not calm's
 *   CALM_EUNSUPPORTED  written by a newer calm: both version numbers are in the message; nothing was changed */
calm_status calm_store_open(calm_ctx *ctx, const char *path, const calm_store_how *how, calm_store **out);

/* Closes the store and rolls back an open transaction.  NULL is allowed. */
void calm_store_close(calm_store *store);

/* Marks the running runs of all stores that this process writes as `interrupted`, for a process that a signal ends.
 * From any thread; waits a second for a transaction of the thread that writes.  A failure is ignored, because the next
 * writer marks the runs too. */
void calm_store_interrupted(void);

/* Return the path of the database, and of the blob folder for store/blob.h; owned by the store. */
const char *calm_store_path(const calm_store *store);
const char *calm_store_blobs(const calm_store *store);

/* Returns the version of the schema that this program writes (PRAGMA user_version). */
int calm_store_version(void);

/* Returns the text of store/schema.sql with its comments. */
const char *calm_store_schema(void);

/* ---- transactions ---- */

/* Begin or commit a transaction.  Transactions nest: an inner commit takes effect with the outermost one.  A commit
 * that fails has rolled back.  Callers begin with the macro below. */
calm_status calm_store_begin(calm_ctx *ctx, calm_store *store);
calm_status calm_store_commit(calm_ctx *ctx, calm_store *store);

/* Begins a transaction, or returns from the function with the failure.  The end of the scope rolls it back unless
 * calm_store_commit came first, so that the store stays usable whichever step between fails.  An inner rollback undoes
 * only the changes since its begin; after a disk failure SQLite may already have rolled back everything. */
#define CALM_SCOPED_TRANSACTION(ctx, store)                                                                        \
    CALM_SCOPED(calm_store_scope, calm_store_leave) transaction_scope_ = calm_store_enter(store);                  \
    CALM_TRY(calm_store_begin((ctx), (store)))

/* The transactions that are open at the begin of a scope. */
typedef struct calm_store_scope {
    calm_store *store;
    int depth;
} calm_store_scope;

/* Notes how many transactions are open; rolls back those that were begun since. */
calm_store_scope calm_store_enter(calm_store *store);
void calm_store_leave(calm_store_scope *scope);

/* ---- model, calibration, block, job: rows found or written by their keys; a second call gives the same id ---- */

typedef struct calm_store_model {
    const char *digest;          /* key: content hash of configuration and weights                      */
    const char *name;            /* as the user typed it: "qwen", "models/Qwen3-0.6B"                   */
    const char *path;            /* directory from which it was last read                               */
    const char *architecture;    /* "Qwen3ForCausalLM"                                                  */
    const char *dtype;           /* of the weights: "bfloat16"                                          */
    int64_t n_params, n_blocks, hidden_size, vocab_size, bytes;
} calm_store_model;

/* Finds the model by its digest, or writes it.  All other columns of a known model are updated.  *id > 0. */
calm_status calm_store_model_id(calm_ctx *ctx, calm_store *store, const calm_store_model *model, int64_t *id);

typedef struct calm_store_calibration {
    const char *key;              /* content hash over tokens and protocol                               */
    const char *text_name;        /* path or "bundled wikitext2-valid.txt"                               */
    const char *text_digest;      /* SHA-256 of the text file                                            */
    const char *tokens_digest;    /* SHA-256 of the token windows                                        */
    int64_t n_windows, window_tokens, n_tokens;
    int64_t seed;                 /* < 0: the first windows of the text, not random ones                 */
    int64_t score_windows;        /* number of the windows on which candidates are scored                */
} calm_store_calibration;

/* Finds the calibration by its key, or writes it.  *id > 0. */
calm_status calm_store_calibration_id(calm_ctx *ctx, calm_store *store, const calm_store_calibration *calibration,
                                      int64_t *id);

typedef struct calm_store_block {
    int64_t model_id, number;    /* key: both; number counts from 0                                      */
    const char *name;            /* "model.layers.0"                                                     */
    const char *kind;            /* "decoder", "encoder"                                                 */
} calm_store_block;

/* Finds the block by its key, or writes it.  *id > 0. */
calm_status calm_store_block_id(calm_ctx *ctx, calm_store *store, const calm_store_block *block, int64_t *id);

typedef struct calm_store_job {
    int64_t block_id;              /* key: block_id and role                                             */
    const char *role;              /* within the block: "qkv", "o", "gate_up", "down"                    */
    int64_t position;              /* order within the block, from 0                                     */
    const char *name;              /* "model.layers.0.self_attn.qkv"                                     */
    const char *sublayer;          /* "attention", "mlp"                                                 */
    const char *linears;           /* module names joined by ' '                                         */
    int64_t out, in;               /* features: rows of all linears together, columns                    */
    const char *weights_digest;    /* SHA-256 over the linears' weights                                  */
    const char *input_hook;        /* name of the activation row that describes the input; may be NULL   */
} calm_store_job;

/* Finds the job by its key, or writes it.  *id > 0. */
calm_status calm_store_job_id(calm_ctx *ctx, calm_store *store, const calm_store_job *job, int64_t *id);

/* ---- runs ---- */

typedef struct calm_store_run {
    const char *key;          /* content hash of model, calibration, recipe and code version              */
    int64_t model_id;
    int64_t calibration_id;   /* 0: none yet                                                              */
    const char *command;      /* as typed                                                                 */
    const char *recipe;       /* JSON, resolved; NULL: "{}"                                               */
    const char *unit;         /* "job", "sublayer", "block"                                               */
    const char *rule;         /* rule of choice: "default", "argmax"                                      */
    const char *metric;       /* the metric that the rule reads first: "cka_token"                        */
    const char *version;      /* of calm                                                                  */
    int64_t n_threads;        /* informative; not part of the key                                          */
} calm_store_run;

/* Starts a run, with status `running`: continues the newest run of the same key that did not finish (its choices and
 * artifacts stay until they are put again), or else writes a new row.  *resumed says which; it may be NULL. */
calm_status calm_store_run_begin(calm_ctx *ctx, calm_store *store, const calm_store_run *run, int64_t *id,
                                 bool *resumed);

typedef struct calm_store_outcome {
    const char *status;     /* "finished", "failed", "interrupted"                                        */
    const char *result;     /* the assembled plan: "hybrid" or the name of the uniform algorithm          */
    const char *reason;     /* one sentence: the guard's verdict, or why the run failed                   */
    double bits_per_weight; /* NaN: unknown                                                               */
    int64_t bytes_before, bytes_after;    /* 0: unknown                                                   */
} calm_store_outcome;

/* Writes the outcome of a run. */
calm_status calm_store_run_end(calm_ctx *ctx, calm_store *store, int64_t run_id, const calm_store_outcome *outcome);

/* Replaces the recipe of a run by one that includes later decisions; the run's key does not change. */
calm_status calm_store_run_recipe(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *recipe);

/* Records that a run considered a candidate; a second call does nothing.  Runs share candidates. */
calm_status calm_store_run_candidate(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t candidate_id);

/* Records that a run considered all candidates of another run, because it chooses anew from the same pool. */
calm_status calm_store_run_pool(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t from_run_id);

/* ---- candidates and their scores ---- */

typedef struct calm_store_score {
    const char *unit;       /* unit that was quantized for the measurement: "job" (also NULL), "sublayer", "block" */
    const char *metric;     /* "cka_token"                                                                 */
    double value;           /* infinities are kept; NaN is refused with CALM_ENUMERIC                      */
} calm_store_score;

typedef struct calm_store_candidate {
    const char *key;            /* content hash (ARCHITECTURE.md, Keys); one key is one job of one model   */
    int64_t job_id, calibration_id;
    const char *algorithm;      /* "gptq-hls"                                                              */
    const char *chain;          /* canonical text with options and revisions                               */
    const char *scheme;         /* "w4a16_g128"                                                            */
    const char *failure;        /* NULL: it succeeded; else why it failed                                  */
    const char *blob;           /* digest from calm_blob_put; NULL if it failed                            */
    int64_t blob_bytes;
    double bits_per_weight, damp, seconds;    /* seconds: informative                                      */
    int64_t score_rows, dropped_rows;         /* rows scored, < 0: not scored; rows that cka_drop dropped  */
    const calm_store_score *scores;           /* [n_scores], borrowed                                      */
    size_t n_scores;
} calm_store_candidate;

/* Writes a candidate with all its scores.  A candidate of the same key is replaced and keeps its id (after its blob was
 * damaged and it was computed again).  The blob must have been put before. */
calm_status calm_store_candidate_put(calm_ctx *ctx, calm_store *store, const calm_store_candidate *candidate,
                                     int64_t *id);

/* Finds a candidate with all its scores by its key.  If there is none, *id is 0 and *out all zero. */
calm_status calm_store_candidate_find(calm_ctx *ctx, calm_store *store, const char *key,
                                      calm_store_candidate *out, int64_t *id);

/* Adds scores to a candidate, and replaces those of the same unit and metric (a probe measured later). */
calm_status calm_store_scores_add(calm_ctx *ctx, calm_store *store, int64_t candidate_id,
                                  const calm_store_score *scores, size_t n_scores);

/* Number and bytes of removed blobs. */
typedef struct calm_store_dropped {
    size_t n;
    int64_t bytes;
} calm_store_dropped;

/* Removes the blobs of the candidates that a run considered, except those of candidates keep [n_keep] and those that
 * the store still needs: for choices, for learned blocks and their starts, for the results of other runs, and for every
 * candidate of another run that did not finish or whose recipe has "keep_candidates".  The candidates' rows stay, and a
 * run that needs a removed blob computes it again.  The store must be open for writing, with the caller's own results
 * already on disk.  A killed process has removed some of the blobs. */
calm_status calm_store_drop_rejected(calm_ctx *ctx, calm_store *store, int64_t run_id, const int64_t *keep,
                                   size_t n_keep, calm_store_dropped *out);

/* ---- learned blocks ---- */

typedef struct calm_store_learned {
    const char *key;            /* content hash of learner, windows, start and the blocks before           */
    int64_t block_id, calibration_id;
    const char *learner;        /* canonical text with options and revision                                */
    const char *kept;           /* why the block was not changed; NULL: it was learned                     */
    const char *blob;           /* digest from calm_blob_put: its norms and biases                         */
    int64_t blob_bytes;
    double loss_before, loss_after;    /* NaN: not computed                                                */
    int64_t changed;            /* number of codes that differ from the start's                            */
    double seconds;             /* informative                                                             */
} calm_store_learned;

/* Writes a learned block with its candidates [n] and the candidate from which each was learned.  A learned block of the
 * same key is replaced and keeps its id.  Blob and candidates must have been put before. */
calm_status calm_store_learned_put(calm_ctx *ctx, calm_store *store, const calm_store_learned *learned,
                                   const int64_t *candidates, const int64_t *starts, size_t n, int64_t *id);

/* Finds a learned block by its key.  If there is none, *id is 0 and *out all zero. */
calm_status calm_store_learned_find(calm_ctx *ctx, calm_store *store, const char *key, calm_store_learned *out,
                                    int64_t *id);

/* Records that a run uses a learned block; a second call does nothing. */
calm_status calm_store_run_learned(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t learned_id);

/* ---- experts ---- */

/* Writes how many calibration tokens were routed to the expert of a job. */
calm_status calm_store_expert_put(calm_ctx *ctx, calm_store *store, int64_t job_id, int64_t calibration_id,
                                  int64_t tokens);

/* ---- activations ---- */

typedef struct calm_store_peak {
    double value;                      /* with sign                                                        */
    int64_t window, token, channel;    /* position, and which of the D values                              */
    const char *text;                  /* the token's text; NULL: unknown                                  */
} calm_store_peak;

typedef struct calm_store_activation {
    int64_t model_id, calibration_id;
    const char *hook;                  /* key with the two ids: "model.layers.0.mlp.down_proj.input"       */
    const char *point;                 /* the same place in every block: "down_in", "block_out", "embed"   */
    int64_t block;                     /* number of the block; < 0: outside the blocks                     */
    int64_t channels, count, zeros, n_tokens, n_massive;
    double mean, std, mean_abs, rms, min, max, max_abs;
    double q25, q50, q75, q90, q99, q999;    /* quantiles of |x| without the zeros                         */
    double peak_median;                      /* median over tokens of m_t = max|x_t|                       */
    double ratio_median, ratio_max, ratio_mean, ratio_std;    /* of m_t / median|x_t|                      */
    double crest_median, crest_max;          /* of m_t / rms(x_t)                                          */
    const uint64_t *histogram;         /* [n_bins] counts over log10|x|, stored without the empty ends     */
    size_t n_bins;
    const calm_store_peak *peaks;      /* [n_peaks] by falling |value|                                     */
    size_t n_peaks;
} calm_store_activation;

/* Writes one hook point with its peaks, replacing the old ones. */
calm_status calm_store_activation_put(calm_ctx *ctx, calm_store *store, const calm_store_activation *activation);

/* Does the store have this hook point, or (hook NULL) any hook point of that model and calibration? */
calm_status calm_store_activation_exists(calm_ctx *ctx, calm_store *store, int64_t model_id, int64_t calibration_id,
                                         const char *hook, bool *exists);

/* ---- relay ---- */

struct calm_store_relay {
    calm_status (*candidate)(calm_ctx *ctx, void *user, const calm_store_candidate *candidate, int64_t id);
    calm_status (*scores)(calm_ctx *ctx, void *user, int64_t candidate_id, const calm_store_score *scores, size_t n);
    calm_status (*expert)(calm_ctx *ctx, void *user, int64_t job_id, int64_t tokens);
    calm_status (*activation)(calm_ctx *ctx, void *user, const calm_store_activation *activation);
    calm_status (*context)(calm_ctx *ctx, void *user, int64_t window, int64_t token, const char *before,
                           const char *after);
    void *user;
};

/* Writes the text around token `token` of window `window` of a calibration, unless the store has it; "" on a side
 * without tokens. */
calm_status calm_store_context_put(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                   int64_t token, const char *before, const char *after);

/* Does the store have the text around that token? */
calm_status calm_store_context_exists(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                      int64_t token, bool *exists);

/* ---- choices ---- */

typedef struct calm_store_choice {
    int64_t run_id, job_id;     /* key: one choice per run and job, also where units are larger than jobs   */
    int64_t candidate_id;       /* 0: the job stays float                                                   */
    const char *unit;           /* name of the unit that got one choice: "model.layers.0.self_attn.qkv"     */
    const char *reason;         /* one sentence: "least log_rel_mse of 3 within 1.05 of the least cka_token" */
    const char *advice;         /* advice of the activation rule: "smooth", "plain"; NULL: not asked        */
    bool disagrees;             /* the advice and the choice differ                                         */
} calm_store_choice;

/* Writes the choice for one job of a run. */
calm_status calm_store_choice_put(calm_ctx *ctx, calm_store *store, const calm_store_choice *choice);

/* ---- evaluations: measurements of a model on a text, found by key like candidates ---- */

/* The kind of an evaluation, which says what columns it has; those of the other kind are NULL. */
typedef enum calm_store_figures {
    CALM_STORE_PREDICTIONS,     /* decoder: perplexity and divergence                                       */
    CALM_STORE_EMBEDDINGS,      /* encoder: distances of sentence embeddings                                */
} calm_store_figures;

typedef struct calm_store_window {
    union {
        struct {                    /* CALM_STORE_PREDICTIONS                                               */
            int64_t tokens;         /* predicted tokens                                                     */
            double nll, kl, top1;   /* sums over those tokens of -log p, KL(float || model); tokens that agree */
        };
        struct {                    /* CALM_STORE_EMBEDDINGS: the window is one sentence                    */
            double error, cosine;   /* relative error; cosine to the float model's embedding                */
        };
    };
} calm_store_window;

typedef struct calm_store_evaluation {
    const char *key;            /* content hash of the evaluated model, the text, the windows, the protocol */
    int64_t model_id;           /* the float model that it derives from                                     */
    const char *subject;        /* the evaluated model: "float", "hybrid", an algorithm's name, a directory */
    const char *text_name, *text_digest;
    int64_t window_tokens;      /* length of a window                                                       */
    calm_store_figures kind;    /* of this evaluation and its windows                                       */
    union {
        struct {                         /* CALM_STORE_PREDICTIONS                                          */
            int64_t tokens;              /* predicted tokens                                                */
            double nll, ppl, kl, top1;   /* means over tokens; ppl = exp(nll); kl and top1 NaN: no reference */
        };
        struct {                         /* CALM_STORE_EMBEDDINGS                                           */
            int64_t pairs;               /* number of sentence pairs whose cosines were ranked              */
            double error, cosine, cosine_min;    /* means over sentences, and the least cosine              */
            double spearman;             /* rank correlation of the pairs' cosines; NaN: undefined          */
        };
    };
    const calm_store_window *windows;    /* [n_windows] in order: the samples of paired comparisons         */
    size_t n_windows;
} calm_store_evaluation;

/* Writes an evaluation and its windows, replacing those of the same key. */
calm_status calm_store_evaluation_put(calm_ctx *ctx, calm_store *store, const calm_store_evaluation *evaluation,
                                      int64_t *id);

/* Finds an evaluation by its key.  If there is none, *id is 0 and *out all zero. */
calm_status calm_store_evaluation_find(calm_ctx *ctx, calm_store *store, const char *key,
                                       calm_store_evaluation *out, int64_t *id);

/* One quantile of KL(float || subject) over the predicted tokens of an evaluation. */
typedef struct calm_store_quantile {
    double share, kl;           /* this share of the tokens, in 0 .. 1, has at most this KL                   */
} calm_store_quantile;

/* Mean KL of the tokens at a range of positions. */
typedef struct calm_store_range {
    int64_t first_position, last_position, tokens;    /* positions in the window, from 1; tokens there      */
    double kl;                  /* mean                                                                     */
} calm_store_range;

/* A token of large KL. */
typedef struct calm_store_token {
    int64_t window, token;      /* the window's number; position in it, from 1                              */
    double kl, nll, nll_float;
    const char *text_before, *text, *best, *best_float;    /* text before the token; the token's text; the most
                                                            * likely token of the subject and of the float model */
} calm_store_token;

typedef struct calm_store_divergence {
    const calm_store_quantile *quantiles;    /* [n_quantiles], borrowed, as the next two                    */
    const calm_store_range *ranges;          /* [n_ranges]                                                  */
    const calm_store_token *tokens;          /* [n_tokens] by falling kl                                    */
    size_t n_quantiles, n_ranges, n_tokens;
} calm_store_divergence;

/* Writes the divergence of an evaluation, replacing the old one. */
calm_status calm_store_divergence_put(calm_ctx *ctx, calm_store *store, int64_t evaluation_id,
                                      const calm_store_divergence *divergence);

/* Does the store have the divergence of the evaluation? */
calm_status calm_store_divergence_exists(calm_ctx *ctx, calm_store *store, int64_t evaluation_id, bool *exists);

/* Use of an evaluation in a run. */
typedef struct calm_store_verdict {
    int64_t run_id, evaluation_id;
    const char *role;           /* key with run_id and subject: "guard", "test", "probe"                    */
    const char *subject;        /* the run's name for it: "float", "hybrid", "gptq"; NULL: the evaluation's own;
                                 * v_runs shows role "test" of "float" and of the outcome's `result`        */
    double delta, delta_se;     /* mean KL (embeddings: mean 1 - cosine) minus the hybrid's, and its paired standard
                                 * error; NaN: none                                                         */
} calm_store_verdict;

/* Writes the use of an evaluation in a run.  delta goes into the column of the evaluation's kind. */
calm_status calm_store_verdict_put(calm_ctx *ctx, calm_store *store, const calm_store_verdict *verdict);

/* One way of choosing in a run of calm ablate. */
typedef struct calm_store_ablation {
    int64_t run_id;
    const char *subject;        /* key with run_id: "gptq", "job cka_token token", "random 3"               */
    const char *kind;           /* "uniform", "hybrid", "oracle", "random", "seed"                          */
    const char *unit;           /* unit of the choice: "job", "sublayer", "block"; NULL: nothing was chosen */
    const char *metric, *rule;  /* metric that the rule read, the rule: "cka_token", "argmax"; NULL: none   */
    double bits, seconds;       /* bits per weight; seconds to quantize its candidates; NaN: none           */
    int64_t differs;            /* units with another candidate than the best uniform run; < 0: unknown     */
    const char *failure;        /* why there is no such plan; NULL: it was measured                         */
    int64_t evaluation_id;      /* its evaluation; 0: there is no such plan                                 */
    double delta, delta_se;     /* mean KL (embeddings: mean 1 - cosine) minus the best uniform run's, and its paired
                                 * standard error; NaN: none                                                */
} calm_store_ablation;

/* Writes one way of choosing, replacing that of the same run and subject. */
calm_status calm_store_ablation_put(calm_ctx *ctx, calm_store *store, const calm_store_ablation *ablation);

/* ---- artifacts ---- */

typedef struct calm_store_artifact {
    int64_t run_id;
    const char *path;      /* key with run_id: path of the file for the user                                */
    const char *role;      /* "weights", "config", "tokenizer", "card", "recipe", "report"                  */
    int64_t bytes;
    const char *sha256;
} calm_store_artifact;

/* Writes the row of a file or folder that the run has written. */
calm_status calm_store_artifact_put(calm_ctx *ctx, calm_store *store, const calm_store_artifact *artifact);

/* ---- environment, gates and stages of a run ---- */

/* Writes one fact about a run's environment, replacing that of the same name. */
calm_status calm_store_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *name,
                                       const char *value);

typedef struct calm_store_gate {
    int64_t run_id, position;   /* key: order in the recipe, from 0                                         */
    const char *gate;           /* as the recipe says: "ppl_ratio <= 1.05"                                  */
    double value;               /* measured value; NaN: none                                                */
    bool holds;
} calm_store_gate;

/* Writes the result of a gate, replacing that of the same run and position. */
calm_status calm_store_gate_put(calm_ctx *ctx, calm_store *store, const calm_store_gate *gate);

/* Times of a stage of a run. */
typedef struct calm_store_stage {
    int64_t run_id, position;   /* key: order, from 0  */
    const char *stage;          /* "read", "gptq" ...  */
    double seconds, cpu_seconds;
    double forecast_seconds;    /* NAN: no forecast    */
} calm_store_stage;

/* Writes the times of a stage, replacing those of the same run and position. */
calm_status calm_store_stage_put(calm_ctx *ctx, calm_store *store, const calm_store_stage *stage);

/* Adds the forecast time of a stage to its row.  CALM_EARG: the run has no such stage. */
calm_status calm_store_stage_forecast(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t position,
                                      double seconds);

/* ---- queries ---- */

typedef enum calm_value_type {
    CALM_VALUE_NULL,
    CALM_VALUE_INTEGER,
    CALM_VALUE_REAL,
    CALM_VALUE_TEXT,
    CALM_VALUE_BLOB
} calm_value_type;

typedef struct calm_value {
    calm_value_type type;
    int64_t integer;
    double real;
    const char *text;    /* TEXT: NUL-terminated; BLOB: bytes */
    size_t n_bytes;      /* of text, without the NUL */
} calm_value;

/* Return values for parameters: calm_value_int(7), calm_value_real(0.5), calm_value_text("x"); NULL gives NULL. */
calm_value calm_value_int(int64_t integer);
calm_value calm_value_real(double real);
calm_value calm_value_text(const char *text);

/* Return a cell as the expected type, because SQLite lets a cell have any type.  int: 0 for another type; real: also
 * integers, NaN for another type; string: NULL for another type, valid as long as the value. */
int64_t calm_value_as_int(const calm_value *value);
double calm_value_as_real(const calm_value *value);
const char *calm_value_as_string(const calm_value *value);

/* Copies calm_value_as_string to ctx->out. */
calm_status calm_value_copy(calm_ctx *ctx, const calm_value *value, const char **out);

/* Receives one row; `names` and `values` [n] are valid during the call, its allocations in ctx->scratch until the query
 * ends.  It must not close the store.  The first call has `values` NULL and comes before the first row, so that
 * headings exist without rows.  Any status but CALM_OK ends the query and is its result. */
typedef calm_status calm_store_row_fn(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                      const calm_value *values);

/* Runs one SELECT with `params` [n_params] bound to ?1 ...; works in all modes.
 * CALM_EARG: wrong SQL (SQLite's words), more than one statement, a wrong number of parameters, or anything that
 * writes, attaches or changes settings. */
calm_status calm_store_query(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                             size_t n_params, calm_store_row_fn *fn, void *user);

/* Does the same for a caller that knows the columns: `fn` receives only the values of each row, and no heading call. */
typedef calm_status calm_store_each_fn(calm_ctx *ctx, void *user, const calm_value *values);
calm_status calm_store_each(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                            size_t n_params, calm_store_each_fn *fn, void *user);

/* Copies the first row of such a query into ctx->out: values [n_values], which must be the number of columns.
 * CALM_ENOTFOUND: there is no row. */
calm_status calm_store_query_one(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                                 size_t n_params, calm_value *values, size_t n_values);
