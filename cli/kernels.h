/* Chooses the kernel family of OpenBLAS: the requested one, so that two machines compute the same bytes; else
 * OpenBLAS's own choice, or a better one if OpenBLAS does not know the CPU. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "ptq/base/context.h"

/* Compute with the kernel family `name` ("Haswell", in either case); NULL: as calm_blas_choose says.  If this process
 * uses another one, the program replaces itself (execv) with OPENBLAS_CORETYPE set, since OpenBLAS chooses its kernels
 * while it is loaded: call this before anything is written or printed.  It does so also where OpenMP's threads would
 * spin for long while they wait, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT says how they wait.  CALM_EUNSUPPORTED:
 * OpenBLAS here has no such family, or the CPU does not have its instructions.  CALM_EIO: execv failed.  CALM_ENOMEM:
 * as calm_linalg_reserve, which may lower ctx->n_threads. */
calm_status calm_kernels_pin(calm_ctx *ctx, const char *name);

/* The same with the kernels of a stored run, whose codes may have to be computed again.  Where the store does not know
 * them, or this machine does not run them, as with NULL: what is stored is read all the same.  Fails as calm_store_open
 * and calm_kernels_pin do. */
calm_status calm_kernels_pin_run(calm_ctx *ctx, const char *store, int64_t run);

/* Log, once in a process, that it computes with a better family than OpenBLAS's own choice, or that OPENBLAS_CORETYPE
 * keeps it from one. */
void calm_kernels_note(calm_ctx *ctx);

/* What OpenBLAS takes by itself, where calm has set OPENBLAS_CORETYPE for a better family; NULL: it has not, so that
 * the variable is the user's. */
const char *calm_kernels_replaced(void);

/* Print calm_linalg_version() and how the family was chosen, as a line. */
void calm_kernels_print(FILE *stream);
