/* Importance matrices: an opened file is consistent: every value is in the file and finite, names are unique, and means
 * exist only for the file's own shape. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/io/imatrix.h"
#include "tests/fuzz/fuzz.h"

/* Limit of the reader's memory for a small file. */
#define MOST_BYTES ((size_t)64 << 20)

static void check_means(calm_ctx *ctx, const calm_imatrix *file, const calm_imatrix_entry *entry, size_t part,
                        size_t n_parts)
{
    const size_t width = entry->n / n_parts;
    double *means;
    bool seen;
    const calm_arena_mark mark = calm_arena_save(ctx->scratch);
    if (calm_alloc(ctx, ctx->scratch, &means, width, sizeof *means, "means") == CALM_OK &&
        calm_imatrix_means(ctx, file, entry, part, n_parts, width, means, &seen) == CALM_OK)
        for (size_t i = 0; seen && i < width; i++)
            if (!(means[i] >= 0))
                abort();
    calm_ctx_clear_failure(ctx);
    if (calm_imatrix_means(ctx, file, entry, 0, n_parts, width + 1, means, &seen) == CALM_OK)
        abort();
    calm_ctx_clear_failure(ctx);
    calm_arena_rewind(ctx->scratch, mark);
}

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_imatrix *file;
    size_t values = 0;
    if (calm_imatrix_open(ctx, fuzz_file("imatrix", data, size), &file) != CALM_OK) {
        if (file || !ctx->message[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < calm_imatrix_count(file); i++) {
        const calm_imatrix_entry *entry = calm_imatrix_at(file, i);
        if (calm_imatrix_find(file, entry->name) != entry || !entry->n || entry->n % entry->n_counts)
            abort();
        values += entry->n;
        check_means(ctx, file, entry, 0, 1);
        check_means(ctx, file, entry, entry->n_counts - 1, entry->n_counts);
    }
    if (!calm_imatrix_count(file) || values > size / sizeof(float) || ctx->out->used_bytes > MOST_BYTES)
        abort();    /* entries do not overlap */
    calm_imatrix_close(file);
    return 0;
}
