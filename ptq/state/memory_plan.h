/* The memory plan of a run: knobs that make the run fit, and peak bytes of each stage (computed by ptq/estimate). */
#pragma once

#include "ptq/recipe/recipe.h"
#include "ptq/layers/moe.h"

/* Choices that save memory, cost time and change no result. */
typedef struct calm_knobs {
    bool spill, job_by_job;            /* hidden states in a file; capture one job's inputs at a time  */
    bool slices;                       /* keep results of candidates_at_once candidates at once, not of all */
    size_t candidates_at_once, experts_at_once, group_bytes;    /* group_bytes: captured inputs; 0: no limit */
} calm_knobs;

/* Peak bytes of each stage, everything included. */
typedef struct calm_memory_plan {
    calm_knobs knobs;
    size_t limit;                                /* the memory limit */
    size_t reserved;                             /* part of the limit for program and BLAS, not for arenas */
    size_t kept;                                 /* part of `reserved`: free lists of the C library */
    size_t room;                                 /* for spare pages next to arenas, if the limit has room */
    size_t program;                              /* part of `reserved`: code, BLAS's copies, stacks */
    size_t base;                                 /* resident before the stages: program, libraries, tokenizer, store */
    size_t capture, quantize, score;             /* peaks of the three steps on a block */
    size_t learn, evaluate, assemble;            /* peaks of these stages */
    size_t peak;                                 /* maximum of all peaks */
    size_t spill_bytes;                          /* bytes of the file of hidden states, if knobs.spill */
} calm_memory_plan;

/* The most bytes that arenas held in each stage of a run, and before the first stage (`open`). */
typedef struct calm_memory_held {
    size_t open, capture, quantize, score, learn, evaluate, assemble;
} calm_memory_held;

/* Ends a stage: raises *held to the most bytes that arenas held since the last call. */
void calm_memory_note(calm_ctx *ctx, size_t *held);
