/* Only files of this folder and their tests include it. */
#pragma once

#include <stddef.h>

/* How many of the n windows of a text are evaluated by default, where all of them, n_tokens > 0, take `whole`
 * operations and the rest of the run takes `rest`. */
size_t calm_run_work_share(double rest, double whole, size_t n, size_t n_tokens);

/* How many rows candidates are scored on by default, at most `most`: those whose `cost` is a tenth of it and `shared`
 * together, but at least 512; all where that is little. */
size_t calm_run_work_score_rows(double shared, double (*cost)(const void *user, size_t rows), const void *user,
                                size_t most);
