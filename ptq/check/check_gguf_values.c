/* Check: scales of ggml's blocks, and floats, in pieces on all threads. */

#include <string.h>

#include "ptq/base/simd.h"
#include "ptq/base/threads.h"
#include "ptq/check/check_gguf.h"
#include "ptq/check/check_scan.h"
#include "ptq/io/ggml_blocks.h"

#define PIECE ((size_t)4 << 20) /* approximate bytes of a tensor that one task reads */

/* Types in which a scale of 0 is correct only with codes that represent zero; the byte of two such codes, and the
 * offset of the codes. */
static const struct {
    calm_ggml_type type;
    int idle;
    size_t codes;
} judged[] = {{CALM_GGML_Q4_0, 0x88, 2}, {CALM_GGML_Q8_0, 0, 2}};

typedef struct piece {
    size_t tensor, first, n; /* blocks, or elements of floats */
    size_t nonfinite, zero;
} piece;

typedef struct scan {
    const calm_check_gguf_state *g;
    piece *pieces;
    size_t n;
} scan;

/* Returns true if a block of 32 has a code that is not `idle`. */
static bool has_codes(const uint8_t *block, size_t codes, size_t bytes, int idle)
{
    for (size_t i = codes; i < bytes; i++)
        if (block[i] != idle)
            return true;
    return false;
}

CALM_VECTORIZE static size_t count_nonfinite(const uint8_t *data, size_t n, size_t bytes)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad += (data[i * bytes + 1] & 0x7c) == 0x7c;
    return bad;
}

/* Counts NaN among the four E4M3 scales of NVFP4's blocks: all bits but the sign are set. */
static size_t count_small_nan(const uint8_t *data, size_t n, size_t bytes)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t g = 0; g < 4; g++)
            bad += (data[i * bytes + g] & 0x7f) == 0x7f;
    return bad;
}

static void scan_blocks(const calm_gguf_tensor *tensor, const calm_ggml_info *info, piece *p)
{
    const uint8_t *data = tensor->data + p->first * info->bytes;
    size_t at[2];
    const size_t n = calm_ggml_halves(tensor->type, at);
    for (size_t s = 0; s < n; s++)
        p->nonfinite += count_nonfinite(data + at[s], p->n, info->bytes);
    if (tensor->type == CALM_GGML_NVFP4)
        p->nonfinite += count_small_nan(data, p->n, info->bytes);
    for (size_t k = 0; k < sizeof judged / sizeof *judged; k++)
        for (size_t i = 0; i < p->n && judged[k].type == tensor->type; i++) {
            const uint8_t *block = data + i * info->bytes;
            if (block[0] == 0 && (block[1] & 0x7f) == 0)
                p->zero += has_codes(block, judged[k].codes, info->bytes, judged[k].idle);
        }
}

static void scan_piece(size_t index, void *user)
{
    scan *s = user;
    piece *p = &s->pieces[index];
    const calm_gguf_tensor *tensor = calm_gguf_tensor_at(s->g->file, p->tensor);
    const calm_ggml_info *info = calm_ggml_find(tensor->type);
    if (calm_ggml_dtype(tensor->type) != CALM_N_DTYPES)
        p->nonfinite = calm_scan_nonfinite(calm_ggml_dtype(tensor->type), tensor->data + p->first * info->bytes, p->n);
    else
        scan_blocks(tensor, info, p);
    calm_gguf_release_part(s->g->file, tensor, p->first * info->bytes, p->n * info->bytes);
}

static calm_status list_pieces(const calm_check_gguf_state *g, scan *out)
{
    size_t n = 0;
    for (size_t i = 0; i < calm_gguf_n_tensors(g->file); i++)
        n += calm_gguf_tensor_at(g->file, i)->bytes / (PIECE / 2) + 1;
    CALM_TRY(CALM_NEW(g->c->ctx, g->c->ctx->scratch, out->pieces, n));
    for (size_t i = 0; i < calm_gguf_n_tensors(g->file); i++) {
        const calm_gguf_tensor *at = calm_gguf_tensor_at(g->file, i);
        const calm_ggml_info *info = calm_ggml_find(at->type);
        const size_t blocks = at->bytes / info->bytes, step = PIECE / info->bytes;
        for (size_t b = 0; b < blocks; b += step)
            out->pieces[out->n++] = (piece){i, b, blocks - b < step ? blocks - b : step, 0, 0};
    }
    return CALM_OK;
}

/* Checks NAME.scale next to NAME.weight: NVFP4's global scale, or one per expert. */
static calm_status check_factor(const calm_check_gguf_state *g, const calm_gguf_tensor *tensor)
{
    const size_t length = strlen(tensor->name), n = tensor->bytes / sizeof(float);
    if (tensor->type != CALM_GGML_F32 || length < 6 || strcmp(tensor->name + length - 6, ".scale") != 0)
        return CALM_OK;
    for (size_t i = 0; i < n; i++) {
        float value;
        memcpy(&value, tensor->data + i * sizeof value, sizeof value);
        if (value <= 0)    /* another rule reports values that are not finite */
            return calm_check_add(g->c, CALM_CHECK_RULE_GGUF_FACTOR, tensor->name, "%g", (double)value);
    }
    return CALM_OK;
}

calm_status calm_check_gguf_values(calm_check_gguf_state *g)
{
    scan s = {.g = g};
    CALM_TRY(list_pieces(g, &s));
    calm_parallel_each(g->c->ctx, s.n, scan_piece, &s);
    for (size_t begin = 0, end; begin < s.n; begin = end) {
        const calm_gguf_tensor *at = calm_gguf_tensor_at(g->file, s.pieces[begin].tensor);
        const bool floats = calm_ggml_dtype(at->type) != CALM_N_DTYPES;
        size_t nonfinite = 0, zero = 0;
        for (end = begin; end < s.n && s.pieces[end].tensor == s.pieces[begin].tensor; end++) {
            nonfinite += s.pieces[end].nonfinite;
            zero += s.pieces[end].zero;
        }
        if (nonfinite)
            CALM_TRY(calm_check_add(g->c, floats ? CALM_CHECK_RULE_FLOAT_NONFINITE : CALM_CHECK_RULE_GGUF_SCALE,
                                    at->name, "%zu of %s", nonfinite, floats ? "its values" : "its scales"));
        if (zero)
            CALM_TRY(calm_check_add(g->c, CALM_CHECK_RULE_GGUF_SCALE_ZERO, at->name, "%zu blocks", zero));
        CALM_TRY(check_factor(g, at));
    }
    return CALM_OK;
}
