/* The store: everything that calm computed, in one SQLite file and a folder of blobs next to it.
 *
 *   calm.db           rows (store/schema.sql documents every table and column)
 *   calm.db.blobs/    quantized jobs, named by their SHA-256 (store/blob.h)
 *   calm.db.lock      the one writer: process id and command line of who holds it
 *   calm.db.v3.bak    the store as it was before a newer calm brought it up to date
 *
 * The store knows strings, numbers and blobs; it does not know what quantization is.
 *
 * Rules.  One writer at a time, held by a lock on the .lock file; readers are never blocked (WAL).  Rows are
 * found by content keys, never by names or times: a key that is present need not be computed again, and that is
 * the whole of "resume".  A blob is put before the row that names it is committed.  Every function below that
 * writes more than one row is one transaction by itself, and joins the caller's when one is open.
 *
 * Conventions.  `ctx` first; ids are > 0, and 0 is "none" (NULL in the database).  A NULL string is NULL in
 * the database, where the schema allows it.  A NaN is NULL where the schema allows it.  Strings and arrays that
 * come out live in ctx->out.  A store belongs to one thread.
 * Failures common to all: CALM_ENOSPC disk full, CALM_EBUSY another program holds the database for longer than
 * 10 s, CALM_EFORMAT the file is damaged, CALM_EIO; CALM_EARG a row that breaks a rule of the schema (unknown id,
 * missing string), which is a mistake of the caller; each names the file. */
#pragma once

#include <stdint.h>

#include "ptq/base/context.h"

typedef struct calm_store calm_store;

/* What follows the store's name in that of a file in which a run keeps what it continues with after a kill, and in that
 * of the file while it is written. */
#define CALM_STORE_GUARD     ".guard"
#define CALM_STORE_GUARD_NEW ".guard.new"

/* ---- open and close ---- */

typedef enum calm_store_mode {
    CALM_STORE_READ,     /* no lock taken, nothing written; the store must exist */
    CALM_STORE_WRITE,    /* takes the writer's lock; creates the store when absent */
    CALM_STORE_RELAY,    /* rows in memory, for this process alone, and told to `relay`; blobs next to `path` */
} calm_store_mode;

/* Receives what is put into a store that relays: candidates, their scores, experts, activations and texts around
 * tokens, after they were put.  Ids are this store's.  Anything but CALM_OK is the result of the put. */
typedef struct calm_store_relay calm_store_relay;

typedef struct calm_store_how {
    calm_store_mode mode;
    const char *command;    /* WRITE: shown to a second writer ("calm quantize --model qwen"); NULL: "calm" */
    double wait_seconds;    /* WRITE: how long to wait for another writer; 0: do not, < 0: without end */
    const calm_store_relay *relay;    /* RELAY: borrowed for as long as the store is open */
} calm_store_how;

/* Open the store at `path`; `how` NULL means CALM_STORE_READ.  Close with calm_store_close.
 *
 * WRITE: a file that is absent, empty, or left without tables by an interrupted creation becomes a new store; its
 * folder must exist.  While another writer holds the lock a warning is logged once ("waiting for process 4711
 * (calm quantize ...)").  A store of an older version is copied to PATH.v<version>.bak (.bak.2 ... where that is
 * taken), a warning names the copy, and it is brought up to date; when it cannot be copied, nothing is changed.  Runs
 * that a dead writer left as `running` become `interrupted`, stale temporary blobs go.
 *
 * Fails with
 *   CALM_ENOTFOUND     READ and no such file, or an empty one
 *   CALM_EBUSY         another process writes: its id and command are in the message
 *   CALM_EFORMAT       not a SQLite database; damaged or truncated; a database of another program, or one whose tables
 *                      are not calm's
 *   CALM_EUNSUPPORTED  written by a newer calm: both version numbers are in the message; nothing was changed */
calm_status calm_store_open(calm_ctx *ctx, const char *path, const calm_store_how *how, calm_store **out);

/* Close; an open transaction is rolled back.  NULL is allowed. */
void calm_store_close(calm_store *store);

