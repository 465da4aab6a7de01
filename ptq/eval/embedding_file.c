/* Sentence embeddings as files. */
#include "ptq/eval/embedding_file.h"

#include <math.h>
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/text.h"

/* Before the text of the header: magic, version 1.0 and its length, 16 bits. */
#define NPY_PREFIX 10

/* The values begin at a multiple of this. */
#define NPY_ALIGN 64

typedef void writer(const calm_embeddings *embeddings, calm_text *text);

static void write_npy(const calm_embeddings *embeddings, calm_text *text)
{
    char shape[128], header[256];
    const int n = snprintf(shape, sizeof shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %zu), }",
                           embeddings->n, embeddings->width);
    /* Blanks fill the header, and a newline ends it. */
    const int padded = (NPY_PREFIX + n + 1 + NPY_ALIGN - 1) / NPY_ALIGN * NPY_ALIGN - NPY_PREFIX;
    const char start[NPY_PREFIX] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, (char)(padded & 255), (char)(padded >> 8)};
    snprintf(header, sizeof header, "%-*s\n", padded - 1, shape);
    calm_text_append(text, start, sizeof start);
    calm_text_append(text, header, (size_t)padded);
    for (size_t i = 0; i < embeddings->n * embeddings->width; i++) {
        const float value = (float)embeddings->x[i];
        calm_text_append(text, (const char *)&value, sizeof value);
    }
}

static void write_jsonl(const calm_embeddings *embeddings, calm_text *text)
{
    for (size_t i = 0; i < embeddings->n; i++) {
        calm_text_printf(text, "{\"embedding\": [");
        for (size_t j = 0; j < embeddings->width; j++)
            calm_text_printf(text, "%s%.9g", j > 0 ? ", " : "",
                             (double)(float)embeddings->x[i * embeddings->width + j]);
        calm_text_printf(text, "]}\n");
    }
}

static writer *find_writer(const char *path)
{
    return calm_text_ends_with(path, ".npy") ? write_npy : calm_text_ends_with(path, ".jsonl") ? write_jsonl : NULL;
}

bool calm_embeddings_named(const char *path)
{
    return find_writer(path) != NULL;
}

void calm_embeddings_normalize(calm_embeddings *embeddings)
{
    const size_t width = embeddings->width;
    for (size_t i = 0; i < embeddings->n; i++) {
        double *row = embeddings->x + i * width, square = 0;
        for (size_t j = 0; j < width; j++)
            square += row[j] * row[j];
        for (size_t j = 0; j < width && square > 0; j++)
            row[j] /= sqrt(square);
    }
}

calm_status calm_embeddings_write(calm_ctx *ctx, const calm_embeddings *embeddings, const char *path)
{
    writer *write = find_writer(path);
    calm_status status;
    calm_text text;
    if (!write)
        return calm_fail(ctx, CALM_EARG, "%s: embeddings are written to files that end in .npy or .jsonl", path);
    calm_text_init(&text);
    write(embeddings, &text);
    status = calm_text_check(ctx, &text);
    if (status == CALM_OK)
        status = calm_make_parent(ctx, path);
    if (status == CALM_OK)
        status = calm_write_file(ctx, path, text.data, text.length);
    calm_text_clear(&text);
    return status;
}
