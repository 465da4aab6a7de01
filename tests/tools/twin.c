/* Collects the pieces of an outlier model and writes them. */
#include "tests/tools/twin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ptq/base/file.h"

/* ---- pieces ---- */

static twin_piece whole(const calm_tensor *tensor)
{
    return (twin_piece){.name = tensor->name, .from = tensor, .n_rows = tensor->shape[0],
                        .n_columns = tensor->n_elements / tensor->shape[0], .factor = 1};
}

calm_status twin_begin(calm_ctx *ctx, twin *it, const twin_arguments *args, const calm_model *model)
{
    const calm_safetensors *set = calm_model_tensors(model);
    const size_t n = calm_safetensors_count(set);
    *it = (twin){.args = args, .model = model, .config = calm_model_config(model), .room = n + 64};
    CALM_TRY(CALM_NEW(ctx, ctx->out, it->pieces, it->room));
    for (size_t i = 0; i < n; i++)
        it->pieces[it->n++] = whole(calm_safetensors_at(set, i));
    it->json = calm_json_copy(calm_model_json(model));
    return CALM_OK;
}

void twin_clear(twin *it)
{
    calm_json_free(it->json);
    calm_json_free(it->tokenizer);
}

calm_status twin_find(calm_ctx *ctx, const twin *it, const char *name, twin_piece **out)
{
    *out = NULL;
    for (size_t i = 0; i < it->n && !*out; i++)
        if (strcmp(it->pieces[i].name, name) == 0)
            *out = &it->pieces[i];
    if (*out)
        return CALM_OK;
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no tensor %s", calm_model_dir(it->model), name);
}

calm_status twin_add(calm_ctx *ctx, twin *it, const twin_piece *piece)
{
    if (it->n == it->room) {
        twin_piece *more;
        CALM_TRY(CALM_NEW(ctx, ctx->out, more, 2 * it->room));
        memcpy(more, it->pieces, it->n * sizeof *more);
        it->pieces = more;
        it->room *= 2;
    }
    it->pieces[it->n++] = *piece;
    return CALM_OK;
}

calm_status twin_remove(calm_ctx *ctx, twin *it, const char *name)
{
    twin_piece *piece = NULL;
    CALM_TRY(twin_find(ctx, it, name, &piece));
    memmove(piece, piece + 1, (size_t)(it->pieces + --it->n - piece) * sizeof *piece);
    return CALM_OK;
}

calm_status twin_module(calm_ctx *ctx, const twin *it, size_t block, calm_role role, char **out)
{
    return calm_role_module(ctx, it->config, calm_model_prefix(it->model), block, role, CALM_NO_EXPERT, out);
}

calm_status twin_norm(calm_ctx *ctx, const twin *it, size_t block, calm_sublayer sublayer, char **out)
{
    char *module;
    CALM_TRY(calm_model_block_name(ctx, it->model, block, &module));
    return calm_strf(ctx, ctx->out, out, "%s.%s.weight", module,
                     it->config->arch->names->norm[sublayer][CALM_NORM_IN]);
}

/* ---- writing ---- */

static double changed(const twin_piece *piece, size_t row, size_t column, double value)
{
    if (piece->rows)
        value = piece->plus_one ? (1 + value) * piece->rows[row] - 1 : value * piece->rows[row];
    if (piece->columns)
        value /= piece->columns[column];
    return value * piece->factor;
}

static calm_status write_piece(calm_ctx *ctx, const twin *it, calm_safetensors_writer *writer, const twin_piece *piece)
{
    const size_t n = piece->n_rows * piece->n_columns;
    if (piece->values)
        return calm_safetensors_put(ctx, writer, piece->values, n * sizeof *piece->values);
    const size_t width = piece->from->n_elements / piece->from->shape[0];
    float *x, *out;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, piece->from->n_elements));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, out, n));
    CALM_TRY(calm_tensor_to_f32(ctx, piece->from, x));
    calm_safetensors_release(calm_model_tensors(it->model), piece->from);
    for (size_t i = 0; i < piece->n_rows; i++)
        for (size_t j = 0; j < piece->n_columns; j++) {
            const float value = x[(piece->first_row + i) * width + piece->first_column + j];
            const float extra = piece->extra_row && i == piece->extra_at ? piece->extra_row[j] : 0;
            out[i * piece->n_columns + j] = (float)changed(piece, i, j, (double)value) + extra;
        }
    return calm_safetensors_put(ctx, writer, out, n * sizeof *out);
}

static calm_status write_tensors(calm_ctx *ctx, const twin *it, const char *path)
{
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    CALM_TRY(CALM_NEW(ctx, ctx->out, tensors, it->n));
    for (size_t i = 0; i < it->n; i++) {
        const twin_piece *piece = &it->pieces[i];
        /* A vector stays a vector. */
        tensors[i] = (calm_tensor){.name = piece->name, .dtype = CALM_F32, .n_dims = 2,
                                   .shape = {piece->n_rows, piece->n_columns}};
        if (piece->from && piece->from->n_dims == 1)
            tensors[i].n_dims = 1;
    }
    CALM_TRY(calm_safetensors_begin(ctx, &writer, path, tensors, it->n));
    for (size_t i = 0; i < it->n && ctx->status == CALM_OK; i++) {
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        write_piece(ctx, it, &writer, &it->pieces[i]);
        calm_arena_rewind(ctx->scratch, mark);
    }
    return calm_safetensors_end(ctx, &writer);
}

static calm_status write_directory(calm_ctx *ctx, const twin *it, const char *directory)
{
    static const char *const others[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                                         "generation_config.json", "chat_template.jinja"};
    char *from, *to;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        CALM_TRY(calm_path_join(ctx, ctx->out, &from, calm_model_dir(it->model), others[i]));
        CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, others[i]));
        if (i == 0 && it->tokenizer)
            CALM_TRY(calm_json_save(ctx, to, it->tokenizer));
        else if (calm_path_exists(from))
            CALM_TRY(calm_copy_file(ctx, from, to));
    }
    calm_json_set_string(it->json, calm_json_get(it->json, "dtype") ? "dtype" : "torch_dtype", "float32");
    CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, "config.json"));
    CALM_TRY(calm_json_save(ctx, to, it->json));
    CALM_TRY(calm_path_join(ctx, ctx->out, &to, directory, "model.safetensors"));
    CALM_TRY(write_tensors(ctx, it, to));
    CALM_TRY(calm_sync_directory(ctx, directory));
    if (rename(directory, it->args->output) != 0)
        return calm_fail_errno(ctx, errno, "%s: cannot be renamed to %s", directory, it->args->output);
    return CALM_OK;
}

calm_status twin_write(calm_ctx *ctx, const twin *it)
{
    char *directory;
    CALM_TRY(calm_strf(ctx, ctx->out, &directory, "%s.tmp.%ld", it->args->output, (long)getpid()));
    CALM_TRY(calm_make_directories(ctx, directory));
    calm_status status = write_directory(ctx, it, directory);
    if (status != CALM_OK) {
        calm_ctx cleanup = *ctx;    /* the first failure is the one to report */
        calm_ctx_clear_failure(&cleanup);
        calm_remove_tree(&cleanup, directory);
    }
    return status;
}