/* Path of the database, and of the blob folder for store/blob.h; owned by the store. */
const char *calm_store_path(const calm_store *store);
const char *calm_store_blobs(const calm_store *store);

/* Version of the schema that this program writes (PRAGMA user_version). */
int calm_store_version(void);

/* The schema itself: the text of store/schema.sql with its comments. */
const char *calm_store_schema(void);

/* ---- transactions ---- */

/* Begin, commit or roll back.  They nest: an inner commit takes effect with the outermost one, an inner
 * rollback undoes what came after its begin.  After a failure of the disk SQLite may have rolled back everything
 * already; rollback is then still right to call.  A commit that fails has rolled back. */
calm_status calm_store_begin(calm_ctx *ctx, calm_store *store);
calm_status calm_store_commit(calm_ctx *ctx, calm_store *store);
void calm_store_rollback(calm_store *store);

/* Commit when the context has no failure, else roll back; returns the context's status. */
calm_status calm_store_end(calm_ctx *ctx, calm_store *store);

/* ---- model, calibration, block, job: found or made by their keys, so calling twice gives the same id ---- */

typedef struct calm_store_model {
    const char *digest;          /* key: content hash of configuration and weights                      */
    const char *name;            /* as the user typed it: "qwen", "models/Qwen3-0.6B"                   */
    const char *path;            /* where it was read last                                              */
    const char *architecture;    /* "Qwen3ForCausalLM"                                                  */
    const char *dtype;           /* of the weights: "bfloat16"                                          */
    int64_t n_params, n_blocks, hidden_size, vocab_size, bytes;
} calm_store_model;

/* Everything but the digest is brought up to date when the model is known. */
calm_status calm_store_model_id(calm_ctx *ctx, calm_store *store, const calm_store_model *model, int64_t *id);

typedef struct calm_store_calibration {
    const char *key;              /* content hash over tokens and protocol                               */
    const char *text_name;        /* path or "bundled wikitext2-valid.txt"                               */
    const char *text_digest;      /* SHA-256 of the text file                                            */
    const char *tokens_digest;    /* SHA-256 of the token windows                                        */
    int64_t n_windows, window_tokens, n_tokens;
    int64_t seed;                 /* < 0: the first windows, not drawn                                   */
    int64_t score_windows;        /* how many of them candidates are scored on                           */
} calm_store_calibration;

/* The same for a calibration, a block and a job: found by their key, or written.  *id > 0. */
calm_status calm_store_calibration_id(calm_ctx *ctx, calm_store *store, const calm_store_calibration *calibration,
                                      int64_t *id);

typedef struct calm_store_block {
    int64_t model_id, number;    /* key: both; number counts from 0                                      */
    const char *name;            /* "model.layers.0"                                                     */
    const char *kind;            /* "decoder", "encoder"                                                 */
} calm_store_block;

/* See calm_store_calibration_id. */
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

/* See calm_store_calibration_id. */
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
    const char *metric;       /* that the rule reads first: "cka_token"                                   */
    const char *version;      /* of calm                                                                  */
    int64_t n_threads;        /* informative; not part of the key                                          */
} calm_store_run;

/* Start a run, status `running`.  The newest run of the same key that did not finish continues (its choices and
 * artifacts are kept and replaced as they are put again); otherwise a new row is made.  *resumed may be NULL. */
calm_status calm_store_run_begin(calm_ctx *ctx, calm_store *store, const calm_store_run *run, int64_t *id,
                                 bool *resumed);

typedef struct calm_store_outcome {
    const char *status;     /* "finished", "failed", "interrupted"                                        */
    const char *result;     /* what was assembled: "hybrid" or the name of the uniform algorithm          */
    const char *reason;     /* one sentence: the guard's verdict, or why the run failed                   */
    double bits_per_weight; /* NaN: unknown                                                               */
    int64_t bytes_before, bytes_after;    /* 0: unknown                                                   */
} calm_store_outcome;

/* Write how a run ended. */
calm_status calm_store_run_end(calm_ctx *ctx, calm_store *store, int64_t run_id, const calm_store_outcome *outcome);

