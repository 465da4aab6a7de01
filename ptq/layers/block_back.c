/* Forward pass of a block with a tape, and its backward pass: norms and residuals.  The kinds' functions in between are
 * in calm_kind_back. */
#include "ptq/layers/block_back.h"

#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/message.h"
#include "ptq/base/scope.h"
#include "ptq/layers/block_impl.h"
#include "ptq/layers/norm_back.h"
#include "ptq/layers/tail_back.h"
#include "ptq/tensor/dtype.h"
#include "ptq/tensor/vector_back.h"

/* Inputs of the norms and of f in x' = RESIDUAL(x + OUT(f(IN(x)))). */
typedef struct sublayer_tape {
    const calm_kind *kind; /* NULL: the block has no such sublayer */
    const float *x, *h;
    void *function; /* the tape of f */
    float *y, *sum; /* NULL without an OUT or a RESIDUAL norm */
} sublayer_tape;

struct calm_block_tape {
    calm_span span;
    sublayer_tape sublayer[CALM_N_SUBLAYERS];
    calm_tail_tape tail;
};

/* ---- forward ---- */

/* Runs f of a sublayer: y [T, D] from h [T, D]. */
static calm_status function(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                            calm_block_tape *tape, float *y)
{
    const sublayer_tape *s = &tape->sublayer[sublayer];
    return s->kind->back->forward(ctx, &(calm_kind_pass){block, rope, s->x, s->h, &tape->span}, y, s->function);
}

/* Finds the kind of a block's sublayer, which must have a backward pass; *out NULL: the slot is empty. */
static calm_status find_kind(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_kind **out)
{
    *out = calm_block_kind(block, sublayer);
    if (*out && block->config->streams.n)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "block %zu: calm does not compute gradients of residual streams",
                         block->index);
    if (*out && !(*out)->back)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "block %zu: calm does not compute gradients of kind %s", block->index,
                         (*out)->name);
    return CALM_OK;
}

/* Allocates the tape of f. */
static calm_status new_tape(calm_ctx *ctx, const calm_kind *kind, void **out)
{
    unsigned char *bytes;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, bytes, kind->back->tape_bytes));
    *out = bytes;
    return CALM_OK;
}

/* Runs one sublayer: out [T, D] from x [T, D]. */
static calm_status run_sublayer(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                const float *x, calm_block_tape *tape, float *out)
{
    const calm_norm *norms = block->norm[sublayer];
    const size_t n = tape->span.n_tokens, count = n * block->config->hidden;
    sublayer_tape *s = &tape->sublayer[sublayer];
    const calm_kind *kind;
    CALM_TRY(find_kind(ctx, block, sublayer, &kind));
    /* Without an IN norm f reads x itself. */
    *s = (sublayer_tape){.kind = kind, .x = x, .h = x};
    if (!kind) {
        memcpy(out, x, count * sizeof *out);
        return CALM_OK;
    }
    CALM_TRY(new_tape(ctx, kind, &s->function));
    if (block->config->arch->parallel && sublayer == CALM_SUBLAYER_MLP)
        s->h = tape->sublayer[CALM_SUBLAYER_ATTENTION].h;
    float *y = out, *sum = out;
    if (norms[CALM_NORM_IN].w) {
        float *h;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, h, count));
        calm_norm_all(ctx, &norms[CALM_NORM_IN], x, n, h);
        CALM_TRY(calm_block_transform(ctx, block->config, sublayer, n, h));
        s->h = h;
    }
    /* A norm's input is kept; without a norm the next step overwrites it. */
    if (norms[CALM_NORM_RESIDUAL].w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s->sum, count));
        y = sum = s->sum;
    }
    if (norms[CALM_NORM_OUT].w) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s->y, count));
        y = s->y;
    }
    CALM_TRY(function(ctx, block, sublayer, rope, tape, y));
    /* The order of calm_block_add: OUT norm of f's output, addition to x, RESIDUAL norm of the sum. */
    calm_norm_all(ctx, &norms[CALM_NORM_OUT], y, n, sum);
    calm_block_scale(ctx, block->config, n, sum);
    calm_block_rows_add(ctx, n, block->config->hidden, x, sum);
    calm_norm_all(ctx, &norms[CALM_NORM_RESIDUAL], sum, n, out);
    return CALM_OK;
}

