/* Quantizes pieces of an embedding or a head as jobs with one linear. */
#include "ptq/state/outer_rows.h"

#include <string.h>

#include "ptq/calib/head_stats.h"
#include "ptq/quant/qjob.h"
#include "ptq/recipe/recipe.h"

/* Without statistics of the inputs: with the identity as Gram matrix, scales have the least squared error. */
#define ALGORITHM "hls(signed=true)+nearest"

calm_status calm_outer_algorithm(calm_ctx *ctx, const char *name, calm_algorithm **out)
{
    return calm_algorithm_parse(ctx, name ? name : ALGORITHM, out);
}

calm_status calm_outer_fit_reads(calm_ctx *ctx, const calm_outer_fit *fit, bool *out)
{
    calm_algorithm *algorithm;
    CALM_TRY(calm_outer_algorithm(ctx, fit->algorithm, &algorithm));
    *out = fit->algorithm && (calm_algorithm_caps(algorithm) & CALM_NEEDS_GRAM);
    return CALM_OK;
}

/* ---- fit of a head ---- */

/* Adds the mean diagonal of gram [width, width] times the identity. */
static void add_embedding(double *gram, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += gram[i * width + i];
    for (size_t i = 0; i < width; i++)
        gram[i * width + i] += sum / (double)width;
}

calm_status calm_outer_fit_collect(calm_ctx *ctx, const calm_model *model, const calm_windows *windows,
                                   calm_outer_fit *fit)
{
    const calm_config *config = calm_model_config(model);
    const calm_tensor *head;
    double *gram;
    bool reads;
    CALM_TRY(calm_outer_fit_reads(ctx, fit, &reads));
    if (!reads || fit->stats.gram)
        return CALM_OK;
    CALM_TRY(calm_model_table(ctx, model, !config->tied, &head));
    CALM_TRY(calm_head_stats_collect(ctx, model, windows, &gram, &fit->stats.rows));
    if (config->tied)
        add_embedding(gram, config->hidden);
    fit->head = head->name;
    fit->stats.gram = gram;
    return CALM_OK;
}

/* Returns calm_recipe_head_algorithm for a stored run's algorithms; ignores algorithms that this version of calm does
 * not know. */
static const char *stored_choice(calm_ctx *ctx, const calm_json *recipe, const calm_formats *formats)
{
    const calm_json *algorithms = calm_json_get(recipe, "algorithms");
    const size_t n = calm_json_size(algorithms);
    const char *only = NULL;
    unsigned caps = 0;
    for (size_t i = 0; i < n; i++) {
        calm_algorithm *parsed;
        const char *name = calm_json_string(calm_json_get(calm_json_at(algorithms, i), "name"), "");
        if (calm_algorithm_parse(ctx, name, &parsed) == CALM_OK) {
            caps |= calm_algorithm_caps(parsed);
            only = name;
        } else {
            calm_ctx_clear_failure(ctx);
        }
    }
    return calm_recipe_head_choice(formats, caps, n == 1 ? only : NULL);
}

calm_status calm_outer_stored_algorithm(calm_ctx *ctx, const calm_json *recipe, const calm_formats *formats,
                                        const char **out)
{
    calm_formats own = {0};
    *out = calm_json_string(calm_json_get(recipe, "head_algorithm"), NULL);
    if (*out)
        return CALM_OK;
    CALM_TRY(calm_formats_of_recipe(ctx, recipe, &own));
    CALM_TRY(calm_formats_parse_outer(ctx, calm_json_string(calm_json_get(recipe, "embed_scheme"), NULL),
                                      calm_json_string(calm_json_get(recipe, "head_scheme"), NULL), &own.options));
    /* A run that wrote a head without an algorithm, before heads were fitted, is written in the same way again. */
    if (!calm_formats_have_tables(&own))
        *out = stored_choice(ctx, recipe, formats);
    return CALM_OK;
}

calm_status calm_outer_fit_key(calm_ctx *ctx, const calm_outer_fit *fit, const char *calibration,
                               char key[CALM_SHA256_HEX])
{
    calm_algorithm *algorithm;
    calm_sha256 sha;
    CALM_SCOPED_RESULTS(ctx);
    CALM_TRY(calm_outer_algorithm(ctx, fit->algorithm, &algorithm));
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-head-1");
    calm_sha256_field(&sha, calm_algorithm_canonical(algorithm));
    calm_sha256_field(&sha, calibration);
    return calm_sha256_finish(ctx, &sha, key);
}

