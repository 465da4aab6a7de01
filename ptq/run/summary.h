/* Summary: a result as text - the same lines in reports and in cards. */
#ifndef CALM_RUN_SUMMARY_H
#define CALM_RUN_SUMMARY_H

#include "ptq/run/result.h"

#define CALM_SUMMARY_COLUMNS 15

/* Columns of calm_summary_units, as keys of JSON. */
extern const char *const calm_summary_keys[CALM_SUMMARY_COLUMNS];

/* One row per job, with its choice, scores and largest activation as the store knows them. */
calm_status calm_summary_units(calm_ctx *ctx, const calm_result *result, calm_store_row_fn *fn, void *user);

/* Append units, guard and evaluation, each as far as the run has it. */
calm_status calm_summary_tables(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Append one line per gate of the recipe; nothing where none was measured. */
calm_status calm_summary_gates(calm_ctx *ctx, const calm_result *result, calm_text *out);

/* Append a line about what learning took and came to, or, where it was not asked for, what it would take: `seconds`. */
void calm_summary_learning(const calm_result *result, double seconds, calm_text *out);

/* Append what the result is, its scheme and its size; the names of the recipe's schemes alone. */
void calm_summary_size(const calm_result *result, calm_text *out);
void calm_summary_schemes(const calm_result *result, calm_text *out);

#endif
