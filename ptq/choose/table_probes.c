/* Probes of tables: measures the float model with its embedding, its head, or both rounded, on calibration windows. */
#include "ptq/choose/choose_impl.h"
#include "ptq/state/outer_rows.h"

/* ---- a rounded table ---- */

/* widen of a calm_tensor_source for float16 values in memory. */
static calm_status widen(calm_ctx *ctx, const void *self, const calm_tensor *tensor, size_t first, size_t n, float *out)
{
    (void)self;
    return calm_to_f32(ctx, CALM_F16, tensor->data + first * sizeof(uint16_t), n, out);
}

/* release of a calm_tensor_source: does nothing, because the values are in memory, not in a mapping. */
static void keep(const void *self, const calm_tensor *tensor, size_t offset, size_t bytes)
{
    (void)self;
    (void)tensor;
    (void)offset;
    (void)bytes;
}

static const calm_tensor_source rounded = {.widen = widen, .release = keep};

/* Returns the model with a table rounded to a scheme, in ctx->out. */
static calm_status round_table(calm_ctx *ctx, const calm_run *p, calm_outer which, const calm_scheme *scheme,
                               const calm_model **out)
{
    const calm_tensor *table, *tables[2] = {NULL, NULL};
    calm_tensor own;
    uint16_t *values;
    CALM_TRY(calm_model_table(ctx, p->in.model, which == CALM_OUTER_HEAD, &table));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, values, table->n_elements));
    CALM_TRY(calm_outer_rows_round(ctx, &p->choosing->head, table, scheme, values));
    calm_safetensors_release(calm_model_tensors(p->in.model), table);
    own = *table;
    own.dtype = CALM_F32;
    own.data = (const uint8_t *)values;
    own.source = &rounded;
    tables[which] = &own;
    return calm_model_view(ctx, p->in.model, tables, out);
}

/* ---- its loss ---- */

calm_status calm_run_fit_head(calm_ctx *ctx, calm_run *p)
{
    CALM_SCOPED_OUT(ctx, p->arena);    /* probes and export share the statistics */
    return calm_outer_fit_collect(ctx, p->in.model, &p->in.calib, &p->choosing->head);
}

/* Computes the key of the evaluated model, which differs from the float model only in the table. */
static calm_status subject_key(calm_ctx *ctx, const calm_run *p, calm_outer which, const char *scheme,
                               char key[CALM_SHA256_HEX])
{
    const bool tied = calm_model_config(p->in.model)->tied;
    char fit[CALM_SHA256_HEX];
    calm_sha256 sha;
    if (p->choosing->head.algorithm)
        CALM_TRY(calm_outer_fit_key(ctx, &p->choosing->head, p->calib_key, fit));
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-table-1");
    calm_sha256_field(&sha, tied ? "both" : calm_outer_name(which));
    calm_sha256_field(&sha, scheme);
    if (p->choosing->head.algorithm)
        calm_sha256_field(&sha, fit);
    return calm_sha256_finish(ctx, &sha, key);
}

/* Measures the loss of a rounded table, or reads it from the store. */
static calm_status probe(calm_ctx *ctx, calm_run *p, calm_outer which, const calm_scheme *scheme,
                         const calm_windows *windows, double *loss)
{
    const bool tied = calm_model_config(p->in.model)->tied;
    char key[CALM_SHA256_HEX], *name;
    calm_measure found;
    int64_t id;
    CALM_SCOPED_RESULTS(ctx);
    *loss = 0;
    if (!scheme->bits)
        return CALM_OK;
    const char *scheme_name = CALM_SCHEME_NAME(scheme);
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s %s", tied ? "embedding and head" : calm_outer_name(which),
                       scheme_name));
    CALM_TRY(subject_key(ctx, p, which, scheme_name, key));
    CALM_TRY(calm_run_find_evaluation(ctx, p, key, windows, &found, &id));
    if (!id) {
        calm_subject subject = {.model = NULL};
        CALM_TRY(calm_run_fit_head(ctx, p));
        CALM_TRY(round_table(ctx, p, which, scheme, &subject.model));
        CALM_TRY(calm_run_measure(ctx, p, NULL, &subject, 1, &found, windows, NULL, NULL));
        CALM_TRY(calm_run_put_evaluation(ctx, p, key, name, p->in.recipe->calib_name, windows, &found, &id));
    }
    *loss = calm_measure_loss(&found);
    return CALM_OK;
}

/* Returns the table choice before `t` whose embedding, or head, has the same scheme; t: none has. */
static size_t same_before(const calm_file_budget *file, size_t t, calm_outer which)
{
    size_t k = 0;
    while (k < t && !calm_scheme_same(&file->outer[k].scheme[which], &file->outer[t].scheme[which]))
        k++;
    return k;
}

calm_status calm_run_file_probe(calm_ctx *ctx, calm_run *p)
{
    calm_file_budget *file = p->choosing->file;
    const bool tied = calm_model_config(p->in.model)->tied;
    calm_windows windows;
    double *losses[CALM_N_OUTERS];
    if (!file || file->pool.n_tables < 2)
        return CALM_OK;
    CALM_TRY(calm_windows_slice(ctx, &p->in.calib, 0, calm_inputs_probe_windows(&p->in), &windows));
    for (calm_outer which = 0; which < CALM_N_OUTERS; which++)
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, losses[which], file->pool.n_tables));
    for (size_t t = 0; t < file->pool.n_tables; t++) {
        file->tables[t].loss = 0;
        for (calm_outer which = 0; which < (tied ? 1 : CALM_N_OUTERS); which++) {
            const size_t same = same_before(file, t, which);
            if (same < t)
                losses[which][t] = losses[which][same];
            else
                CALM_TRY(probe(ctx, p, which, &file->outer[t].scheme[which], &windows, &losses[which][t]));
            file->tables[t].loss += losses[which][t];
        }
    }
    return CALM_OK;
}

size_t calm_run_file_probe_bytes(const calm_run *p)
{
    const calm_config *config = calm_model_config(p->in.model);
    if (!p->choosing->file || p->choosing->file->pool.n_tables < 2)
        return 0;
    return CALM_BYTES(uint16_t, config->vocab * config->hidden);
}

/* ---- the choice ---- */

calm_status calm_run_file_take(calm_ctx *ctx, calm_run *p, size_t table)
{
    calm_file_budget *file = p->choosing->file;
    calm_recipe *recipe;
    file->pool.table = table;
    file->pool.taken = true;
    if (file->pool.n_tables < 2)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->out, recipe, 1));
    *recipe = *p->in.recipe;    /* the caller's is const */
    recipe->formats.options.embed = &file->outer[table].scheme[CALM_OUTER_EMBEDDING];
    recipe->formats.options.head = &file->outer[table].scheme[CALM_OUTER_HEAD];
    p->in.recipe = p->result.recipe = recipe;
    if (file->tables[table].name)
        calm_log(ctx, CALM_LOG_INFO, "%s: %s, predicted KL %.2e", recipe->file_asked, file->tables[table].name,
                 file->tables[table].loss);
    return calm_run_keep_recipe(ctx, p);
}
