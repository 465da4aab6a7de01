/* Pool: everything that competes in a run: entries, jobs, and for each job and entry the candidate with its scores.
 *
 * A pool is plain data without a model or a store.  A run fills a pool from the candidates in its memory
 * (calm_pool_of_run); later commands fill a pool from the rows of a store (calm_pool_of_store).  ptq/plan/solve.h
 * chooses from both. */
#pragma once

#include "ptq/plan/rule.h"
#include "ptq/plan/scores.h"
#include "ptq/quant/scheme.h"

/* The failure text of a candidate that a run did not compute. */
#define CALM_NOT_TRIED "not tried: the input's crest is below 5 (--effort light)"

/* How one entry is chosen for a unit: the score and the rule that reads it. */
typedef struct calm_selection {
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;                  /* factor of the shortlist; only the rule `token` reads it       */
    calm_point point;                  /* point of the unit at which the score was measured             */
    int score;                         /* CALM_METRIC_* or CALM_SCORE_*                                 */
} calm_selection;

/* One choice that every unit has: an algorithm at a scheme. */
typedef struct calm_pool_entry {
    const char *name;                  /* "gptq"; with several schemes "gptq w3a16_g128"                */
    const char *algorithm, *chain;     /* "gptq"; its chain in canonical text                           */
    const char *scheme_name;           /* "w3a16_g128"                                                  */
    calm_scheme scheme;
    size_t of_scheme;                  /* index of its scheme in calm_pool.schemes                      */
    bool smooths;                      /* true: the algorithm sets input scales                         */
} calm_pool_entry;

typedef struct calm_pool_job {
    int64_t id;                        /* job.id of the store; 0: none                                  */
    const char *name, *role, *unit;    /* unit: name of the unit, whose jobs share one choice           */
    size_t block;                      /* number of the block in the model                              */
    size_t out, in;                    /* rows of all the job's linears together; columns               */
    size_t part;                       /* calm_engine_linear.part; 0 in a stored pool                   */
    bool expert;                       /* of a mixture's expert; the shared expert counts as dense      */
    bool down;                         /* the down projection of an MLP or expert                       */
    const calm_scheme *scheme;         /* GGUF mix, the pool's only scheme: the job's type; NULL: no mix */
    double crest;                      /* crest factor of the job's input; NaN: unknown                 */
} calm_pool_job;

/* The candidate of an entry on a job. */
typedef struct calm_pool_cell {
    int64_t id;                        /* candidate.id; 0: it was not computed                          */
    const char *key, *blob;            /* content key; blob's name, NULL: it failed, or is not needed   */
    int64_t blob_bytes;
    const char *failure;               /* NULL: it succeeded                                            */
    double metric, tie, probe;         /* score that the rule reads; its tie metric; probe_kl or gradient_kl;
                                        * NaN: not measured                                             */
} calm_pool_cell;

/* One way to store embedding and head in a file, with the bits of all tensors outside the jobs. */
typedef struct calm_pool_table {
    const char *name;                  /* "embedding and head q6_k"; NULL: they stay float              */
    uint64_t bits;                     /* of all tensors outside the jobs                               */
    double loss;                       /* predicted KL; 0 if there is only one table                    */
} calm_pool_table;

/* The file that a plan of the pool is written to, if the budget is a file size. */
typedef struct calm_pool_file {
    const uint64_t *bits;              /* [n_jobs][n_schemes] bits of a job in the file                 */
    uint64_t limit;                    /* bits of the whole file                                        */
    const calm_pool_table *tables;     /* [n_tables]                                                    */
    size_t n_tables, table;            /* table: index of the fixed table; n_tables: the solver chooses */
    bool taken;                        /* the table is chosen already: a limit above its largest plan is allowed */
    const char *asked, *what;          /* for messages: "`choice.size` 3.0MB"; the unit, "bytes"        */
    double unit;                       /* bits per unit of `what`                                       */
} calm_pool_file;

typedef struct calm_pool {
    const calm_pool_entry *entries;    /* [n_entries] scheme after scheme                               */
    size_t n_entries;
    const calm_scheme *schemes;        /* [n_schemes] indexed by calm_pool_entry.of_scheme              */
    size_t n_schemes;
    const calm_pool_job *jobs;         /* [n_jobs] in the model's order; a unit's jobs are neighbours   */
    size_t n_jobs;
    const calm_pool_cell *cells;       /* [n_jobs][n_entries]                                           */
    size_t *unit_begin;                /* [n_units + 1] first job of each unit, from calm_pool_index    */
    size_t n_units;
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;                  /* factor of the shortlist; only the rule `token` reads it       */
    const char *metric;                /* name of the score in the cells' `metric`                      */
    bool pending;                      /* candidates are not computed yet: none has failed              */
    bool numbered;                     /* cells have ids of the store, so that a request may name a
                                        * candidate by its number                                       */
    bool gradient;                     /* the cells' `probe` is gradient_kl, not probe_kl               */
    bool every;                        /* a candidate without the score is an error, not a rejected candidate */
    const calm_pool_file *file;        /* an infinite bit budget means this file's size; NULL: no limit */
    const char *remedy;                /* what a user does if scores are missing                        */
} calm_pool;

/* Groups neighbouring jobs with the same unit name into units.  Fills unit_begin (in ctx->out) and n_units. */
calm_status calm_pool_index(calm_ctx *ctx, calm_pool *pool);

/* Returns the cell of an entry on a job. */
const calm_pool_cell *calm_pool_cell_at(const calm_pool *pool, size_t job, size_t entry);

/* Returns the name of a unit. */
const char *calm_pool_unit(const calm_pool *pool, size_t unit);

/* Returns the first failure among the unit's candidates of an entry; NULL: all succeeded. */
const char *calm_pool_failure(const calm_pool *pool, size_t unit, size_t entry);

/* Returns true if the unit is one expert or a job of one. */
bool calm_pool_is_expert(const calm_pool *pool, size_t unit);

/* Returns the scheme that a job gets at `scheme` of the pool: its own type in a mix, else `scheme`. */
const calm_scheme *calm_pool_scheme(const calm_pool_job *job, const calm_scheme *scheme);

/* Return the number of weights of jobs begin .. end - 1, and their bits (with scales and zeros) at a pool's scheme. */
double calm_pool_weights(const calm_pool *pool, size_t begin, size_t end);
double calm_pool_bits(const calm_pool *pool, size_t begin, size_t end, const calm_scheme *scheme);

/* Returns what the activation rule advises for a job at an entry's scheme, "smooth" or "plain"; *disagrees: the entry
 * does the opposite.  NULL: no advice, because no entry smooths, activations stay float, or the crest is unknown. */
const char *calm_pool_advice(const calm_pool *pool, size_t job, size_t entry, bool *disagrees);
