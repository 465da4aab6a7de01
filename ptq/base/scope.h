/* Resources that are released at the end of their scope, whichever way control leaves it, so that a function that
 * owns something can use CALM_TRY.  Uses the cleanup attribute of gcc and clang.
 *
 *       CALM_SCOPED_SCRATCH(ctx);                  rewinds ctx->scratch to its current position
 *       CALM_SCOPED_ARENA(own);                    declares an empty calm_arena own
 *       CALM_SCOPED_OUT(ctx, &own);                redirects ctx->out to `own`
 *       CALM_SCOPED_RESULTS(ctx);                  redirects ctx->out to an arena of the scope
 *       CALM_SCOPED_OPERANDS(ctx, operands);       sets ctx->operands
 *       CALM_SCOPED_INTS(ctx, ints);               sets ctx->ints
 *       CALM_SCOPED_RESIDENT(ctx, on);             sets ctx->resident
 *       CALM_SCOPED_COLUMNS(ctx, n);               sets ctx->columns
 *       CALM_SCOPED_LOG(ctx, fn, user);            sets the log function of ctx
 *       CALM_SCOPED_SILENCE(ctx);                  removes the log function of ctx
 *       CALM_SCOPED_TEXT(text);                    declares an empty calm_text text
 *       CALM_SCOPED(calm_json *, calm_json_release) json = NULL;
 *
 * A function must not return memory that its scope releases.  Releases run in the reverse order of declaration. */
#pragma once

#include "ptq/base/text.h"

/* Begins the declaration of a variable of `type`; `release` is called with its address at the end of the scope. */
#define CALM_SCOPED(type, release) __attribute__((cleanup(release))) type

#define CALM_SCOPED_ARENA(name) CALM_SCOPED(calm_arena, calm_arena_clear) name = {0}
#define CALM_SCOPED_TEXT(name)  CALM_SCOPED(calm_text, calm_text_clear) name = {0}

/* At most one of each kind in a scope. */
#define CALM_SCOPED_OUT(ctx, arena)                                                                                    \
    CALM_SCOPED(calm_out_scope, calm_out_leave) out_scope_ = calm_out_enter(&(ctx)->out, (arena))
#define CALM_SCOPED_RESULTS(ctx)                                                                                       \
    CALM_SCOPED_ARENA(results_of_scope_);                                                                              \
    CALM_SCOPED_OUT(ctx, &results_of_scope_)
#define CALM_SCOPED_OPERANDS(ctx, as)                                                                                  \
    CALM_SCOPED(calm_operands_scope, calm_operands_leave) operands_scope_ = calm_operands_enter(&(ctx)->operands, (as))
#define CALM_SCOPED_INTS(ctx, on)                                                                                      \
    CALM_SCOPED(calm_flag_scope, calm_flag_leave) ints_scope_ = calm_flag_enter(&(ctx)->ints, (on))
#define CALM_SCOPED_RESIDENT(ctx, on)                                                                                  \
    CALM_SCOPED(calm_flag_scope, calm_flag_leave) resident_scope_ = calm_flag_enter(&(ctx)->resident, (on))
#define CALM_SCOPED_COLUMNS(ctx, n)                                                                                    \
    CALM_SCOPED(calm_columns_scope, calm_columns_leave) columns_scope_ = calm_columns_enter(&(ctx)->columns, (n))
#define CALM_SCOPED_LOG(ctx, fn, user)                                                                                 \
    CALM_SCOPED(calm_log_scope, calm_log_leave) log_scope_ = calm_log_enter((ctx), (fn), (user))
#define CALM_SCOPED_SILENCE(ctx) CALM_SCOPED_LOG(ctx, NULL, NULL)
#define CALM_SCOPED_SCRATCH(ctx)                                                                                       \
    CALM_SCOPED(calm_scratch_scope, calm_scratch_leave)                                                                \
    scratch_scope_ = {(ctx)->scratch, calm_arena_save((ctx)->scratch)}

/* Position of scratch at the beginning of a scope. */
typedef struct calm_scratch_scope {
    calm_arena *arena;
    calm_arena_mark mark;
} calm_scratch_scope;

/* Rewinds scratch to that position. */
static inline void calm_scratch_leave(calm_scratch_scope *scope)
{
    calm_arena_rewind(scope->arena, scope->mark);
}

/* Log function to restore. */
typedef struct calm_log_scope {
    calm_ctx *ctx;
    calm_log_fn *caller;
    void *user;
} calm_log_scope;

/* calm_log_enter sets the log function (NULL: none); calm_log_leave restores the previous one. */
static inline calm_log_scope calm_log_enter(calm_ctx *of, calm_log_fn *fn, void *user)
{
    const calm_log_scope scope = {of, of->log, of->log_user};
    of->log = fn;
    of->log_user = user;
    return scope;
}
static inline void calm_log_leave(calm_log_scope *scope)
{
    scope->ctx->log = scope->caller;
    scope->ctx->log_user = scope->user;
}

/* Defines NAME_enter, which sets a field of the context and returns a NAME_scope with the previous value, and
 * NAME_leave, which restores it. */
#define CALM_FIELD_SCOPE(name, type)                                                                                   \
    typedef struct name##_scope {                                                                                      \
        type *field;                                                                                                   \
        type caller;                                                                                                   \
    } name##_scope;                                                                                                    \
    static inline name##_scope name##_enter(type *field, type value)                                                   \
    {                                                                                                                  \
        const name##_scope scope = {field, *field};                                                                    \
        *field = value;                                                                                                \
        return scope;                                                                                                  \
    }                                                                                                                  \
    static inline void name##_leave(name##_scope *scope)                                                               \
    {                                                                                                                  \
        *scope->field = scope->caller;                                                                                 \
    }

/* ctx->out. */
CALM_FIELD_SCOPE(calm_out, calm_arena *)
/* ctx->columns. */
CALM_FIELD_SCOPE(calm_columns, size_t)
/* ctx->operands. */
CALM_FIELD_SCOPE(calm_operands, calm_operands)
/* A flag of the context. */
CALM_FIELD_SCOPE(calm_flag, bool)