/* Replace the recipe of a run by one that says what was decided since, its key as it is. */
calm_status calm_store_run_recipe(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *recipe);

/* Note that a run considered a candidate; no error when noted before.  Candidates are shared between runs. */
calm_status calm_store_run_candidate(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t candidate_id);

/* Note for a run all candidates that another considered: it chooses anew from the same pool. */
calm_status calm_store_run_pool(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t from_run_id);

/* ---- candidates and their scores ---- */

typedef struct calm_store_score {
    const char *unit;       /* what was replaced when it was measured: "job" (also when NULL), "sublayer", "block" */
    const char *metric;     /* "cka_token"                                                                 */
    double value;           /* infinities are kept; NaN is refused with CALM_ENUMERIC                      */
} calm_store_score;

typedef struct calm_store_candidate {
    const char *key;            /* content hash (ARCHITECTURE.md, Keys); one key is one job of one model   */
    int64_t job_id, calibration_id;
    const char *algorithm;      /* "gptq-hls"                                                              */
    const char *chain;          /* canonical text with options and revisions                               */
    const char *scheme;         /* "w4a16_g128"                                                            */
    const char *failure;        /* NULL: it succeeded; else the reason, and there is no blob               */
    const char *blob;           /* digest from calm_blob_put; NULL when it failed                          */
    int64_t blob_bytes;
    double bits_per_weight, damp, seconds;    /* seconds: informative                                      */
    int64_t score_rows, dropped_rows;         /* rows scored, < 0: not asked for; rows that cka_drop left out */
    const calm_store_score *scores;           /* [n_scores], borrowed                                      */
    size_t n_scores;
} calm_store_candidate;

/* Put a candidate with all its scores.  One that is there under the same key is replaced and keeps its id
 * (recomputed because its blob was damaged).  The blob must have been put before. */
calm_status calm_store_candidate_put(calm_ctx *ctx, calm_store *store, const calm_store_candidate *candidate,
                                     int64_t *id);

/* Find a candidate with all its scores by its key: *id is 0 when absent, and *out then all zero. */
calm_status calm_store_candidate_find(calm_ctx *ctx, calm_store *store, const char *key,
                                      calm_store_candidate *out, int64_t *id);

/* Add scores to a candidate, replacing those of the same unit and metric (a probe measured later). */
calm_status calm_store_scores_add(calm_ctx *ctx, calm_store *store, int64_t candidate_id,
                                  const calm_store_score *scores, size_t n_scores);

/* What went of the blobs. */
typedef struct calm_store_dropped {
    size_t n;
    int64_t bytes;
} calm_store_dropped;

/* Remove the blobs of the candidates that a run considered, but for those of candidates keep [n_keep] and for what else
 * in the store stands on them: choices, learned blocks with what they began from, the results of other runs, and all
 * that another run considered which did not finish or whose recipe has "keep_candidates".  The rows stay and name what
 * is gone: who needs it computes the same again.  For who writes, once what it needs is on the disk; killed, it has
 * removed some of them. */
calm_status calm_store_drop_rejected(calm_ctx *ctx, calm_store *store, int64_t run_id, const int64_t *keep,
                                   size_t n_keep, calm_store_dropped *out);

/* ---- learned blocks ---- */

typedef struct calm_store_learned {
    const char *key;            /* content hash of learner, windows, start and the blocks before           */
    int64_t block_id, calibration_id;
    const char *learner;        /* canonical text with options and revision                                */
    const char *kept;           /* why it stayed at its start; NULL: it was learned                        */
    const char *blob;           /* digest from calm_blob_put: its norms and biases                         */
    int64_t blob_bytes;
    double loss_before, loss_after;    /* NaN: none was computed                                           */
    int64_t changed;            /* codes that are not the start's                                          */
    double seconds;             /* informative                                                             */
} calm_store_learned;

/* Put a learned block with the candidates [n] that it consists of and those that they began as.  One that is there
 * under the same key is replaced and keeps its id.  Blob and candidates must have been put before. */
