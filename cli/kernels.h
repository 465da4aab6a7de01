/* Kernels: which of OpenBLAS's kernel families computes, so that two machines can compute the same bytes. */
#ifndef CALM_CLI_KERNELS_H
#define CALM_CLI_KERNELS_H

#include "ptq/base/context.h"

/* Compute with the kernel family `name` ("Haswell", in either case; NULL: any).  If this process uses another one, the
 * program replaces itself (execv) with OPENBLAS_CORETYPE set, since OpenBLAS chooses its kernels while it is loaded:
 * call this before anything is written or printed.  CALM_EUNSUPPORTED: OpenBLAS here has no such family, or the CPU
 * does not have its instructions.  CALM_EIO: execv failed. */
calm_status calm_kernels_pin(calm_ctx *ctx, const char *name);

#endif
