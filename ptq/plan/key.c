/* Content keys. */
#include "ptq/plan/key.h"

#include <stdio.h>

#include "ptq/base/simd.h"
#include "ptq/tensor/linalg.h"

/* Numbers are hashed as decimal text, so that keys depend neither on the size of a type nor on byte order. */
static void field_number(calm_sha256 *sha, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    calm_sha256_field(sha, text);
}

/* Hashes name, dtype, shape and digest. */
static void field_tensor(calm_sha256 *sha, const calm_safetensors *set, const calm_tensor *tensor)
{
    calm_sha256_field(sha, tensor->name);
    calm_sha256_field(sha, calm_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->n_dims; i++)
        field_number(sha, tensor->shape[i]);
    calm_sha256_field(sha, calm_safetensors_digest(set, tensor));
}

calm_status calm_key_model(calm_ctx *ctx, const calm_model *model, char key[CALM_SHA256_HEX])
{
    const calm_safetensors *set = calm_model_tensors(model);
    CALM_SCOPED_TEXT(config);
    calm_sha256 sha;
    /* config.json is parsed and written on one line: white space changes no key, the order of members does. */
    CALM_TRY(calm_json_write(ctx, calm_model_json(model), 0, &config));
    CALM_TRY(calm_safetensors_hash(ctx, set));
    calm_sha256_init(&sha);
    /* Every kind of key begins with a name, so that keys of different kinds never collide. */
    calm_sha256_field(&sha, "calm-model-2");
    calm_sha256_field(&sha, config.data);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        field_tensor(&sha, set, calm_safetensors_at(set, i));
    /* The same codes and scales with other block sizes are other weights. */
    if (calm_model_published(model))
        calm_sha256_field(&sha, calm_model_published(model));
    return calm_sha256_finish(ctx, &sha, key);
}

/* Another order of sums, or another exp, changes the last bits. */
static void field_arithmetic(calm_sha256 *sha)
{
    calm_sha256_field(sha, calm_linalg_release());
    calm_sha256_field(sha, calm_linalg_kernels());
    calm_sha256_field(sha, calm_instructions());
}

calm_status calm_key_calibration(calm_ctx *ctx, const char *model_key, const calm_windows *windows,
                                 size_t score_windows, size_t score_tokens, size_t held_windows,
                                 char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-calibration");
    field_number(&sha, CALM_CAPTURE_REVISION);
    calm_sha256_field(&sha, model_key);
    calm_sha256_field(&sha, windows->sha256);
    field_number(&sha, score_windows);
    field_number(&sha, held_windows);
    field_arithmetic(&sha);
    if (score_tokens) {    /* without a limit the field is absent, which keeps the keys of older stores */
        calm_sha256_field(&sha, "scored tokens");
        field_number(&sha, score_tokens);
    }
    return calm_sha256_finish(ctx, &sha, key);
}

calm_status calm_key_weights(calm_ctx *ctx, const calm_model *model, const calm_job_ref *job, char key[CALM_SHA256_HEX])
{
    const calm_safetensors *set = calm_model_tensors(model);
    CALM_SCOPED_SCRATCH(ctx);
    calm_sha256 sha;
    calm_status status = CALM_OK;
    CALM_TRY(calm_safetensors_hash(ctx, set));
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-weights-2");
    /* A float checkpoint has MODULE.weight for every linear; a quantized one stores codes under other names. */
    for (size_t i = job->first; i < job->first + job->n && status == CALM_OK; i++) {
        const char *module = calm_model_layout(model)->linears[i].module;
        char *name;
        status = calm_strf(ctx, ctx->scratch, &name, "%s.weight", module);
        const calm_tensor *tensor = status == CALM_OK ? calm_safetensors_find(set, name) : NULL;
        if (tensor) {
            field_tensor(&sha, set, tensor);
        } else if (status == CALM_OK) {
            status = calm_fail(ctx, CALM_EUNSUPPORTED,
                               "%s: the checkpoint is quantized already; give calm the float model", module);
        }
    }
    calm_status finished = calm_sha256_finish(ctx, &sha, key);
    return status != CALM_OK ? status : finished;
}

calm_status calm_key_candidate(calm_ctx *ctx, const char *calibration_key, const calm_job_ref *job,
                               const char *weights_key, const char *chain, const calm_scheme *scheme,
                               const calm_key_expert *expert, char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    /* By the scheme's canonical name, so that a new member of calm_scheme does not change existing keys. */
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-candidate-1");
    calm_sha256_field(&sha, calibration_key);
    field_number(&sha, job->block);
    calm_sha256_field(&sha, job->role);
    calm_sha256_field(&sha, weights_key);
    calm_sha256_field(&sha, chain);
    calm_sha256_field(&sha, CALM_SCHEME_NAME(scheme));
    /* Candidates are fitted behind float blocks; another prefix would give another result. */
    calm_sha256_field(&sha, "prefix=float");
    /* Only keys of experts contain the handling of experts with few tokens, so changing it leaves dense jobs valid. */
    if (job->expert >= 0) {
        field_number(&sha, expert->least_tokens);
        calm_sha256_field(&sha, expert->fallback);
    }
    return calm_sha256_finish(ctx, &sha, key);
}

calm_status calm_key_learned(calm_ctx *ctx, const char *calibration_key, const char *learner, const char *prefix,
                             size_t block, const char *const *starts, size_t n, char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-learned");
    field_number(&sha, CALM_LEARNING_REVISION);
    calm_sha256_field(&sha, calibration_key);
    calm_sha256_field(&sha, learner);
    calm_sha256_field(&sha, prefix);
    field_number(&sha, block);
    for (size_t i = 0; i < n; i++)
        calm_sha256_field(&sha, starts[i]);
    return calm_sha256_finish(ctx, &sha, key);
}

calm_status calm_key_learned_job(calm_ctx *ctx, const char *learned_key, const calm_job_ref *job,
                                 char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-learned-job-1");
    calm_sha256_field(&sha, learned_key);
    calm_sha256_field(&sha, job->role);
    return calm_sha256_finish(ctx, &sha, key);
}

calm_status calm_key_evaluation(calm_ctx *ctx, const char *model_key, const char *subject, const calm_windows *windows,
                                char key[CALM_SHA256_HEX])
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    calm_sha256_field(&sha, "calm-evaluation");
    field_number(&sha, CALM_EVALUATION_REVISION);
    calm_sha256_field(&sha, model_key);
    calm_sha256_field(&sha, subject);
    calm_sha256_field(&sha, windows->sha256);
    field_arithmetic(&sha);
    return calm_sha256_finish(ctx, &sha, key);
}
