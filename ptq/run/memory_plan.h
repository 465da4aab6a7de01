/* Memory plan: how much memory a run needs, and how to make it fit what it may have.
 *
 * The peak of each stage follows from the model's shapes, the recipe and four choices that change no result: whether
 * hidden rows lie in a file, how many candidates and experts are in work at once, whether a sublayer's jobs are
 * captured together. The cheapest combination that fits is taken; when none does, the smallest limit that would is
 * named. */
#ifndef CALM_RUN_MEMORY_PLAN_H
#define CALM_RUN_MEMORY_PLAN_H

#include "ptq/recipe/recipe.h"
#include "ptq/model/moe.h"

typedef struct calm_run calm_run;    /* ptq/run/run_impl.h */

/* Choices that cost time and change no result. */
typedef struct calm_knobs {
    bool spill, job_by_job;
    bool slices;                       /* results of candidates_at_once candidates are kept at once, not all */
    size_t candidates_at_once, experts_at_once, group_bytes;
} calm_knobs;

/* Bytes of one stage's largest moment, all included. */
typedef struct calm_memory_plan {
    calm_knobs knobs;
    size_t limit;                                /* that was allowed                                    */
    size_t reserved;                             /* of the limit: not for arenas, but for program and BLAS */
    size_t kept;                                 /* of that: free lists of the C library                */
    size_t room;                                 /* for spare pages, beside arenas, where the limit has it */
    size_t program;                              /* of that: code, BLAS's copies, stacks                */
    size_t base;                                 /* program, libraries, tokenizer, store: there already */
    size_t capture, quantize, score;             /* peaks of the three steps on a block                 */
    size_t learn, evaluate, assemble;
    size_t peak;                                 /* of all of them                                      */
    size_t spill_bytes;                          /* in a file, when knobs.spill                         */
} calm_memory_plan;

/* The most that arenas held in each stage of a run, and before the first. */
typedef struct calm_memory_plan_held {
    size_t open, capture, quantize, score, learn, evaluate, assemble;
} calm_memory_plan_held;

/* A stage ends: raise `*held` to what arenas held at most since the last call. */
void calm_memory_plan_note(calm_ctx *ctx, size_t *held);

/* Experts from `first` on that are in work at once: as many as p->memory says, or fewer where they saw more tokens
 * than it allows for (twice an even share each); at least one. */
size_t calm_memory_plan_wave(const calm_run *p, const calm_routing *routing, size_t first, size_t n_threads);

/* Choose the knobs that fit the recipe's `memory`, write them to the log, and set the knobs of the run and the limit of
 * all arenas.  Knobs of the recipe, if it has any, are taken as they are.  CALM_ENOMEM: none fit; the message names the
 * smallest limit that would do. */
calm_status calm_memory_plan_apply(calm_ctx *ctx, calm_run *p, calm_memory_plan *out);

#endif
