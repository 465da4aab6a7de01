/* Solve: choices from stored scores - rows in, choices out - without a model and without a store.
 *
 *   pool       what competed in a run: entries, jobs, and for each job and entry the candidate with its scores
 *   wishes     entries that are forbidden, units that are pinned to one, a budget of bits
 *   solution   one entry per unit, with the reason
 *
 * The rule is ptq/hybrid/select.h, the budget ptq/hybrid/knapsack.h; what stands between them and a unit is here, for
 * the runs of the pipeline (cli/choose.c, cli/bits.c) and for `calm select` alike. */
#ifndef CALM_CLI_SOLVE_H
#define CALM_CLI_SOLVE_H

#include "cli/constraint.h"
#include "cli/scores.h"
#include "ptq/hybrid/knapsack.h"
#include "ptq/hybrid/select.h"
#include "ptq/quant/scheme.h"

/* The failure of a candidate that a run left out. */
#define CALM_NOT_TRIED "not tried: the input's crest is below 5 (--effort light)"

/* ---- one unit ---- */

/* What is asked of the candidates of one unit. */
typedef struct calm_pick {
    const char *unit;        /* its name, for messages                                                  */
    calm_rule rule;
    const char *metric;      /* name of the score that the rule reads                                   */
    bool expert;             /* one that no scoring token was routed to has no scores                   */
    const char *remedy;      /* what to do when no candidate has that score                             */
} calm_pick;

/* The winner among contenders [n] and why, in ctx->out.  Without scores an expert takes the first that did not fail.
 * CALM_ENUMERIC: every candidate failed.  CALM_EARG: none has the score. */
calm_status calm_pick_one(calm_ctx *ctx, const calm_pick *pick, const calm_contender *contenders, size_t n,
                          size_t *winner, char **reason);

/* What the activation rule says of an input of this crest: "smooth", "plain"; NULL: the crest is NaN. */
const char *calm_pick_advice(double crest);

/* ---- a budget ---- */

/* A unit and what it may become; options rise in cost. */
typedef struct calm_share {
    size_t begin, end;                 /* its jobs                                                      */
    size_t *entries;                   /* [n] of the pool                                               */
    char **reasons;                    /* [n] why that entry at its width                               */
    calm_knapsack_option *options;     /* [n] bits, loss                                                */
    size_t *schemes;                   /* [n] numbers of their schemes                                  */
    bool *held;                        /* [n] not to be had: the target does not take it                */
    size_t n;
    size_t set;                        /* first of the units that share a scheme; its own number: none  */
    bool pinned;                       /* to the one option                                             */
} calm_share;

/* Room for so many options, in ctx->out; and one more, in its place. */
calm_status calm_share_new(calm_ctx *ctx, size_t room, calm_share *out);
void calm_share_add(calm_share *share, size_t entry, size_t scheme, bool held, char *reason, double bits);

/* What one unit of a score costs the model: the probe of an option over its score.  0 where one of them says
 * nothing. */
double calm_share_kappa(double probe, double score);

/* Losses = factor * scores [n]; a score that is not finite loses nothing. */
void calm_share_lose(calm_share *share, double factor, const double *scores);

/* What a plan of shares loses, and what it lost to the target. */
typedef struct calm_share_total {
    double loss;                       /* of the plan                                                   */
    double unconstrained;              /* of the best plan that ignores the target                      */
    size_t held;                       /* units that are another option there                           */
} calm_share_total;

/* The best plan of shares [n] within so many bits: picked [n], an option of each, none that is held, those of a set at one
 * scheme.  *total (NULL: not wanted) also says what the best plan without that is.  Fails as calm_knapsack does;
 * CALM_ENUMERIC: candidates failed so that a set has no scheme. */
calm_status calm_share_fill(calm_ctx *ctx, const calm_share *shares, size_t n, double bits, size_t *picked,
                            calm_share_total *total);

/* Why an option was picked, in ctx->out; `loss` names what was added up: "predicted KL". */
calm_status calm_share_reason(calm_ctx *ctx, const calm_share *share, size_t option, const char *loss, char **out);

/* ---- a pool ---- */

typedef struct calm_solve_entry {
    const char *name;                  /* "gptq"; with several schemes "gptq w3a16_g128"                */
    const char *algorithm, *chain;     /* "gptq", its canonical text                                    */
    char scheme_name[CALM_SCHEME_NAME_MAX];
    calm_scheme scheme;
    size_t of_scheme;                  /* number of its scheme among those of the pool                  */
    bool smooths;                      /* sets input scales                                             */
} calm_solve_entry;

