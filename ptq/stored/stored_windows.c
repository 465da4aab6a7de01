/* Reads the calibration windows of a stored run again.
 *
 * The store has no texts, but the digests of the text and of its tokens.  The text is read as the run read it, and the
 * tokens must have the stored digest: then the windows are the same, even if files have changed. */
#include "ptq/stored/stored_impl.h"

#include <string.h>
#include <sys/stat.h>

#include "ptq/recipe/resolve.h"
#include "ptq/state/inputs.h"

/* The stored facts about the windows of a run. */
typedef struct known {
    const char *text, *tokens;    /* SHA-256 digests; text NULL: unknown */
    int64_t n, n_tokens;
} known;

/* Reads the digests; a run without calibration, or in an older store, has none to compare with. */
static calm_status read_known(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, known *out)
{
    static const char sql[] = "SELECT text_digest, tokens_digest, n_windows, n_tokens FROM calibration WHERE id = ?1";
    const calm_value id = calm_value_int(run->calibration_id);
    calm_value v[4];
    const calm_status status = calm_store_query_one(ctx, store, sql, &id, 1, v, 4);
    if (status == CALM_ENOTFOUND)
        calm_ctx_clear_failure(ctx);
    else
        CALM_TRY(status);
    if (status == CALM_ENOTFOUND || v[1].type != CALM_VALUE_TEXT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has no digest of its calibration windows",
                         calm_store_path(store), (long long)run->id);
    *out = (known){v[0].type == CALM_VALUE_TEXT ? v[0].text : NULL, v[1].text, v[2].integer, v[3].integer};
    return CALM_OK;
}

/* ---- the recipe ---- */

/* Builds "calibration" of a recipe file from the resolved recipe, for runs without a file, such as calm ablate's.  A
 * bundled text is left out, because it is the default. */
static calm_json *from_resolved(const calm_json *recipe)
{
    const calm_json *before = calm_json_get(recipe, "calibration"), *choice = calm_json_get(recipe, "choice");
    const calm_json *named = calm_json_get(before, "text");    /* a text, or a list of several */
    const char *text = calm_json_string(named, "");
    const int64_t seed = calm_json_int(calm_json_get(before, "seed"), -1);
    const bool bundled = strncmp(text, CALM_BUNDLED, strlen(CALM_BUNDLED)) == 0;
    return CALM_OBJECT(CALM_KV("text", bundled || !named ? NULL : calm_json_copy(named)),
                       CALM_KV("samples", calm_json_int(calm_json_get(before, "samples"), 0)),
                       CALM_KV("seqlen", calm_json_int(calm_json_get(before, "seqlen"), 0)),
                       CALM_KV("seed", seed < 0 ? NULL : calm_json_of_int(seed)),
                       CALM_KV("special", calm_json_bool(calm_json_get(before, "special"), false)),
                       CALM_KV("stream", calm_json_bool(calm_json_get(before, "stream"), false)),
                       CALM_KV("guard_samples", calm_json_int(calm_json_get(choice, "guard_windows"), 0)));
}

/* Builds a recipe file with only the part of the run's recipe that determines the windows, because other parts may be
 * of an older version.  It is untrusted until it is checked. */
static calm_json *calibration_document(const calm_stored_run *run)
{
    const calm_json *document = calm_json_get(run->recipe, "document");
    const calm_json *calibration = calm_json_get(document, "calibration");
    return CALM_OBJECT(
        CALM_KV("calm_recipe", (int64_t)CALM_RECIPE_VERSION), CALM_KV("model", "of the run"),
        CALM_KV("calibration", calibration ? calm_json_copy(calibration) : from_resolved(run->recipe)));
}

/* Checks it like a user's file, so that no unchecked value of the store reaches the reader of texts. */
static calm_status restore_spec(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, calm_recipe_spec *out)
{
    char *where;
    CALM_TRY(calm_strf(ctx, ctx->out, &where, "%s: recipe of run %lld", calm_store_path(store), (long long)run->id));
    CALM_TRY(calm_spec_init(ctx, out));
    CALM_SCOPED_JSON(document);
    document = calibration_document(run);
    CALM_TRY(calm_document_check(ctx, where, document));
    return calm_spec_read(ctx, document, where, out);
}

/* ---- the windows ---- */

