/* Rules for the number of windows and rows.  Only files of this folder and their tests include it. */
#pragma once

#include <stddef.h>

/* Returns how many of the n windows of a text are evaluated by default.  All windows, n_tokens > 0 tokens, take `whole`
 * operations; the rest of the run takes `rest`. */
size_t calm_run_work_share(double rest, double whole, size_t n, size_t n_tokens);

/* Returns how many rows, at most `most`, candidates are scored on by default: as many as keep cost(user, rows) at a
 * tenth of that cost and `shared` together, but at least 512; all if their cost is small. */
size_t calm_run_work_score_rows(double shared, double (*cost)(const void *user, size_t rows), const void *user,
                                size_t most);
