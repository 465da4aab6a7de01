/* The forward pass of given tokens, written while it runs. */
#include "ptq/eval/forward_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/arch/arch.h"
#include "ptq/base/threads.h"
#include "ptq/model/forward.h"

/* The default limit for hidden states in memory. */
#define MEMORY_BYTES ((size_t)1 << 30)
/* Floats of hidden states, or logits, that are written at once. */
#define PIECE_FLOATS ((size_t)16 * 1024 * 1024)
/* Rows per task that computes logits. */
#define TASK_ROWS ((size_t)256)

/* The state of one run. */
typedef struct run {
    const calm_forward_request *request;
    const calm_config *config;
    calm_windows windows;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    calm_arena *arena;                 /* arena of the batch */
    size_t *place;                     /* [batch.rows] row of the tensors [S T] that each row is written to */
    size_t length;                     /* T                                                        */
    calm_safetensors_writer writer;
    size_t written;                    /* rows written of the current tensor */
    float *zeros;                      /* [max(V, D)] zeros for missing rows */
    calm_forward_result *result;
} run;

/* ---- which tensors ---- */

static calm_status add_tensor(calm_ctx *ctx, run *r, const char *name, size_t width, bool per_token)
{
    calm_tensor *tensor = &r->result->tensors[r->result->n++];
    *tensor = (calm_tensor){.dtype = CALM_F32, .n_dims = per_token ? 3 : 2,
                            .shape = {r->windows.n, per_token ? r->length : width, per_token ? width : 0}};
    return calm_strf(ctx, ctx->out, &tensor->name, "%s", name);
}

static calm_status list_tensors(calm_ctx *ctx, run *r)
{
    const size_t width = r->config->hidden, n_blocks = r->config->n_blocks;
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->result->tensors, n_blocks + 5));
    if (r->request->hidden) {
        CALM_TRY(add_tensor(ctx, r, "hidden.embed", width, true));
        for (size_t i = 0; i < n_blocks; i++) {
            char name[32];
            snprintf(name, sizeof name, "hidden.%02zu", i);
            CALM_TRY(add_tensor(ctx, r, name, width, true));
        }
        if (r->head.norm.w)
            CALM_TRY(add_tensor(ctx, r, "hidden.final_norm", width, true));
    }
    if (r->config->arch->encoder)
        CALM_TRY(add_tensor(ctx, r, "last_hidden_state", width, true));
    if (r->head.pooler.w)
        CALM_TRY(add_tensor(ctx, r, "pooler_output", width, false));
    return r->head.table ? add_tensor(ctx, r, "logits", r->head.vocab, true) : CALM_OK;
}

/* ---- tokens ---- */

calm_status calm_forward_check(calm_ctx *ctx, const calm_config *config, const calm_token_file *file)
{
    const calm_ends *ends = config->arch->ends;
    const size_t n_types = ends && ends->types && config->n_types ? config->n_types : 1;
    for (size_t s = 0; s < file->n; s++)
        for (size_t i = file->begin[s]; i < file->begin[s + 1]; i++) {
            const size_t position = i - file->begin[s];
            if (file->mask && !file->mask[i])
                continue;
            if (file->types && file->types[i] >= n_types)
                return calm_fail(ctx, CALM_EFORMAT, "%s: line %zu: types[%zu]: type %u of a token, but the model has "
                                 "%zu", file->path, file->line[s], position, file->types[i], n_types);
            if (ends && ends->positions && position >= calm_config_positions(config))
                return calm_fail(ctx, CALM_EFORMAT, "%s: line %zu: a token at position %zu, but the model has %zu "
                                 "positions", file->path, file->line[s], position, calm_config_positions(config));
        }
    return CALM_OK;
}

/* Finds the tensor row of each row of the batch; rows of padding are left out. */
static calm_status find_places(calm_ctx *ctx, run *r)
{
    const calm_token_file *file = r->request->tokens;
    size_t row = 0;
    CALM_TRY(CALM_NEW_RAW(ctx, r->arena, r->place, r->windows.begin[r->windows.n]));
    for (size_t s = 0; s < file->n; s++)
        for (size_t i = file->begin[s]; i < file->begin[s + 1]; i++)
            if (!file->mask || file->mask[i])
                r->place[row++] = s * r->length + (i - file->begin[s]);
    return CALM_OK;
}

