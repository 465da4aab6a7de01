/* Address space for OpenBLAS's buffers, one per thread that multiplies, in a process with a limit. */
#pragma once

#include "ptq/base/context.h"

/* Returns whether the process has a limit on address space or data. */
bool calm_linalg_is_limited(void);

/* Writes the message of calm_linalg_reserve into text [n] if OpenBLAS cannot even be loaded: newer versions
 * (0.3.29) allocate their first buffer before main, and retry forever.  Returns false, and writes nothing, if there
 * is room. */
bool calm_linalg_cannot_load(char *text, size_t n);

/* Lowers ctx->n_threads to the number of buffers of OpenBLAS. */
void calm_linalg_cap(calm_ctx *ctx);

/* Does the same, and makes sure, once per process, that OpenBLAS has a buffer for each of ctx->n_threads threads:
 * it retries forever when its 128 MiB are refused.  Under a limit on address space or data (ulimit -v, ulimit -d)
 * it lowers ctx->n_threads to what fits.  CALM_ENOMEM: not one thread fits; the message says what is missing. */
calm_status calm_linalg_reserve(calm_ctx *ctx);

/* Logs, once, that the number of threads was lowered. */
void calm_linalg_note_limit(calm_ctx *ctx);
