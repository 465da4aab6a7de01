/* What the files of this folder share. */
#pragma once

#include "ptq/ranks/ranks.h"
#include "ptq/run/run.h"

/* Another rank than 0, after the blocks: answer the questions of rank 0 until the run ends; its status
 * (serve_ranks.c). */
calm_status calm_division_serve(calm_ctx *ctx, calm_run *run);
