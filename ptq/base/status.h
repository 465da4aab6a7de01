/* Status codes: the result type of everything that can fail.
 *
 * A function that can fail returns a calm_status and writes one sentence about the first failure into the context
 * (ptq/base/context.h).  The sentence names the file and tensor, what was expected and what was found.  Nothing
 * below cli/ prints or exits. */
#pragma once

#include "calm.h"

/* Returns from the function when `expr` fails.  For functions that own nothing: arenas own their memory. */
#define CALM_TRY(expr)                                                                                       \
    do {                                                                                                     \
        calm_status try_status_ = (expr);                                                                    \
        if (try_status_ != CALM_OK)                                                                          \
            return try_status_;                                                                              \
    } while (0)
