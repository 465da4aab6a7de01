/* Chooses the kernel family of OpenBLAS: the requested one, so that two machines compute the same bytes; else
 * OpenBLAS's own choice, or a better one if OpenBLAS does not know the CPU. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "ptq/base/context.h"

/* Selects the kernel family `name` ("Haswell", in any case); NULL: that of calm_blas_choose.  If this process uses
 * another one, the program replaces itself (execv) with OPENBLAS_CORETYPE set, since OpenBLAS chooses its kernels
 * while it is loaded: call this before anything is written or printed.  It does so too if OpenMP's threads would spin
 * for long while they wait, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT says how they wait.  CALM_EUNSUPPORTED: this
 * OpenBLAS has no such family, or the CPU lacks its instructions.  CALM_EIO: execv failed.  CALM_ENOMEM: as
 * calm_linalg_reserve, which may lower ctx->n_threads. */
calm_status calm_kernels_pin(calm_ctx *ctx, const char *name);

/* Selects the kernels of a stored run, because calm may have to compute its codes again.  If the store does not name
 * them, or this machine cannot run them, it selects as calm_kernels_pin(ctx, NULL).  Fails as calm_store_open and
 * calm_kernels_pin do. */
calm_status calm_kernels_pin_run(calm_ctx *ctx, const char *store, int64_t run);

/* Logs, once per process, that calm computes with a better family than OpenBLAS's own choice, or that OPENBLAS_CORETYPE
 * prevents a better one. */
void calm_kernels_note(calm_ctx *ctx);

/* Returns OpenBLAS's own choice if calm has set OPENBLAS_CORETYPE for a better family; NULL: calm has not, so the
 * variable, if set, is the user's. */
const char *calm_kernels_replaced(void);

/* Prints a line: calm_linalg_version() and how the family was chosen. */
void calm_kernels_print(FILE *stream);
