/* Encoding of named vectors as blobs. */
#include "ptq/quant/vectors.h"

#include <stdint.h>
#include <string.h>

#include "ptq/tensor/dtype.h"

static const char magic[8] = "CALMVEC1";

/* A block has a dozen; a head with more than this is damaged and must not allocate memory. */
#define MOST_VECTORS ((uint64_t)4096)

typedef struct entry {
    uint64_t name_bytes, values;
} entry;

#define HEAD_BYTES (sizeof magic + sizeof(uint64_t))

const calm_named_vector *calm_vectors_find(const calm_vectors *vectors, const char *name)
{
    for (size_t i = 0; vectors && i < vectors->count; i++)
        if (strcmp(vectors->of[i].name, name) == 0)
            return &vectors->of[i];
    return NULL;
}

/* Computes the bytes of the names with their NULs, and of the values; returns false on overflow. */
static bool add_up(const entry *entries, size_t count, size_t *names, size_t *values)
{
    *names = *values = 0;
    for (size_t i = 0; i < count; i++)
        if (!calm_size_add(names, *names, entries[i].name_bytes) || !calm_size_add(names, *names, 1) ||
            !calm_size_add(values, *values, entries[i].values))
            return false;
    return calm_size_mul(values, *values, sizeof(float)) && calm_size_add(names, *names, 3);
}

calm_status calm_vectors_encode(calm_ctx *ctx, const calm_vectors *vectors, void **bytes, size_t *n_bytes)
{
    const uint64_t count = vectors->count;
    entry *entries;
    size_t names, values;
    char *at;
    CALM_TRY(CALM_NEW(ctx, ctx->out, entries, vectors->count));
    for (size_t i = 0; i < vectors->count; i++)
        entries[i] = (entry){strlen(vectors->of[i].name), vectors->of[i].n};
    if (!add_up(entries, vectors->count, &names, &values))
        return calm_fail(ctx, CALM_ENOMEM, "%zu vectors are too large", vectors->count);
    names -= names % 4;
    *n_bytes = HEAD_BYTES + vectors->count * sizeof *entries + names + values;
    CALM_TRY(calm_alloc(ctx, ctx->out, &at, *n_bytes, 1, "a blob"));
    *bytes = at;
    memcpy(at, magic, sizeof magic);
    memcpy(at + sizeof magic, &count, sizeof count);
    memcpy(at + HEAD_BYTES, entries, vectors->count * sizeof *entries);
    char *name = at + HEAD_BYTES + vectors->count * sizeof *entries, *value = name + names;
    for (size_t i = 0; i < vectors->count; i++) {
        memcpy(name, vectors->of[i].name, entries[i].name_bytes + 1);
        memcpy(value, vectors->of[i].values, vectors->of[i].n * sizeof(float));
        name += entries[i].name_bytes + 1;
        value += vectors->of[i].n * sizeof(float);
    }
    return CALM_OK;
}

static calm_status damaged(calm_ctx *ctx, const char *name, const char *what)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: not the vectors of a block: %s", name, what);
}

/* Reads one vector and checks its name and values. */
static calm_status take(calm_ctx *ctx, const char *blob, const entry *head, const char *name, const char *value,
                        calm_named_vector *out)
{
    float *values;
    char *copy;
    if (memchr(name, '\0', head->name_bytes + 1) != name + head->name_bytes)
        return damaged(ctx, blob, "a name does not end where it should");
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", name));
    CALM_TRY(CALM_NEW(ctx, ctx->out, values, head->values));
    memcpy(values, value, head->values * sizeof *values);
    if (calm_find_nonfinite(values, head->values) < head->values)
        return damaged(ctx, blob, "a value is not finite");
    *out = (calm_named_vector){copy, head->values, values};
    return CALM_OK;
}

calm_status calm_vectors_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, calm_vectors *out)
{
    const char *at = bytes;
    uint64_t count;
    entry *entries;
    size_t names, values;
    if (n_bytes < HEAD_BYTES || memcmp(at, magic, sizeof magic) != 0)
        return damaged(ctx, name, "it does not begin with CALMVEC1");
    memcpy(&count, at + sizeof magic, sizeof count);
    if (count > MOST_VECTORS || (n_bytes - HEAD_BYTES) / sizeof *entries < count)
        return damaged(ctx, name, "its length does not fit its number of vectors");
    CALM_TRY(CALM_NEW(ctx, ctx->out, entries, count));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->of, count));
    memcpy(entries, at + HEAD_BYTES, count * sizeof *entries);
    const size_t rest = n_bytes - HEAD_BYTES - count * sizeof *entries;
    if (!add_up(entries, count, &names, &values) || names - names % 4 > rest || rest - (names - names % 4) != values)
        return damaged(ctx, name, "its length does not fit its vectors");
    const char *next = at + HEAD_BYTES + count * sizeof *entries, *value = next + (names - names % 4);
    out->count = count;
    for (size_t i = 0; i < count; i++) {
        CALM_TRY(take(ctx, name, &entries[i], next, value, &out->of[i]));
        next += entries[i].name_bytes + 1;
        value += entries[i].values * sizeof(float);
    }
    return CALM_OK;
}