/* Fails at the first value of x [n, width] that is not finite. */
static calm_status check_rows(calm_ctx *ctx, const calm_block *block, const char *what, const float *x, size_t n)
{
    const size_t width = block->config->hidden, at = calm_find_nonfinite(x, n * width);
    if (at == n * width)
        return CALM_OK;
    return calm_fail(ctx, CALM_ENUMERIC, "block %zu: %s is not finite (token %zu, channel %zu)", block->index, what,
                     at / width, at % width);
}

calm_status calm_block_forward_tape(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const float *x,
                                    const calm_span *span, float *z, calm_block_tape **out)
{
    calm_block_tape *tape;
    float *between;
    *out = NULL;
    CALM_TRY(calm_check_interrupt(ctx));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, tape, 1));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, between, span->n_tokens * block->config->hidden));
    tape->span = *span;
    CALM_TRY(run_sublayer(ctx, block, CALM_SUBLAYER_ATTENTION, rope, x, tape, between));
    CALM_TRY(run_sublayer(ctx, block, CALM_SUBLAYER_MLP, rope, between, tape, z));
    CALM_TRY(calm_tail_forward_tape(ctx, block, z, span, &tape->tail));
    /* One check at the end finds every fault before it: a NaN does not vanish in sums, and one pass over T D values
     * costs little compared with the products. */
    CALM_TRY(check_rows(ctx, block, "the output", z, span->n_tokens));
    *out = tape;
    return CALM_OK;
}

/* ---- backward ---- */

/* Writes the row lengths of dy [T, D] for jobs whose output is f's output; those of the other jobs are written by their
 * backward pass.  Both jobs of experts get the length of the gradient of the experts' sum. */
static void write_lengths(const calm_block *block, calm_sublayer sublayer, const float *dy, size_t n,
                          const calm_block_grads *grads)
{
    const calm_kind *kind = calm_block_kind(block, sublayer);
    const size_t width = block->config->hidden;
    /* In a mixture all jobs, else the last. */
    for (size_t i = kind->routed ? 0 : kind->n_jobs - 1; i < kind->n_jobs; i++)
        if (grads->lengths[kind->jobs[i].job])
            calm_vec_lengths(n, width, width, dy, false, grads->lengths[kind->jobs[i].job]);
}

/* Computes dh [T, D] from dy [T, D], and adds to dx [T, D]. */
static calm_status function_back(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                 const calm_block_tape *tape, const float *dy, const calm_block_grads *grads, float *dh,
                                 float *dx)
{
    const sublayer_tape *s = &tape->sublayer[sublayer];
    write_lengths(block, sublayer, dy, tape->span.n_tokens, grads);
    return s->kind->back->back(ctx, &(calm_kind_pass){block, rope, s->x, s->h, &tape->span}, s->function, dy, grads, dh,
                               dx);
}

/* Computes dy [T, D], the gradient of f's output, from d, that of the sum: d itself, or an array in ctx->scratch. */
static calm_status output_back(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer,
                               const calm_block_tape *tape, const calm_block_grads *grads, float *d, float **dy)
{
    const calm_norm *norm = &block->norm[sublayer][CALM_NORM_OUT];
    const size_t n = tape->span.n_tokens, width = block->config->hidden;
    *dy = d;
    if (!norm->w && block->config->residual_scale == 0)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *dy, n * width));
    memcpy(*dy, d, n * width * sizeof *d);
    calm_block_scale(ctx, block->config, n, *dy);
    return calm_norm_back(ctx, norm, (calm_norm_rows_of){n, 1, width}, tape->sublayer[sublayer].y, *dy,
                          grads->norm[sublayer][CALM_NORM_OUT], grads->norm_bias[sublayer][CALM_NORM_OUT], *dy);
}

/* Turns d [T, D] in place from the gradient of x' into that of x; with `needed` false only computes gradients of
 * parameters.  `shared` [T, D], where both sublayers read the same rows (else NULL): the MLP writes the gradient of
 * those rows, and attention adds its own. */