/* ---- rows ---- */

static calm_status put_zeros(calm_ctx *ctx, run *r, size_t until, size_t width)
{
    for (; r->written < until; r->written++)
        CALM_TRY(calm_safetensors_put(ctx, &r->writer, r->zeros, width * sizeof *r->zeros));
    return CALM_OK;
}

/* Writes rows first .. first + n - 1 of the batch to the current tensor; after its last row the rest is 0. */
static calm_status put_rows(calm_ctx *ctx, run *r, size_t first, size_t n, const float *x, size_t width)
{
    for (size_t i = 0; i < n; i++) {
        CALM_TRY(put_zeros(ctx, r, r->place[first + i], width));
        CALM_TRY(calm_safetensors_put(ctx, &r->writer, x + i * width, width * sizeof *x));
        r->written++;
    }
    if (first + n < r->batch.rows)
        return CALM_OK;
    CALM_TRY(put_zeros(ctx, r, r->windows.n * r->length, width));
    r->written = 0;
    return CALM_OK;
}

/* Returns the rows of a piece, at least one. */
static size_t piece_rows(const run *r, size_t first, size_t width)
{
    return calm_size_min(r->batch.rows - first, calm_size_max(1, PIECE_FLOATS / width));
}

static calm_status put_hidden(calm_ctx *ctx, run *r)
{
    /* Window by window, because shared keys and values may follow the hidden states of each. */
    for (size_t i = 0; i < r->batch.n; i++) {
        const size_t row = calm_batch_row(&r->batch, i), n = calm_batch_tokens(&r->batch, i);
        CALM_SCOPED_SCRATCH(ctx);
        float *x;
        if (n == 0)
            continue;
        CALM_TRY(calm_row_store_get(ctx, &r->batch.hidden, row, n, &x));
        CALM_TRY(put_rows(ctx, r, row, n, x, r->batch.width - r->batch.carried));
    }
    return CALM_OK;
}

static calm_status put_pooled(calm_ctx *ctx, run *r)
{
    const size_t width = r->batch.width;
    for (size_t s = 0; s < r->windows.n; s++) {
        CALM_SCOPED_SCRATCH(ctx);
        float *x, *pooled;
        CALM_TRY(calm_row_store_get(ctx, &r->batch.hidden, calm_batch_row(&r->batch, s), 1, &x));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, pooled, width));
        CALM_TRY(calm_head_pool(ctx, &r->head, x, pooled));
        CALM_TRY(calm_safetensors_put(ctx, &r->writer, pooled, width * sizeof *pooled));
    }
    return CALM_OK;
}

/* ---- logits ---- */

/* A piece of logits; a task is a tile of the vocabulary times a chunk of rows. */
typedef struct piece {
    const calm_head *head;
    const float *x;          /* [rows, D] prepared inputs of the head */
    float *logits;           /* [rows, V]          */
    size_t rows, tile, n_tiles;
} piece;

static calm_status compute_part(calm_ctx *ctx, size_t index, void *user)
{
    const piece *p = user;
    const size_t first = index % p->n_tiles * p->tile, row = index / p->n_tiles * TASK_ROWS, vocab = p->head->vocab;
    return calm_head_tile_logits(ctx, p->head, p->x + row * p->head->hidden, calm_size_min(p->rows - row, TASK_ROWS),
                                 first, calm_size_min(vocab - first, p->tile), p->logits + row * vocab + first, vocab);
}

static calm_status put_logits(calm_ctx *ctx, run *r)
{
    const size_t width = r->batch.width, vocab = r->head.vocab;
    for (size_t first = 0, n; first < r->batch.rows; first += n) {
        CALM_SCOPED_SCRATCH(ctx);
        piece p = {.head = &r->head, .tile = calm_head_tile(&r->head)};
        float *x, *prepared;
        p.rows = n = piece_rows(r, first, vocab);
        p.n_tiles = (vocab + p.tile - 1) / p.tile;
        CALM_TRY(calm_row_store_get(ctx, &r->batch.hidden, first, n, &x));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, prepared, n * width));
        memcpy(prepared, x, n * width * sizeof *x);
        CALM_TRY(calm_head_prepare(ctx, &r->head, prepared, n));
        p.x = prepared;
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, p.logits, n * vocab));
        CALM_TRY(calm_parallel_for(ctx, p.n_tiles * ((n + TASK_ROWS - 1) / TASK_ROWS), compute_part, &p));
        CALM_TRY(put_rows(ctx, r, first, n, p.logits, vocab));
    }
    return CALM_OK;
}