typedef struct calm_solve_job {
    int64_t id;                        /* job.id                                                        */
    const char *name, *role, *unit;    /* unit: the name of what is decided as one                      */
    size_t out, in;                    /* rows of all its linears, columns                              */
    double crest;                      /* of its input; NaN: unknown                                    */
    int64_t chosen;                    /* candidate that the run chose; 0: none                         */
} calm_solve_job;

/* An entry on a job. */
typedef struct calm_solve_row {
    int64_t id;                        /* candidate.id; 0: it was not tried                             */
    const char *key, *blob;            /* blob NULL: it failed                                          */
    int64_t blob_bytes;
    const char *failure;               /* NULL: it succeeded                                            */
    double metric, tie, probe;         /* NaN: not stored                                               */
} calm_solve_row;

typedef struct calm_solve_pool {
    const calm_solve_entry *entries;   /* [n_entries] scheme after scheme                               */
    size_t n_entries, n_schemes;
    const calm_solve_job *jobs;        /* [n_jobs] in the model's order, those of a unit side by side   */
    size_t n_jobs;
    const calm_solve_row *rows;        /* [n_jobs][n_entries]                                           */
    calm_unit unit;
    calm_rule rule;
    const char *metric;                /* name of the score that the rows' `metric` is                  */
    bool every;                        /* a candidate without that score is an error, not a loser       */
    const char *remedy;                /* where scores are missing: what to do                          */
} calm_solve_pool;

typedef struct calm_solve_pin {
    const char *unit;                  /* name or pattern: "model.layers.0.qkv", "0.qkv", "*.down"      */
    const char *candidate;             /* an entry, as in `forbid` below                                */
    bool of_recipe;                    /* the run itself was pinned so                                  */
} calm_solve_pin;

typedef struct calm_solve_wishes {
    const char *const *forbid;         /* [n_forbid] "gptq", "gptq w3a16_g128", "#123" (a candidate)    */
    size_t n_forbid;
    const calm_solve_pin *pins;        /* [n_pins] of several for a unit the last counts                */
    size_t n_pins;
    double budget;                     /* bits per weight; NaN: none                                    */
    const calm_engine *target;         /* whose plans are legal; NULL: nobody's                         */
    const char *format;                /* that it is to read; NULL: its first                           */
    calm_tie tie;                      /* jobs that share a scheme in what is written                      */
} calm_solve_wishes;

typedef struct calm_solution {
    size_t *begin;                     /* [n_units + 1] first job of each unit                          */
    size_t n_units;
    size_t *choice;                    /* [n_units] entry of the pool                                   */
    const char **reasons;              /* [n_units]                                                     */
    double bits_per_weight;
    size_t unprobed;                   /* with a budget: units without a probe; 0: losses are predicted KL */
    char *cost;                        /* what the target cost; NULL: there is none                     */
    calm_share_total total;            /* with a budget                                                 */
} calm_solution;

/* Which entries each unit may have: allowed [n_units][n_entries], pinned [n_units] (the number of its pin + 1, or 0),
 * both in ctx->out.  CALM_EARG: a wish that names nothing (with the nearest name), contradicts another or leaves
 * nothing. */
calm_status calm_solve_allow(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                             const calm_solution *units, bool **allowed, size_t **pinned);

/* What the target of the wishes leaves of the units, in ctx->out.  CALM_EARG: nothing, of some unit. */
calm_status calm_solve_constrain(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                                 const calm_solution *units, const bool *allowed, calm_constraint *out);

/* Choose anew; *out in ctx->out.
 * CALM_EARG: as calm_solve_allow and calm_solve_constrain; a pin to a candidate that failed; a budget out of reach (the range is in the
 * message); a unit whose candidates lack the score.  CALM_ENUMERIC: a unit whose candidates all failed. */
calm_status calm_solve(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes, calm_solution *out);

/* The plans that a run measures beside the hybrid: one entry throughout; for each unit its own entry of one scheme. 
 * Units that `wishes` pins stay as they are pinned.  CALM_ENUMERIC: a unit has no entry of the scheme. */
calm_status calm_solve_uniform(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes,
                               size_t entry, calm_solution *out);
calm_status calm_solve_width(calm_ctx *ctx, const calm_solve_pool *pool, const calm_solve_wishes *wishes, size_t scheme,
                             calm_solution *out);

/* The row of an entry on a job. */
const calm_solve_row *calm_solve_at(const calm_solve_pool *pool, size_t job, size_t entry);

/* Bits of jobs begin .. end - 1 at a scheme. */
double calm_solve_bits(const calm_solve_pool *pool, size_t begin, size_t end, const calm_scheme *scheme);

#endif
