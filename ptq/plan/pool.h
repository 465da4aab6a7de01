/* Pool: what competed in a run - entries, jobs, and for each job and entry the candidate with its scores.
 *
 * A pool is plain data without a model and without a store.  A run fills one from the candidates in its memory
 * (calm_pool_of_run), later commands fill one from the rows of a store (calm_pool_of_store); ptq/plan/solve.h chooses
 * from either. */
#pragma once

#include "ptq/plan/rule.h"
#include "ptq/plan/scores.h"
#include "ptq/quant/scheme.h"

/* The failure of a candidate that a run did not compute. */
#define CALM_NOT_TRIED "not tried: the input's crest is below 5 (--effort light)"

/* How one entry is chosen for a unit: which score, read by which rule. */
typedef struct calm_selection {
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;                  /* its factor; read by the rule token alone                      */
    calm_point point;                  /* where the score was measured; of this unit                    */
    int score;                         /* CALM_METRIC_* or CALM_SCORE_*                                 */
} calm_selection;

/* What every unit is offered: an algorithm and the scheme that it reaches. */
typedef struct calm_pool_entry {
    const char *name;                  /* "gptq"; with several schemes "gptq w3a16_g128"                */
    const char *algorithm, *chain;     /* "gptq", its canonical text                                    */
    const char *scheme_name;           /* "w3a16_g128"                                                  */
    calm_scheme scheme;
    size_t of_scheme;                  /* number of its scheme among those of the pool                  */
    bool smooths;                      /* the algorithm sets input scales                               */
} calm_pool_entry;

typedef struct calm_pool_job {
    int64_t id;                        /* job.id of the store; 0: none                                  */
    const char *name, *role, *unit;    /* unit: the name of what gets one choice with others            */
    size_t block;                      /* its number in the model                                       */
    size_t out, in;                    /* rows of all its linears together, columns                     */
    size_t part;                       /* calm_engine_linear.part; 0 of a stored pool                    */
    bool expert;                       /* of a mixture; the shared expert is none                       */
    bool down;                         /* the second projection of an MLP                               */
    const calm_scheme *scheme;         /* type here of the pool's only scheme, a mix; NULL: no mix       */
    double crest;                      /* crest factor of its input; NaN: unknown                       */
} calm_pool_job;

/* The candidate of an entry on a job. */
typedef struct calm_pool_cell {
    int64_t id;                        /* candidate.id; 0: it was not computed                          */
    const char *key, *blob;            /* blob NULL: it failed, or is not needed                        */
    int64_t blob_bytes;
    const char *failure;               /* NULL: it succeeded                                            */
    double metric, tie, probe;         /* the rule's score, its tie metric, probe_kl or gradient_kl;
                                        * NaN: not measured                                             */
} calm_pool_cell;

/* What embedding and head can be in a file, and the bytes next to the jobs then. */
typedef struct calm_pool_table {
    const char *name;                  /* "embedding and head q6_k"; NULL: they stay float              */
    uint64_t bits;
    double loss;                       /* predicted KL; 0 where there is nothing to choose              */
} calm_pool_table;

/* The file that a plan of the pool becomes, where a budget is its size. */
typedef struct calm_pool_file {
    const uint64_t *bits;              /* [n_jobs][n_schemes] that a job takes in it                    */
    uint64_t limit;                    /* bits of all of it                                             */
    const calm_pool_table *tables;     /* [n_tables]                                                    */
    size_t n_tables, table;            /* table: the one of plans; n_tables: the solver takes one       */
    bool taken;                        /* a table was: what only a larger one would have used up is left over */
    const char *asked, *what;          /* for messages: "`choice.size` 3.0MB", "bytes"                  */
    double unit;                       /* bits that one of `what` is                                    */
} calm_pool_file;

typedef struct calm_pool {
    const calm_pool_entry *entries;    /* [n_entries] scheme after scheme                               */
    size_t n_entries;
    const calm_scheme *schemes;        /* [n_schemes] by the entries' of_scheme                         */
    size_t n_schemes;
    const calm_pool_job *jobs;         /* [n_jobs] in the model's order, those of a unit side by side   */
    size_t n_jobs;
    const calm_pool_cell *cells;       /* [n_jobs][n_entries]                                           */
    size_t *unit_begin;                /* [n_units + 1] first job of each unit (calm_pool_index)        */
    size_t n_units;
    calm_unit unit;
    calm_choice_rule rule;
    double shortlist;                  /* its factor; read by the rule token alone                      */
    const char *metric;                /* name of the score that the cells' `metric` is                 */
    bool pending;                      /* candidates are still to be computed: none has failed yet      */
    bool numbered;                     /* cells have the ids of what the store has: requests that name
                                        * a candidate by its number can be judged                       */
    bool gradient;                     /* cells have gradient_kl, not probe_kl                          */
    bool every;                        /* a candidate without that score is an error, not a rejected candidate       */
    const calm_pool_file *file;        /* an infinite budget of bits is its size; NULL: it limits nothing */
    const char *remedy;                /* where scores are missing: what to do                          */
} calm_pool;

/* Find the units: neighbouring jobs with the same unit name.  Fills unit_begin (in ctx->out) and n_units. */
calm_status calm_pool_index(calm_ctx *ctx, calm_pool *pool);

/* The cell of an entry on a job. */
const calm_pool_cell *calm_pool_at(const calm_pool *pool, size_t job, size_t entry);

/* The name of a unit, by its number. */
const char *calm_pool_unit(const calm_pool *pool, size_t unit);

/* Why an entry cannot be had for a unit: the failure of the first of its jobs that has one; NULL: it can. */
const char *calm_pool_failure(const calm_pool *pool, size_t unit, size_t entry);

/* Is the unit one expert, or a job of one? */
bool calm_pool_is_expert(const calm_pool *pool, size_t unit);

/* The scheme of a job at one of the pool's. */
const calm_scheme *calm_pool_scheme(const calm_pool_job *job, const calm_scheme *scheme);

/* Weights of jobs begin .. end - 1; their bits, scales and zeros included, at a scheme of the pool. */
double calm_pool_weights(const calm_pool *pool, size_t begin, size_t end);
double calm_pool_bits(const calm_pool *pool, size_t begin, size_t end, const calm_scheme *scheme);

/* What the activation rule advises for a job at an entry's scheme, "smooth" or "plain", and whether the entry does
 * otherwise.  NULL: no advice, because no entry smooths, activations stay float, or the crest factor is unknown. */
const char *calm_pool_advice(const calm_pool *pool, size_t job, size_t entry, bool *disagrees);
