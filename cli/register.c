/* Rows of the store that a run stands on, and the keys of its candidates. */
#include "cli/pipeline.h"
#include "ptq/hybrid/key.h"
#include "ptq/model/arch.h"

static calm_status put_model(calm_ctx *ctx, calm_pipeline *p)
{
    const calm_config *config = calm_model_config(p->model);
    char text_digest[CALM_SHA256_HEX];
    const calm_store_model model = {.digest = p->model_key,
                                    .name = p->recipe->model.name,
                                    .path = p->recipe->model.dir,
                                    .architecture = config->arch->class_name,
                                    .dtype = calm_dtype_name(config->dtype),
                                    .n_params = (int64_t)calm_model_n_params(p->model),
                                    .n_blocks = (int64_t)config->n_blocks,
                                    .hidden_size = (int64_t)config->hidden,
                                    .vocab_size = (int64_t)config->vocab,
                                    .bytes = (int64_t)calm_model_bytes(p->model)};
    CALM_TRY(calm_store_model_id(ctx, p->store, &model, &p->model_id));
    CALM_TRY(calm_sha256_file(ctx, p->recipe->calib_path, text_digest));
    const calm_store_calibration calibration = {.key = p->calib_key,
                                                .text_name = p->recipe->calib_name,
                                                .text_digest = text_digest,
                                                .tokens_digest = p->calib.sha256,
                                                .n_windows = (int64_t)p->calib.n,
                                                .window_tokens = p->recipe->seqlen,
                                                .seed = p->recipe->seed,
                                                .n_tokens = (int64_t)p->calib.begin[p->calib.n],
                                                .score_windows = p->recipe->score_windows};
    return calm_store_calibration_id(ctx, p->store, &calibration, &p->calibration_id);
}

/* Module names of a job's linears, and the rows they have together. */
static void list_linears(const calm_config *config, const char *block, calm_job_kind job, calm_text *names,
                         size_t *rows, size_t *cols)
{
    *rows = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        size_t out;
        if (calm_role_job(role) != job)
            continue;
        calm_config_role_shape(config, role, &out, cols);
        calm_text_printf(names, "%s%s.%s", *rows ? " " : "", block, calm_role_module(role));
        *rows += out;
    }
}

static calm_status put_job(calm_ctx *ctx, calm_pipeline *p, size_t block, const char *block_name, int64_t block_id,
                           calm_job_kind job)
{
    static const char *const sublayers[CALM_N_SUBLAYERS] = {"attention", "mlp"};
    char *name, *hook, digest[CALM_SHA256_HEX];
    calm_text linears;
    size_t rows, cols = 0;
    CALM_TRY(calm_key_weights(ctx, p->model, block, job, digest));
    CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s.%s", block_name, calm_job_name(job)));
    CALM_TRY(calm_strf(ctx, ctx->out, &hook, "%s.%s", block_name, calm_hook_name(calm_job_input(job))));
    calm_text_init(&linears);
    list_linears(calm_model_config(p->model), block_name, job, &linears, &rows, &cols);
    const calm_store_job row = {.block_id = block_id,
                                .role = calm_job_name(job),
                                .position = job,
                                .name = name,
                                .sublayer = sublayers[calm_job_sublayer(job)],
                                .linears = linears.data,
                                .out = (int64_t)rows,
                                .in = (int64_t)cols,
                                .weights_digest = digest,
                                .input_hook = hook};
    const calm_status status = calm_store_job_id(ctx, p->store, &row, &p->job_ids[block * CALM_N_JOBS + job]);
    calm_text_clear(&linears);
    for (size_t a = 0; a < p->recipe->n_algorithms && status == CALM_OK; a++)
        CALM_TRY(calm_key_candidate(ctx, p->calib_key, block, job, digest,
                                    calm_algorithm_canonical(p->recipe->algorithms[a]), &p->recipe->scheme,
                                    calm_pipeline_candidate(p, block, job, a)->key));
    return status;
}

calm_status calm_pipeline_register(calm_ctx *ctx, calm_pipeline *p)
{
    CALM_TRY(put_model(ctx, p));
    for (size_t block = 0; block < calm_model_config(p->model)->n_blocks; block++) {
        char *name;
        int64_t id;
        CALM_TRY(calm_model_block_name(ctx, p->model, block, &name));
        CALM_TRY(
            calm_store_block_id(ctx, p->store, &(calm_store_block){p->model_id, (int64_t)block, name, "decoder"}, &id));
        for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
            CALM_TRY(put_job(ctx, p, block, name, id, job));
    }
    return CALM_OK;
}
