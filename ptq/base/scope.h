/* Resources that end with their scope: released at every return, so that a function can use CALM_TRY although it owns
 * something.  By the cleanup attribute of gcc and clang.
 *
 *     CALM_SCOPED_SCRATCH(ctx);                  rewinds ctx->scratch to where it is now
 *     CALM_SCOPED_ARENA(own);                    calm_arena own, without memory
 *     CALM_SCOPED_OUT(ctx, &own);                results go to `own` instead of ctx->out
 *     CALM_SCOPED_RESULTS(ctx);                  results go to an arena of the scope instead of ctx->out
 *     CALM_SCOPED_OPERANDS(ctx, operands);       ctx->operands is `operands`
 *     CALM_SCOPED_INTS(ctx, ints);               ctx->ints is `ints`
 *     CALM_SCOPED_RESIDENT(ctx, on);             ctx->resident is `on`
 *     CALM_SCOPED_COLUMNS(ctx, n);               ctx->columns is `n`
 *     CALM_SCOPED_LOG(ctx, fn, user);            ctx logs by fn
 *     CALM_SCOPED_SILENCE(ctx);                  ctx logs nothing
 *     CALM_SCOPED_TEXT(text);                    calm_text text, empty
 *     CALM_SCOPED(calm_json *, calm_json_release) json = NULL;
 *
 * What is returned must not be in what is released.  Release runs in the reverse order of declaration. */
#pragma once

#include "ptq/base/text.h"

/* Begin the declaration of a variable of `type` that `release`, a function of its address, ends. */
#define CALM_SCOPED(type, release) __attribute__((cleanup(release))) type

#define CALM_SCOPED_ARENA(name) CALM_SCOPED(calm_arena, calm_arena_clear) name = {0}
#define CALM_SCOPED_TEXT(name)  CALM_SCOPED(calm_text, calm_text_clear) name = {0}

/* One of each in a scope. */
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

/* Where scratch stood. */
typedef struct calm_scratch_scope {
    calm_arena *arena;
    calm_arena_mark mark;
} calm_scratch_scope;

/* Rewind it. */
static inline void calm_scratch_leave(calm_scratch_scope *scope)
{
    calm_arena_rewind(scope->arena, scope->mark);
}

/* Who had the log before. */
typedef struct calm_log_scope {
    calm_ctx *ctx;
    calm_log_fn *caller;
    void *user;
} calm_log_scope;

/* `fn` has it, NULL: nobody; back to who had it. */
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

/* NAME_scope: a field has another value, given by NAME_enter; NAME_leave: it has what it had again. */
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

/* Where results go. */
CALM_FIELD_SCOPE(calm_out, calm_arena *)
/* How wide lines are. */
CALM_FIELD_SCOPE(calm_columns, size_t)
/* What operands of products are. */
CALM_FIELD_SCOPE(calm_operands, calm_operands)
/* A flag. */
CALM_FIELD_SCOPE(calm_flag, bool)
