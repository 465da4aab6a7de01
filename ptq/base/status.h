/* Status codes: the result type of everything that can fail.
 *
 * A function that can fail returns a calm_status and writes one sentence about the first failure into the
 * context (ptq/base/context.h).  The sentence says which file, which tensor, what was expected and what was
 * found.  Nothing below cli/ prints or exits. */
#pragma once

#include "calm.h"

/* Return early when `expr` fails; for functions that own nothing (arenas own the memory). */
#define CALM_TRY(expr)                                                                                       \
    do {                                                                                                     \
        calm_status try_status_ = (expr);                                                                    \
        if (try_status_ != CALM_OK)                                                                          \
            return try_status_;                                                                              \
    } while (0)
