/* Reports of an ablation: tables, JSON, and a directory of both. */
#pragma once

#include "ptq/ablation/ablation.h"

/* The experiments of one command, one per scheme. */
typedef struct calm_ablation_set {
    const calm_recipe *recipe;             /* recipe of the first experiment */
    const calm_ablation *of;               /* [n] one per scheme             */
    size_t n;
    double seconds;                        /* wall-clock time of the whole command */
} calm_ablation_set;

/* Prints aligned tables, or one JSON object, to stdout (docs/ablation.md). */
calm_status calm_ablation_report_print(calm_ctx *ctx, const calm_ablation_set *set);
calm_status calm_ablation_report_json(calm_ctx *ctx, const calm_ablation_set *set);
/* Writes ablation.md, ablation.csv and ablation.json to `dir`, which has a temporary name until all are complete. */
calm_status calm_ablation_report_write(calm_ctx *ctx, const calm_ablation_set *set, const char *dir);
