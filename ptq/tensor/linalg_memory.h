/* Address space of OpenBLAS: its buffers, one per thread that multiplies, where the process may not have all it needs.
 */
#pragma once

#include "ptq/base/context.h"

/* Is there a limit on address space or data? */
bool calm_linalg_is_limited(void);

/* The sentence of calm_linalg_reserve into text [n] where OpenBLAS could not even be loaded: newer ones (0.3.29) take
 * their first buffer before main, and ask for it without end.  False, and nothing written: there is room for it. */
bool calm_linalg_cannot_load(char *text, size_t n);

/* Lower ctx->n_threads to those that OpenBLAS has buffers for. */
void calm_linalg_cap(calm_ctx *ctx);

/* The same, and make sure, once per process, that OpenBLAS has a buffer for each of ctx->n_threads threads: it asks
 * again without end when its 128 MiB are refused.  Under a limit on address space or data (ulimit -v, ulimit -d)
 * ctx->n_threads is lowered to what fits.  Without a limit nothing more is done.  CALM_ENOMEM: not one thread fits; the
 * message says what is missing. */
calm_status calm_linalg_reserve(calm_ctx *ctx);

/* Log, once, that it was lowered. */
void calm_linalg_note_limit(calm_ctx *ctx);