/* ---- the model ---- */

static void report(const run *r, size_t done)
{
    if (r->request->tick)
        r->request->tick(r->request->tick_user, done, r->config->n_blocks + 2);
}

/* Runs all parts in the order of the tensors, after the batch is embedded. */
static calm_status run_model(calm_ctx *ctx, run *r)
{
    const bool hidden = r->request->hidden;
    if (hidden)
        CALM_TRY(put_hidden(ctx, r));
    for (size_t i = 0; i < r->config->n_blocks; i++) {
        report(r, i + 1);
        CALM_TRY(calm_batch_load_block(ctx, r->request->model, &r->rope, i, NULL, NULL, &r->batch));
        if (hidden)
            CALM_TRY(put_hidden(ctx, r));
    }
    report(r, r->config->n_blocks + 1);
    CALM_TRY(calm_batch_norm(ctx, &r->head.norm, &r->batch));
    if (hidden && r->head.norm.w)
        CALM_TRY(put_hidden(ctx, r));
    if (r->config->arch->encoder)
        CALM_TRY(put_hidden(ctx, r));
    if (r->head.pooler.w)
        CALM_TRY(put_pooled(ctx, r));
    if (r->head.table)
        CALM_TRY(put_logits(ctx, r));
    report(r, r->config->n_blocks + 2);
    return CALM_OK;
}

/* ---- the file ---- */

static calm_status prepare(calm_ctx *ctx, run *r)
{
    const calm_model *model = r->request->model;
    r->config = calm_model_config(model);
    r->length = r->request->tokens->longest;
    CALM_TRY(calm_forward_check(ctx, r->config, r->request->tokens));
    CALM_TRY(calm_windows_from_sequences(ctx, r->request->tokens, &r->windows));
    CALM_TRY(calm_rope_init(ctx, r->config, calm_windows_reach(&r->windows), &r->rope));
    CALM_TRY(calm_model_load_head(ctx, model, &r->head));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->zeros, calm_size_max(r->config->hidden, r->head.vocab)));
    CALM_TRY(find_places(ctx, r));
    return list_tensors(ctx, r);
}

/* Embeds (in a file next to `path` if there are many rows), runs and writes. */
static calm_status write_all(calm_ctx *ctx, run *r, const char *path)
{
    const size_t rows = r->windows.begin[r->windows.n];
    const size_t limit = r->request->memory ? r->request->memory : MEMORY_BYTES;
    const size_t most = limit / sizeof(float) / calm_batch_width(r->config);
    const char *slash = strrchr(path, '/');
    char *dir;
    CALM_TRY(calm_strf(ctx, ctx->out, &dir, "%.*s", slash ? (int)(slash - path) + 1 : 2, slash ? path : "./"));
    CALM_TRY(calm_batch_embed(ctx, r->request->model, &r->windows, 0, r->windows.n, r->arena,
                              rows > most ? dir : NULL, &r->batch));
    calm_status status = calm_safetensors_begin(ctx, &r->writer, path, r->result->tensors, r->result->n);
    if (status == CALM_OK)
        status = run_model(ctx, r);
    status = calm_safetensors_end(ctx, &r->writer);
    calm_batch_close(&r->batch);
    return status;
}

calm_status calm_forward_write(calm_ctx *ctx, const calm_forward_request *request, const char *path,
                               calm_forward_result *out)
{
    CALM_SCOPED_ARENA(arena);
    run r = {.request = request, .result = out, .arena = &arena};
    char ending[32];
    calm_new_file file;
    *out = (calm_forward_result){0};
    if (calm_is_directory(path))
        return calm_fail(ctx, CALM_EARG, "%s: expected the name of a file, found a directory", path);
    snprintf(ending, sizeof ending, ".tmp.%ld", (long)getpid());
    CALM_TRY(calm_new_file_begin(ctx, path, ending, &file));
    CALM_TRY(prepare(ctx, &r));
    CALM_TRY(calm_make_parent(ctx, file.target));
    write_all(ctx, &r, file.temporary);
    return calm_new_file_end(ctx, &file);
}
