/* Resources that end with their scope: released at every return, so that a function can use CALM_TRY although it owns
 * something.  By the cleanup attribute of gcc and clang.
 *
 *     CALM_SCOPED_SCRATCH(ctx);                  rewinds ctx->scratch to where it is now
 *     CALM_SCOPED_ARENA(own);                    calm_arena own, without memory
 *     CALM_SCOPED_TEXT(text);                    calm_text text, empty
 *     CALM_SCOPED(calm_json *, calm_json_release) json = NULL;
 *
 * What is returned must not lie in what is released.  Release runs in the reverse order of declaration. */
#ifndef CALM_BASE_SCOPE_H
#define CALM_BASE_SCOPE_H

#include "ptq/base/text.h"

/* Begin the declaration of a variable of `type` that `release`, a function of its address, ends. */
#define CALM_SCOPED(type, release) __attribute__((cleanup(release))) type

#define CALM_SCOPED_ARENA(name) CALM_SCOPED(calm_arena, calm_arena_clear) name = {0}
#define CALM_SCOPED_TEXT(name)  CALM_SCOPED(calm_text, calm_text_clear) name = {0}

/* One in a scope. */
#define CALM_SCOPED_SCRATCH(ctx)                                                                                       \
    CALM_SCOPED(calm_scratch_scope, calm_scratch_leave)                                                                \
    scratch_scope_ = {(ctx)->scratch, calm_arena_save((ctx)->scratch)}

/* ctx->out is an arena of its own, without memory, until the end of the scope.  One in a scope, as a statement. */
#define CALM_SCOPED_OUT(ctx)                                                                                           \
    CALM_SCOPED(calm_out_scope, calm_out_leave) out_scope_ = {.ctx = (ctx), .caller = (ctx)->out};                     \
    (ctx)->out = &out_scope_.own

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

/* The arena for results that was replaced, and the one in its place. */
typedef struct calm_out_scope {
    calm_ctx *ctx;
    calm_arena *caller, own;
} calm_out_scope;

/* Clear the one, put back the other. */
static inline void calm_out_leave(calm_out_scope *scope)
{
    calm_arena_clear(&scope->own);
    scope->ctx->out = scope->caller;
}

#endif