static calm_status sublayer_back(calm_ctx *ctx, const calm_block *block, calm_sublayer sublayer, const calm_rope *rope,
                                 const calm_block_tape *tape, const calm_block_grads *grads, bool needed, float *shared,
                                 float *d)
{
    const calm_norm *norms = block->norm[sublayer];
    const size_t n = tape->span.n_tokens, width = block->config->hidden;
    const calm_norm_rows_of rows = {n, 1, width};
    const sublayer_tape *s = &tape->sublayer[sublayer];
    float *const *dnorm = grads->norm[sublayer], *const *dbias = grads->norm_bias[sublayer], *dy, *dh = NULL;
    CALM_SCOPED_SCRATCH(ctx);
    if (!s->kind)    /* d already holds the residual's gradient */
        return CALM_OK;
    CALM_TRY(calm_norm_back(ctx, &norms[CALM_NORM_RESIDUAL], rows, s->sum, d, dnorm[CALM_NORM_RESIDUAL],
                            dbias[CALM_NORM_RESIDUAL], d));
    CALM_TRY(output_back(ctx, block, sublayer, tape, grads, d, &dy));
    if (shared && sublayer == CALM_SUBLAYER_MLP)
        return function_back(ctx, block, sublayer, rope, tape, dy, grads, shared, d);
    /* The product with q, k and v's weights is a tenth of a step, and is not needed where the block's input is
     * constant. */
    needed = needed || dnorm[CALM_NORM_IN] || dbias[CALM_NORM_IN];
    if (needed)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, dh, n * width));
    CALM_TRY(function_back(ctx, block, sublayer, rope, tape, dy, grads, dh, d));
    if (!needed)
        return CALM_OK;
    if (shared)
        calm_block_rows_add(ctx, n, width, shared, dh);
    CALM_TRY(calm_block_transform(ctx, block->config, sublayer, n, dh));
    /* x enters the sum twice: directly, which d already has, and through f. */
    CALM_TRY(calm_norm_back(ctx, &norms[CALM_NORM_IN], rows, s->x, dh, dnorm[CALM_NORM_IN], dbias[CALM_NORM_IN], dh));
    calm_block_rows_add(ctx, n, width, dh, d);
    return CALM_OK;
}

/* Fails where a vector of gradients is not finite, with its parameter's name. */
static calm_status check_vector(calm_ctx *ctx, const char *name, const char *suffix, const float *x, size_t n)
{
    const size_t at = x ? calm_find_nonfinite(x, n) : n;
    if (at == n)
        return CALM_OK;
    return calm_fail(ctx, CALM_ENUMERIC, "the gradient of %s.%s is not finite (element %zu)", name, suffix, at);
}

/* Checks all gradients except those of linears, which are checked where they are added. */
static calm_status check_vectors(calm_ctx *ctx, const calm_block *block, const calm_block_grads *grads)
{
    const calm_names *names = block->config->arch->names;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++) {
            const char *name = names->norm[s][place];
            const size_t width = block->norm[s][place].width;
            if (!block->norm[s][place].w)
                continue;
            CALM_TRY(check_vector(ctx, name, "weight", grads->norm[s][place], width));
            CALM_TRY(check_vector(ctx, name, "bias", grads->norm_bias[s][place], width));
        }
    for (calm_plain plain = 0; plain < CALM_N_PLAINS; plain++)
        if (block->plain[plain].w)
            CALM_TRY(check_vector(ctx, names->plain[plain], "weight", grads->plain[plain], block->plain[plain].width));
    const size_t width = block->config->hidden;
    if (!block->moe.router)
        return CALM_OK;
    CALM_TRY(check_vector(ctx, names->moe.router, "weight", grads->router, block->config->moe.n_experts * width));
    return check_vector(ctx, names->moe.shared_gate, "weight", block->moe.shared_gate ? grads->shared_gate : NULL,
                        width);
}

static calm_status back_both(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_block_tape *tape,
                             const calm_block_grads *grads, bool needed, float *d)
{
    float *shared = NULL;
    CALM_SCOPED_SCRATCH(ctx);
    if (block->config->arch->parallel)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, shared, tape->span.n_tokens * block->config->hidden));
    CALM_TRY(calm_tail_back(ctx, block, &tape->tail, tape->span.n_tokens, d));
    CALM_TRY(sublayer_back(ctx, block, CALM_SUBLAYER_MLP, rope, tape, grads, true, shared, d));
    CALM_TRY(sublayer_back(ctx, block, CALM_SUBLAYER_ATTENTION, rope, tape, grads, needed, shared, d));
    return check_vectors(ctx, block, grads);
}

