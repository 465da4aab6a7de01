/* Resources that end with their scope: released at every return, so that a function can use CALM_TRY although it owns
 * something.  By the cleanup attribute of gcc and clang.
 *
 *     CALM_SCOPED_SCRATCH(ctx);                  rewinds ctx->scratch to where it is now
 *     CALM_SCOPED_ARENA(own);                    calm_arena own, without memory
 *     CALM_SCOPED_OUT(ctx, &own);                results go to `own` instead of ctx->out
 *     CALM_SCOPED_BF16(ctx, rounds);             ctx->bf16 is `rounds`
 *     CALM_SCOPED_INTS(ctx, ints);               ctx->ints is `ints`
 *     CALM_SCOPED_TEXT(text);                    calm_text text, empty
 *     CALM_SCOPED(calm_json *, calm_json_release) json = NULL;
 *
 * What is returned must not be in what is released.  Release runs in the reverse order of declaration. */
#ifndef CALM_BASE_SCOPE_H
#define CALM_BASE_SCOPE_H

#include "ptq/base/text.h"

/* Begin the declaration of a variable of `type` that `release`, a function of its address, ends. */
#define CALM_SCOPED(type, release) __attribute__((cleanup(release))) type

#define CALM_SCOPED_ARENA(name) CALM_SCOPED(calm_arena, calm_arena_clear) name = {0}
#define CALM_SCOPED_TEXT(name)  CALM_SCOPED(calm_text, calm_text_clear) name = {0}

/* One of each in a scope. */
#define CALM_SCOPED_OUT(ctx, arena)                                                                                    \
    CALM_SCOPED(calm_out_scope, calm_out_leave) out_scope_ = calm_out_enter((ctx), (arena))
#define CALM_SCOPED_BF16(ctx, rounds)                                                                                  \
    CALM_SCOPED(calm_bf16_scope, calm_bf16_leave) bf16_scope_ = calm_bf16_enter((ctx), (rounds))
#define CALM_SCOPED_INTS(ctx, on)                                                                                      \
    CALM_SCOPED(calm_ints_scope, calm_ints_leave) ints_scope_ = calm_ints_enter((ctx), (on))
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

/* Where results went before. */
typedef struct calm_out_scope {
    calm_ctx *ctx;
    calm_arena *caller;
} calm_out_scope;

/* Results go to `arena`; back to where they went. */
static inline calm_out_scope calm_out_enter(calm_ctx *of, calm_arena *arena)
{
    const calm_out_scope scope = {of, of->out};
    of->out = arena;
    return scope;
}
static inline void calm_out_leave(calm_out_scope *scope)
{
    scope->ctx->out = scope->caller;
}

/* Whether products rounded before. */
typedef struct calm_bf16_scope {
    calm_ctx *ctx;
    bool caller;
} calm_bf16_scope;

/* They do if `rounds`; back to what they did. */
static inline calm_bf16_scope calm_bf16_enter(calm_ctx *of, bool rounds)
{
    const calm_bf16_scope scope = {of, of->bf16};
    of->bf16 = rounds;
    return scope;
}
static inline void calm_bf16_leave(calm_bf16_scope *scope)
{
    scope->ctx->bf16 = scope->caller;
}

/* Whether linears with quantized inputs were whole numbers before. */
typedef struct calm_ints_scope {
    calm_ctx *ctx;
    bool caller;
} calm_ints_scope;

/* They are if `ints`; back to what they were. */
static inline calm_ints_scope calm_ints_enter(calm_ctx *of, bool ints)
{
    const calm_ints_scope scope = {of, of->ints};
    of->ints = ints;
    return scope;
}
static inline void calm_ints_leave(calm_ints_scope *scope)
{
    scope->ctx->ints = scope->caller;
}

#endif
