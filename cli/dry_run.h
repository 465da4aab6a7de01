/* Dry run: what a run would need - memory, disk, time - and give, without doing it. */
#ifndef CALM_CLI_DRY_RUN_H
#define CALM_CLI_DRY_RUN_H

#include "cli/pipeline.h"

/* Print it for people, or as JSON:
 *   {"memory": {"peak_bytes", "limit_bytes", "stages": {capture, quantize, score, evaluate, assemble},
 *               "spilled", "job_by_job", "candidates_at_once", "experts_at_once"},
 *    "disk": {"output_bytes", "store_bytes", "spill_bytes"},
 *    "time": {"seconds", "sgemm_gflops", "dgemm_gflops"},
 *    "result": {"bytes_before", "bytes_after", "bits_per_weight"}, "candidates"}
 * Times rest on a second of measurement: matrix products, and each algorithm on a small job.  They do not know what the
 * store has already.  Fails as the beginning of the run would. */
calm_status calm_dry_run(calm_ctx *ctx, const calm_recipe *recipe, bool json);

#endif