calm_status calm_block_back(calm_ctx *ctx, const calm_block *block, const calm_rope *rope, const calm_block_tape *tape,
                            const float *dz, const calm_block_grads *grads, float *dx)
{
    static const calm_block_grads none = {.router = NULL};
    const size_t n = tape->span.n_tokens, count = n * block->config->hidden;
    float *d = dx;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(check_rows(ctx, block, "the gradient of the output", dz, n));
    /* The gradient is computed in place in dx; without dx in a copy of dz. */
    if (!dx)
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, d, count));
    if (d != dz)
        memcpy(d, dz, count * sizeof *d);
    const calm_status status = back_both(ctx, block, rope, tape, grads ? grads : &none, dx != NULL, d);
    if (status == CALM_ENUMERIC)
        return calm_fail_prefix(ctx, "block %zu", block->index);
    CALM_TRY(status);
    return dx ? check_rows(ctx, block, "the gradient of the input", dx, n) : CALM_OK;
}

const void *calm_block_tape_of(const calm_block_tape *tape, calm_sublayer sublayer)
{
    return tape->sublayer[sublayer].function;
}

/* ---- memory ---- */

size_t calm_block_back_scratch_bytes(const calm_config *config, size_t index, size_t n_tokens, size_t expert_bytes,
                                     size_t n_threads)
{
    config = calm_config_at(config, index);
    const size_t rows = CALM_BYTES(float, n_tokens * config->hidden);
    /* The tape: inputs and outputs of the sublayers and of norms, and the tapes of f. */
    size_t tape = CALM_BYTES(calm_block_tape, 1) + rows, kept[CALM_N_SUBLAYERS] = {0};
    size_t forward[CALM_N_SUBLAYERS] = {0}, back[CALM_N_SUBLAYERS] = {0};
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        /* A kind without a backward pass is refused before anything is allocated. */
        const calm_kind *kind = calm_kind_at(config, index, s);
        const char *const *norm = config->arch->names->norm[s];
        if (!kind || !kind->back)
            continue;
        /* One allocation for the tape of f; its arrays are in kept_bytes. */
        tape += CALM_BYTES(unsigned char, kind->back->tape_bytes);
        for (calm_norm_place place = 0; place < CALM_N_NORM_PLACES; place++)
            tape += norm[place] ? rows : 0;
        kept[s] = kind->back->kept_bytes(config, n_tokens);
        const calm_kind_back *way = kind->back;
        /* The transforms of h and of its gradient are not allocated at the same time as f's arrays. */
        const size_t row = calm_block_transform_bytes(config, s);
        forward[s] = calm_size_max(
            row, way->forward_bytes ? way->forward_bytes(config, n_tokens, n_threads)
                                    : way->routed_forward_bytes(config, n_tokens, expert_bytes, n_threads));
        back[s] = (norm[CALM_NORM_OUT] || config->residual_scale != 0 ? 2 : 1) * rows
                  + (config->arch->parallel ? rows : 0)
                  + calm_size_max(row, way->back_bytes
                                           ? way->back_bytes(config, n_tokens, n_threads)
                                           : way->routed_back_bytes(config, n_tokens, expert_bytes, n_threads));
    }
    /* The first sublayer runs before the second has kept anything; d is the caller's dx or a copy. */
    const size_t first = forward[CALM_SUBLAYER_ATTENTION] > kept[CALM_SUBLAYER_MLP]
                             ? forward[CALM_SUBLAYER_ATTENTION] - kept[CALM_SUBLAYER_MLP] : 0;
    const size_t tail = calm_tail_back_bytes(config, n_tokens);
    const size_t forwards = calm_size_max(calm_size_max(first, forward[CALM_SUBLAYER_MLP]), tail);
    const size_t backwards = calm_size_max(calm_size_max(back[CALM_SUBLAYER_ATTENTION], back[CALM_SUBLAYER_MLP]), tail);
    return tape + kept[CALM_SUBLAYER_ATTENTION] + kept[CALM_SUBLAYER_MLP] + calm_tail_tape_bytes(config, n_tokens)
           + calm_size_max(forwards, rows + backwards);
}
