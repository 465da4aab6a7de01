/* Tensors that an adapter changes, by rows.
 *
 * Each element's sum has the order of the rank whatever rows are asked for, so that a tensor is the same read whole or
 * in pieces. */
#include "ptq/weights/lora.h"

#include <stdio.h>
#include <string.h>

#include "ptq/base/scope.h"
#include "ptq/base/sha256.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/vector.h"

/* A merge of rows from `first` on. */
typedef struct merge {
    const calm_lora *of;
    const float *left, *right;    /* [rows, r], [r, columns] */
    size_t rank, columns;
    calm_dtype dtype;
    float *out;
} merge;

/* The row of the product is summed separately, so that the base is added once. */
static calm_status add_rows(calm_ctx *ctx, size_t first, size_t n, void *user)
{
    const merge *m = user;
    float *sum;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, sum, m->columns));
    for (size_t r = first; r < first + n; r++) {
        float *row = m->out + r * m->columns;
        memset(sum, 0, m->columns * sizeof *sum);
        for (size_t k = 0; k < m->rank; k++)
            calm_vec_axpy(m->columns, m->left[r * m->rank + k], m->right + k * m->columns, sum);
        for (size_t c = 0; c < m->columns; c++)
            row[c] += m->of->scale * sum[c];
        /* Rounded to the tensor's dtype, like the weights of a checkpoint that was merged and saved. */
        calm_dtype_round_all(m->dtype, row, m->columns);
    }
    return CALM_OK;
}

/* Reads rows first .. first + n - 1 of a matrix [rows, columns], which may be stored transposed, into ctx->scratch. */
static calm_status read_rows(calm_ctx *ctx, const calm_lora_part *part, bool turned, size_t first, size_t n,
                             size_t columns, float **out)
{
    const calm_tensor *tensor = &part->tensor;
    float *whole;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, n * columns));
    /* Elements of a row are as far apart as the stored matrix is wide. */
    if (!turned)
        return calm_tensor_part_to_f32(ctx, tensor, first * columns, n * columns, *out);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, whole, n));
    for (size_t c = 0; c < columns; c++) {
        CALM_TRY(calm_tensor_part_to_f32(ctx, tensor, c * tensor->shape[1] + first, n, whole));
        for (size_t r = 0; r < n; r++)
            (*out)[r * columns + c] = whole[r];
    }
    return CALM_OK;
}

/* Merges whole rows: out [n, columns] holds those of the base. */
static calm_status merge_rows(calm_ctx *ctx, const calm_lora *of, const calm_tensor *tensor, size_t first, size_t n,
                              float *out)
{
    /* The rank is the number of rows of `right`, or of its columns where it is stored transposed. */
    const size_t rank = of->right.tensor.shape[of->turned ? 1 : 0];
    merge m = {.of = of, .rank = rank, .columns = tensor->shape[1], .dtype = tensor->dtype, .out = out};
    float *left, *right;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(read_rows(ctx, &of->left, of->turned, first, n, rank, &left));
    CALM_TRY(read_rows(ctx, &of->right, of->turned, 0, rank, m.columns, &right));
    m.left = left;
    m.right = right;
    return calm_parallel_rows(ctx, n, add_rows, &m);
}

/* Merges elements of a vector, or of a tensor that is replaced as a whole. */
static calm_status merge_elements(calm_ctx *ctx, const calm_lora *of, const calm_tensor *tensor, size_t first, size_t n,
                                  float *out)
{
    float *added;
    CALM_SCOPED_SCRATCH(ctx);
    if (of->right.tensor.name) {
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, added, n));
        CALM_TRY(calm_tensor_part_to_f32(ctx, &of->right.tensor, first, n, added));
        for (size_t i = 0; i < n; i++)
            out[i] += of->scale * added[i];
    }
    calm_dtype_round_all(tensor->dtype, out, n);
    return CALM_OK;
}

/* Merges a part of a matrix. */
static calm_status widen_rows(calm_ctx *ctx, const calm_lora *of, const calm_tensor *tensor, size_t first, size_t n,
                              float *out)
{
    const size_t width = tensor->shape[1], begin = first / width, end = (first + n + width - 1) / width;
    float *rows = out;
    CALM_SCOPED_SCRATCH(ctx);
    if (first % width || n % width)    /* rare: the rows that contain the part */
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, rows, (end - begin) * width));
    CALM_TRY(calm_tensor_part_to_f32(ctx, &of->base.tensor, begin * width, (end - begin) * width, rows));
    CALM_TRY(merge_rows(ctx, of, tensor, begin, end - begin, rows));
    if (rows != out)
        memcpy(out, rows + (first - begin * width), n * sizeof *out);
    return CALM_OK;
}

/* The `widen` of calm_tensor_source. */
static calm_status widen(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n, float *out)
{
    const calm_lora *of = tensor->entry;
    (void)self;
    if (of->left.tensor.name) {
        CALM_TRY(widen_rows(ctx, of, tensor, first, n, out));
    } else {
        CALM_TRY(calm_tensor_part_to_f32(ctx, &of->base.tensor, first, n, out));
        CALM_TRY(merge_elements(ctx, of, tensor, first, n, out));
    }
    const size_t bad = calm_find_nonfinite(out, n);
    return bad == n ? CALM_OK
                    : calm_fail(ctx, CALM_ENUMERIC, "%s: tensor %s: element %zu is %g after the adapter is merged",
                                tensor->file, tensor->name, first + bad, (double)out[bad]);
}

/* Releases pages of the base and of A and B, which are read with it. */
static void release(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes)
{
    const calm_lora *of = tensor->entry;
    (void)self;
    /* A replaced tensor of another dtype has other offsets. */
    if (of->base.tensor.bytes == tensor->bytes)
        calm_safetensors_release_part(of->base.set, &of->base.tensor, offset, bytes);
    else
        calm_safetensors_release(of->base.set, &of->base.tensor);
    if (of->left.tensor.name)
        calm_safetensors_release(of->left.set, &of->left.tensor);
    if (of->right.tensor.name)
        calm_safetensors_release(of->right.set, &of->right.tensor);
}

/* Hashes the operands of the tensor, for its digest. */
static void hash(const void *self, const calm_tensor *tensor, calm_sha256 *sha)
{
    const calm_lora *of = tensor->entry;
    const calm_lora_part *parts[] = {&of->base, &of->left, &of->right};
    char scale[64];
    (void)self;
    /* %a prints the exact scale, so two scales never have one digest. */
    snprintf(scale, sizeof scale, "lora %a %d", (double)of->scale, of->turned);
    calm_sha256_field(sha, scale);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]->tensor.name) {
            calm_sha256_field(sha, calm_dtype_name(parts[i]->tensor.dtype));
            calm_safetensors_hash_tensor(parts[i]->set, &parts[i]->tensor, sha);
        }
}

const calm_tensor_source calm_lora_source = {.widen = widen, .release = release, .hash = hash};