calm_status calm_store_learned_put(calm_ctx *ctx, calm_store *store, const calm_store_learned *learned,
                                   const int64_t *candidates, const int64_t *starts, size_t n, int64_t *id);

/* Find a learned block by its key: *id is 0 when absent, and *out then all zero. */
calm_status calm_store_learned_find(calm_ctx *ctx, calm_store *store, const char *key, calm_store_learned *out,
                                    int64_t *id);

/* Note that a run has a learned block; no error when noted before. */
calm_status calm_store_run_learned(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t learned_id);

/* ---- experts ---- */

/* Note how many calibration tokens were routed to the expert that a job belongs to. */
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
    double q25, q50, q75, q90, q99, q999;    /* of |x|, zeros apart                                        */
    double peak_median;                      /* median over tokens of m_t = max|x_t|                       */
    double ratio_median, ratio_max, ratio_mean, ratio_std;    /* of m_t / median|x_t|                      */
    double crest_median, crest_max;          /* of m_t / rms(x_t)                                          */
    const uint64_t *histogram;         /* [n_bins] counts over log10|x|, stored without the empty ends     */
    size_t n_bins;
    const calm_store_peak *peaks;      /* [n_peaks] by falling |value|                                     */
    size_t n_peaks;
} calm_store_activation;

/* Put one hook point with its peaks, replacing what was there. */
calm_status calm_store_activation_put(calm_ctx *ctx, calm_store *store, const calm_store_activation *activation);

/* Is this hook point there?  With hook NULL: is any hook point of that model and calibration there? */
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

/* Note the text around token `token` of window `window` of a calibration, unless it is noted: "" on a side without
 * tokens. */
calm_status calm_store_context_put(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                   int64_t token, const char *before, const char *after);

/* Is it noted? */
calm_status calm_store_context_exists(calm_ctx *ctx, calm_store *store, int64_t calibration_id, int64_t window,
                                      int64_t token, bool *exists);

/* ---- choices ---- */

typedef struct calm_store_choice {
    int64_t run_id, job_id;     /* key: one choice per run and job, also where larger units decide          */
    int64_t candidate_id;       /* 0: the job stays float                                                   */
    const char *unit;           /* name of the unit that was decided as one: "model.layers.0.self_attn.qkv" */
    const char *reason;         /* one sentence: "least log_rel_mse of 3 within 1.05 of the least cka_token" */
    const char *advice;         /* what the activation rule would do: "smooth", "plain"; NULL: not asked    */
    bool disagrees;             /* the advice and the choice differ                                         */
} calm_store_choice;

/* Write the choice of one unit of a run. */
calm_status calm_store_choice_put(calm_ctx *ctx, calm_store *store, const calm_store_choice *choice);

/* ---- evaluations: what was measured of a model on a text, found by key like candidates ---- */

/* Which figures an evaluation has.  The columns of the other kind are NULL. */
typedef enum calm_store_figures {
    CALM_STORE_PREDICTIONS,     /* of a decoder: perplexity and divergence                                  */
    CALM_STORE_EMBEDDINGS,      /* of an encoder: distances of its sentences' embeddings                    */
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
    const char *key;            /* content hash of what was evaluated, the text, the windows, the protocol  */
    int64_t model_id;           /* the float model it belongs to                                            */
    const char *subject;        /* "float", "hybrid", an algorithm's name, a directory                      */
    const char *text_name, *text_digest;
    int64_t window_tokens;      /* length of a window                                                       */
    calm_store_figures kind;    /* of this evaluation and its windows                                       */
    union {
        struct {                         /* CALM_STORE_PREDICTIONS                                          */
            int64_t tokens;              /* predicted tokens                                                */
            double nll, ppl, kl, top1;   /* means over tokens; ppl = exp(nll); kl and top1 NaN: no reference */
        };
        struct {                         /* CALM_STORE_EMBEDDINGS                                           */
            int64_t pairs;               /* of sentences whose cosines were ranked                          */
            double error, cosine, cosine_min;    /* means over sentences, and the least                     */
            double spearman;             /* rank correlation of the pairs' cosines; NaN: undefined          */
        };
    };
    const calm_store_window *windows;    /* [n_windows] in order: the samples of paired comparisons         */
    size_t n_windows;
} calm_store_evaluation;

