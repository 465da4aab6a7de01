/* Functions that the files of this folder share. */
#pragma once

#include "ptq/ranks/ranks.h"
#include "ptq/run/run.h"

/* On a rank other than 0, after the blocks: answers the questions of rank 0 until the run ends, and returns the run's
 * status (serve_ranks.c). */
calm_status calm_division_serve(calm_ctx *ctx, calm_run *run);
