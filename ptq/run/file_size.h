/* The size of the file that a run writes: what each job takes in it at each scheme, and what is left to them. */
#ifndef CALM_RUN_FILE_SIZE_H
#define CALM_RUN_FILE_SIZE_H

#include "ptq/run/inputs.h"
#include "ptq/run/run.h"

/* What the recipe's format makes of the pool: the pool's part of it, and what its tables are. */
typedef struct calm_file_budget {
    calm_pool_file pool;
    calm_pool_table *tables;       /* [pool.n_tables] the same as pool.tables                     */
    calm_outer_plan *outer;        /* [pool.n_tables]                                             */
    uint64_t *bits;                /* the same as pool.bits                                       */
} calm_file_budget;

/* The plan of one scheme, as far as the target takes it, in ctx->out; of a job it has the scheme alone, which is what
 * formats look at. */
calm_status calm_run_plan_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, calm_plan *out);

/* Where the recipe asks for a size, add up the file of every scheme and table into run->file, in ctx->out; the run's
 * pool is that of its recipe, its scope open.  Nothing is read but headers and the tokenizer.
 * CALM_EUNSUPPORTED: the format writes no weights, or what it refuses by name. */
calm_status calm_run_file_open(calm_ctx *ctx, calm_run *run);

/* Measure what each of several tables costs alone, as probes of units are: the loss of the model whose embedding, head,
 * or both where they are one, are rounded. */
calm_status calm_run_file_probe(calm_ctx *ctx, calm_run *run);

/* Bytes that the largest table takes while it is measured. */
size_t calm_run_file_probe_bytes(const calm_run *run);

/* Take a table: the run's recipe asks for its schemes from here on, in memory and in the store. */
calm_status calm_run_file_take(calm_ctx *ctx, calm_run *run, size_t table);

/* Bytes of the weights' files, with what the recipe makes of the tables, where every job has one of its schemes; *bits:
 * of the jobs, as schemes count them.  Of several formats the first; of one without weights the float model's bytes
 * stand for what is beside the jobs. */
calm_status calm_run_file_of_scheme(calm_ctx *ctx, const calm_run *run, size_t scheme, size_t *bytes, double *bits);

#endif