/* Write an evaluation and its windows, replacing what has its key. */
calm_status calm_store_evaluation_put(calm_ctx *ctx, calm_store *store, const calm_store_evaluation *evaluation,
                                      int64_t *id);

/* *id is 0 when absent, and *out then all zero. */
calm_status calm_store_evaluation_find(calm_ctx *ctx, calm_store *store, const char *key,
                                       calm_store_evaluation *out, int64_t *id);

/* How KL(float || subject) is distributed over the predicted tokens of an evaluation. */
typedef struct calm_store_quantile {
    double share, kl;           /* this many of the tokens, of 1, have at most this kl                        */
} calm_store_quantile;

typedef struct calm_store_range {
    int64_t first_position, last_position, tokens;    /* places in the window, from 1                       */
    double kl;                  /* mean                                                                     */
} calm_store_range;

typedef struct calm_store_token {
    int64_t window, token;      /* the window's number; position in it, from 1                              */
    double kl, nll, nll_float;
    const char *text_before, *text, *best, *best_float;    /* none NULL: before it; its own; predicted first */
} calm_store_token;

typedef struct calm_store_divergence {
    const calm_store_quantile *quantiles;    /* [n_quantiles], borrowed, as the next two                    */
    const calm_store_range *ranges;          /* [n_ranges]                                                  */
    const calm_store_token *tokens;          /* [n_tokens] by falling kl                                    */
    size_t n_quantiles, n_ranges, n_tokens;
} calm_store_divergence;

/* Write it, replacing what the evaluation had. */
calm_status calm_store_divergence_put(calm_ctx *ctx, calm_store *store, int64_t evaluation_id,
                                      const calm_store_divergence *divergence);

/* Has the evaluation one? */
calm_status calm_store_divergence_exists(calm_ctx *ctx, calm_store *store, int64_t evaluation_id, bool *exists);

/* Use of an evaluation in a run. */
typedef struct calm_store_verdict {
    int64_t run_id, evaluation_id;
    const char *role;           /* key with run_id and subject: "guard", "test", "probe"                    */
    const char *subject;        /* as this run calls it: "float", "hybrid", "gptq"; NULL: the evaluation's own;
                                 * v_runs shows role "test" of "float" and of the outcome's `result`        */
    double delta, delta_se;     /* mean KL, of embeddings mean 1 - cosine, minus the hybrid's, and its paired
                                 * standard error; NaN: none                                                */
} calm_store_verdict;

/* Write what the guard found.  The difference goes into the column of the evaluation's kind. */
calm_status calm_store_verdict_put(calm_ctx *ctx, calm_store *store, const calm_store_verdict *verdict);

/* One way of choosing, of a run of calm ablate. */
typedef struct calm_store_ablation {
    int64_t run_id;
    const char *subject;        /* key with run_id: "gptq", "job cka_token token", "random 3"               */
    const char *kind;           /* "uniform", "hybrid", "oracle", "random", "seed"                          */
    const char *unit;           /* what got one choice: "job", "sublayer", "block"; NULL: nothing was chosen */
    const char *metric, *rule;  /* score that the rule read: "cka_token", "argmax"; NULL: none              */
    double bits, seconds;       /* per weight; that its candidates took to quantize; NaN: none              */
    int64_t differs;            /* units with another candidate than the best uniform run; < 0: unknown     */
    const char *failure;        /* why there is no such plan; NULL: it was measured                         */
    int64_t evaluation_id;      /* its figures; 0: there is no such plan                                    */
    double delta, delta_se;     /* mean KL, of embeddings mean 1 - cosine, minus the best uniform run's, and its
                                 * paired standard error; NaN: none                                         */
} calm_store_ablation;

/* Put a row of the table, replacing that of the same run and subject. */
calm_status calm_store_ablation_put(calm_ctx *ctx, calm_store *store, const calm_store_ablation *ablation);

