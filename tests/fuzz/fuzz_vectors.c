/* Blobs of named vectors: decoded values are finite and encode to a blob that decodes to the same values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/quant/vectors.h"
#include "tests/fuzz/fuzz.h"

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    calm_vectors first, second;
    void *bytes;
    size_t n;
    if (calm_vectors_decode(ctx, "blob", data, size, &first) != CALM_OK) {
        if (!ctx->message[0])
            abort();
        return 0;
    }
    for (size_t i = 0; i < first.count; i++)
        for (size_t j = 0; j < first.of[i].n; j++)
            if (!isfinite(first.of[i].values[j]))
                abort();
    if (calm_vectors_encode(ctx, &first, &bytes, &n) != CALM_OK || n != size ||
        calm_vectors_decode(ctx, "again", bytes, n, &second) != CALM_OK || second.count != first.count)
        abort();
    for (size_t i = 0; i < first.count; i++)
        if (strcmp(first.of[i].name, second.of[i].name) != 0 || first.of[i].n != second.of[i].n ||
            memcmp(first.of[i].values, second.of[i].values, first.of[i].n * sizeof(float)) != 0)
            abort();
    return 0;
}
