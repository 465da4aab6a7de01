/* Kernels: which of OpenBLAS's kernel families computes, so that two machines can compute the same bytes. */
#ifndef CALM_CLI_KERNELS_H
#define CALM_CLI_KERNELS_H

#include "ptq/base/context.h"

/* Compute with the kernel family `name` ("Haswell"; letters may be of either case; NULL: whichever it is).  When this
 * process has another one, the program is started anew in its place with OPENBLAS_CORETYPE set, which is the only way
 * that OpenBLAS has: call it before anything is written or printed. CALM_EUNSUPPORTED: OpenBLAS here has no such
 * family, or this CPU lacks instructions that it needs.  CALM_EIO: the program cannot be started anew. */
calm_status calm_kernels_pin(calm_ctx *ctx, const char *name);

#endif
