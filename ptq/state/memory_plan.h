/* The memory plan of a run: the knobs that make it fit, and bytes of each stage (ptq/estimate makes it). */
#pragma once

#include "ptq/recipe/recipe.h"
#include "ptq/model/moe.h"

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
    size_t room;                                 /* for spare pages, next to arenas, where the limit has it */
    size_t program;                              /* of that: code, BLAS's copies, stacks                */
    size_t base;                                 /* program, libraries, tokenizer, store: there already */
    size_t capture, quantize, score;             /* peaks of the three steps on a block                 */
    size_t learn, evaluate, assemble;
    size_t peak;                                 /* of all of them                                      */
    size_t spill_bytes;                          /* in a file, when knobs.spill                         */
} calm_memory_plan;

/* The most that arenas held in each stage of a run, and before the first. */
typedef struct calm_memory_held {
    size_t open, capture, quantize, score, learn, evaluate, assemble;
} calm_memory_held;

/* A stage ends: raise `*held` to what arenas held at most since the last call. */
void calm_memory_note(calm_ctx *ctx, size_t *held);
