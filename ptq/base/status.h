/* Status codes: the result type of everything that can fail.
 *
 * A function that can fail returns a calm_status and writes one sentence about the first failure into the
 * context (ptq/base/context.h).  The sentence says which file, which tensor, what was expected and what was
 * found.  Nothing below cli/ prints or exits. */
#ifndef CALM_BASE_STATUS_H
#define CALM_BASE_STATUS_H

/* X(NAME, "words for a message") */
#define CALM_STATUS_LIST(X)                                                                                  \
    X(OK, "ok")                                                                                              \
    X(EARG, "wrong argument")                /* the caller's or user's words are off: exit status 2      */  \
    X(EIO, "input or output error")          /* the system refused a file operation                      */  \
    X(ENOSPC, "no space left")               /* disk full: nothing half-written stays under a final name */  \
    X(ENOTFOUND, "not found")                                                                                \
    X(EEXIST, "already exists")                                                                              \
    X(EBUSY, "in use")                       /* another process holds it                                 */  \
    X(EFORMAT, "malformed data")             /* a file contradicts its own format                        */  \
    X(EUNSUPPORTED, "not supported")         /* well-formed, but calm does not know this                 */  \
    X(ENUMERIC, "numerical failure")         /* NaN, infinity, not positive definite                     */  \
    X(ENOMEM, "out of memory")                                                                               \
    X(EMISMATCH, "verification mismatch")    /* exit status 3                                            */  \
    X(EINTERRUPTED, "interrupted")

typedef enum calm_status {
#define CALM_STATUS_ENUM(name, words) CALM_##name,
    CALM_STATUS_LIST(CALM_STATUS_ENUM)
#undef CALM_STATUS_ENUM
    CALM_N_STATUS
} calm_status;

/* Words for a message ("malformed data"); never NULL, also for values outside the list. */
const char *calm_status_words(calm_status status);

/* Return early when `expr` fails; for functions that own nothing (arenas own the memory). */
#define CALM_TRY(expr)                                                                                       \
    do {                                                                                                     \
        calm_status try_status_ = (expr);                                                                    \
        if (try_status_ != CALM_OK)                                                                          \
            return try_status_;                                                                              \
    } while (0)

#endif