/* ---- artifacts ---- */

typedef struct calm_store_artifact {
    int64_t run_id;
    const char *path;      /* key with run_id: as the user finds it                                         */
    const char *role;      /* "weights", "config", "tokenizer", "card", "recipe", "report"                  */
    int64_t bytes;
    const char *sha256;
} calm_store_artifact;

/* Write a file or folder that the run has made. */
calm_status calm_store_artifact_put(calm_ctx *ctx, calm_store *store, const calm_store_artifact *artifact);

/* ---- with what, and whether it holds ---- */

/* Put one fact about what a run was computed with, replacing that of the same name. */
calm_status calm_store_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *name,
                                       const char *value);

typedef struct calm_store_gate {
    int64_t run_id, position;   /* key: order in the recipe, from 0                                         */
    const char *gate;           /* as the recipe says: "ppl_ratio <= 1.05"                                  */
    double value;               /* what was measured; NaN: nothing                                          */
    bool holds;
} calm_store_gate;

/* Put what a gate found, replacing that of the same run and position. */
calm_status calm_store_gate_put(calm_ctx *ctx, calm_store *store, const calm_store_gate *gate);

/* Time of a stage of a run. */
typedef struct calm_store_stage {
    int64_t run_id, position;   /* key: order, from 0  */
    const char *stage;          /* "read", "gptq" ...  */
    double seconds, cpu_seconds;
    double forecast_seconds;    /* NAN: no forecast    */
} calm_store_stage;

/* Put it, replacing that of the same run and position. */
calm_status calm_store_stage_put(calm_ctx *ctx, calm_store *store, const calm_store_stage *stage);

/* Put what was forecast of a stage next to what it took.  CALM_EARG: the run has no such stage. */
calm_status calm_store_stage_forecast(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t position,
                                      double seconds);

/* ---- reading anything ---- */

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

/* Values for parameters: calm_value_int(7), calm_value_real(0.5), calm_value_text("x") (NULL gives NULL). */
calm_value calm_value_int(int64_t integer);
calm_value calm_value_real(double real);
calm_value calm_value_text(const char *text);

/* A cell as what is expected there; SQLite lets a cell have any type.  int: 0 for anything else; real: integers too,
 * NaN for anything else; string: NULL for anything else, valid as long as the value. */
int64_t calm_value_as_int(const calm_value *value);
double calm_value_as_real(const calm_value *value);
const char *calm_value_as_string(const calm_value *value);

/* A copy of calm_value_as_string in ctx->out. */
calm_status calm_value_copy(calm_ctx *ctx, const calm_value *value, const char **out);

/* Receives one row; `names` and `values` [n] are valid during the call, and so is what it puts into ctx->scratch, which
 * is rewound at the end of the query.  It must not close the store.  It is called once before the first
 * row with `values` NULL, so that headings exist without rows.  Anything but CALM_OK ends the query and is its
 * result. */
typedef calm_status calm_store_row_fn(calm_ctx *ctx, void *user, size_t n, const char *const *names,
                                      const calm_value *values);

/* Run one SELECT with `params` [n_params] bound to ?1 ...; works in both modes.
 * CALM_EARG: wrong SQL (SQLite's words), more than one statement, a wrong number of parameters, or anything that
 * writes, attaches or changes settings. */
calm_status calm_store_query(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                             size_t n_params, calm_store_row_fn *fn, void *user);

/* The same for a caller that knows the columns: `fn` receives the values of each row, and nothing before the first. */
typedef calm_status calm_store_each_fn(calm_ctx *ctx, void *user, const calm_value *values);
calm_status calm_store_each(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                            size_t n_params, calm_store_each_fn *fn, void *user);

/* The first row of such a query, copied into ctx->out: values [n_values], which must be the number of columns.
 * CALM_ENOTFOUND when there is no row. */
calm_status calm_store_query_one(calm_ctx *ctx, calm_store *store, const char *sql, const calm_value *params,
                                 size_t n_params, calm_value *values, size_t n_values);