/* Computes *digest [CALM_SHA256_HEX] of the present text, or of several texts together. */
static calm_status find_text(calm_ctx *ctx, const calm_stored_run *run, const known *want, const calm_recipe *recipe,
                             char *digest)
{
    const char *path = NULL;
    struct stat info;
    for (size_t i = 0; !path && i <= recipe->n_more_texts; i++)    /* an untrusted store may name a device file */
        if (stat(calm_recipe_text(recipe, i), &info) != 0 || !S_ISREG(info.st_mode))
            path = calm_recipe_text(recipe, i);
    if (!path)
        return calm_recipe_text_digest(ctx, recipe, digest);
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "%s: expected the calibration text of run %lld (SHA-256 %s), found no such file; put it back%s",
                     path, (long long)run->id, want->text ? want->text : "unknown",
                     path[0] == '/' ? "" : ", or work in the folder that calm quantize worked in");
}

/* Reads windows as a run does (calm_inputs_read_windows), with inputs that have only a recipe, a model and a tokenizer;
 * guard windows are read too, because they decide where calibration ends. */
static calm_status read_windows(calm_ctx *ctx, const calm_recipe *recipe, calm_model *model, calm_windows *out)
{
    calm_inputs in = {.recipe = recipe, .model = model};
    calm_status status = recipe->calib_is_token_ids ? CALM_OK : calm_inputs_open_tokenizer(ctx, &in);
    if (status == CALM_OK)
        status = calm_inputs_read_windows(ctx, &in);
    *out = in.calib;
    calm_tokenizer_close(in.tokenizer);    /* windows contain ids, no texts */
    return status;
}

/* Reports that the text has changed, if it has, instead of the failure of reading it: another text may give no windows
 * at all. */
static calm_status blame_text(calm_ctx *ctx, const calm_stored_run *run, const known *want, const char *path,
                              const char *digest, calm_status status)
{
    char reason[CALM_MESSAGE_MAX];
    if ((status != CALM_EARG && status != CALM_EFORMAT) || !want->text || strcmp(want->text, digest) == 0)
        return status;
    memcpy(reason, ctx->message, sizeof reason);
    calm_ctx_clear_failure(ctx);
    return calm_fail(ctx, CALM_EMISMATCH,
                     "%s: expected the calibration text of run %lld (SHA-256 %s), found another (%s): %.400s; "
                     "put the run's back", path, (long long)run->id, want->text, digest, reason);
}

/* Fails if the windows differ: because of another text, or of the same text and another tokenizer, as the text's digest
 * shows. */
static calm_status check_windows(calm_ctx *ctx, const calm_stored_run *run, const known *want,
                                 const calm_recipe *recipe, const char *digest, const calm_windows *found)
{
    char *remedy;
    if (strcmp(found->sha256, want->tokens) == 0 && (int64_t)found->n == want->n &&
        (int64_t)found->begin[found->n] == want->n_tokens)
        return CALM_OK;
    if (want->text && strcmp(want->text, digest) == 0)
        CALM_TRY(calm_strf(ctx, ctx->scratch, &remedy, "the text is the run's, so put back the tokenizer.json in %s",
                           recipe->model.dir));
    else
        CALM_TRY(calm_strf(ctx, ctx->scratch, &remedy, "put back the text of SHA-256 %s (this one has %s)",
                           want->text ? want->text : "unknown", digest));
    return calm_fail(ctx, CALM_EMISMATCH,
                     "%s: expected the calibration windows of run %lld (%lld, together %lld tokens, digest %s), "
                     "found %zu, together %zu tokens, digest %s; %s", recipe->calib_name, (long long)run->id,
                     (long long)want->n, (long long)want->n_tokens, want->tokens, found->n, found->begin[found->n],
                     found->sha256, remedy);
}

calm_status calm_stored_run_windows(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, calm_model *model,
                                const char *model_dir, calm_windows *out)
{
    calm_recipe_spec spec;
    calm_recipe recipe = {.model.dir = model_dir};
    char digest[CALM_SHA256_HEX];
    known want = {0};
    CALM_TRY(read_known(ctx, store, run, &want));
    CALM_TRY(restore_spec(ctx, store, run, &spec));
    CALM_TRY(calm_recipe_calibration(ctx, &spec, &recipe));
    CALM_TRY(find_text(ctx, run, &want, &recipe, digest));
    const calm_status status = read_windows(ctx, &recipe, model, out);
    if (status != CALM_OK)
        return blame_text(ctx, run, &want, recipe.calib_name, digest, status);
    return check_windows(ctx, run, &want, &recipe, digest, out);
}