/* ---- rows ---- */

/* Quantizes rows as a job, into ctx->out. */
static calm_status quantize(calm_ctx *ctx, const calm_outer_fit *fit, const calm_tensor *table,
                            const calm_scheme *scheme, size_t first, size_t n, calm_qjob *out)
{
    const bool fitted = fit && fit->stats.gram && strcmp(fit->head, table->name) == 0;
    const size_t in = table->shape[1];
    calm_algorithm *algorithm;
    double *none = NULL;
    float *w;
    if (!fitted)
        CALM_TRY(CALM_NEW(ctx, ctx->out, none, in * in));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, n * in));
    CALM_TRY(calm_tensor_part_to_f32(ctx, table, first * in, n * in, w));
    const calm_stats stats = fitted ? fit->stats : (calm_stats){.gram = none};
    const calm_linear linear = {.name = table->name, .out = n, .in = in, .w = w};
    const calm_job job = {.name = table->name, .linears = &linear, .n_linears = 1, .stats = &stats, .scheme = *scheme};
    /* An algorithm that reads data is used only for the head. */
    CALM_TRY(calm_outer_algorithm(ctx, fit ? fit->algorithm : NULL, &algorithm));
    if (!fitted && calm_algorithm_caps(algorithm))
        CALM_TRY(calm_outer_algorithm(ctx, NULL, &algorithm));
    return calm_algorithm_run(ctx, algorithm, &job, out);
}

calm_status calm_outer_rows(void *user, calm_ctx *ctx, const calm_tensor *table, const calm_scheme *scheme,
                            size_t first, size_t n, calm_qlinear *out)
{
    const size_t in = table->shape[1];
    calm_qjob qjob;
    CALM_TRY(quantize(ctx, user, table, scheme, first, n, &qjob));
    *out = (calm_qlinear){.quantized = true, .scheme = *scheme, .out = n, .in = in, .group = qjob.group,
                          .n_groups = qjob.n_groups, .codes = qjob.codes, .scales = qjob.scales, .zeros = qjob.zeros,
                          .mins = qjob.mins, .global = qjob.global};
    return CALM_OK;
}

calm_status calm_outer_rows_round(calm_ctx *ctx, const calm_outer_fit *fit, const calm_tensor *table,
                                  const calm_scheme *scheme, uint16_t *out)
{
    const size_t rows = table->shape[0], in = table->shape[1], most = calm_outer_piece(rows, in);
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_OUT(ctx, &arena);
    for (size_t first = 0, n; first < rows; first += n) {
        CALM_SCOPED_SCRATCH(ctx);
        calm_qjob qjob;
        float *w;
        n = calm_size_min(most, rows - first);
        CALM_TRY(quantize(ctx, fit, table, scheme, first, n, &qjob));
        CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, w, n * in));
        calm_qjob_dequantize(&qjob, w);
        CALM_TRY(calm_from_f32(ctx, CALM_F16, w, n * in, out + first * in));
        calm_arena_clear(&arena);
    }
    return CALM_OK;
}

size_t calm_outer_rows_bytes(const calm_algorithm *algorithm, calm_operands operands, size_t vocab, size_t width,
                             size_t n_threads)
{
    const size_t rows = calm_outer_piece(vocab, width);
    size_t most = 0;
    /* Groups of 16 have the most scales of all types; products of groups of 32 may pack their operands. */
    for (int group = 16; group <= 32; group *= 2) {
        const calm_scheme scheme = {.bits = 8, .group = group, .symmetric = true, .scale_dtype = CALM_F16};
        calm_job_shape shape = calm_job_shape_of(&scheme, rows, width);
        shape.n_threads = n_threads;
        shape.operands = operands;
        most = calm_size_max(most, calm_algorithm_run_bytes(algorithm, &shape) +
                                       calm_algorithm_run_scratch_bytes(algorithm, &shape));
    }
    return CALM_BYTES(double, width * width) + CALM_BYTES(float, rows * width) + most;
}
