/* A run's recipe becomes its calibration windows again.
 *
 * The store has no texts, but digests of the text and of the tokens that it gave.  The text is read as the run read
 * it, and the result must have the digest of the tokens: then it is the same windows, whatever happened to files in
 * between. */
#include "ptq/stored/stored_impl.h"

#include <string.h>
#include <sys/stat.h>

#include "ptq/recipe/resolve.h"
#include "ptq/state/inputs.h"

/* What the store knows of the windows of a run. */
typedef struct known {
    const char *text, *tokens;    /* digests; text NULL: unknown */
    int64_t n, n_tokens;
} known;

/* A run without calibration, or of an older store, has no digests to compare with. */
static calm_status read_known(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, known *out)
{
    static const char sql[] = "SELECT text_digest, tokens_digest, n_windows, n_tokens FROM calibration WHERE id = ?1";
    const calm_value id = calm_value_int(run->calibration_id);
    calm_value v[4];
    const calm_status status = calm_store_query_one(ctx, store, sql, &id, 1, v, 4);
    if (status == CALM_ENOTFOUND)
        calm_ctx_forgive(ctx);
    else
        CALM_TRY(status);
    if (status == CALM_ENOTFOUND || v[1].type != CALM_VALUE_TEXT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has no digest of its calibration windows",
                         calm_store_path(store), (long long)run->id);
    *out = (known){v[0].type == CALM_VALUE_TEXT ? v[0].text : NULL, v[1].text, v[2].integer, v[3].integer};
    return CALM_OK;
}

/* ---- the recipe ---- */

/* "calibration" as recipe files have it, from the resolved form: of runs without a file, as calm ablate's.
 * A bundled text is what a recipe without a text has. */
static calm_json *from_resolved(const calm_json *recipe)
{
    const calm_json *before = calm_json_get(recipe, "calibration"), *choice = calm_json_get(recipe, "choice");
    const calm_json *named = calm_json_get(before, "text");    /* or a list of several */
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

/* The part of the run's recipe that says which windows, as a separate recipe file: untrusted until it is checked.
 * Nothing else of the recipe matters, and it may be of an older version. */
static calm_json *calibration_document(const calm_stored_run *run)
{
    const calm_json *document = calm_json_get(run->recipe, "document");
    const calm_json *calibration = calm_json_get(document, "calibration");
    return CALM_OBJECT(
        CALM_KV("calm_recipe", (int64_t)CALM_RECIPE_VERSION), CALM_KV("model", "of the run"),
        CALM_KV("calibration", calibration ? calm_json_copy(calibration) : from_resolved(run->recipe)));
}

/* Checked like a file that was given, so that no value of the store reaches the reader of texts unchecked. */
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

/* *digest [CALM_SHA256_HEX]: of the text, or of several together, as they are now. */
static calm_status find_text(calm_ctx *ctx, const calm_stored_run *run, const known *want, const calm_recipe *recipe,
                             char *digest)
{
    const char *path = NULL;
    struct stat info;
    for (size_t i = 0; !path && i <= recipe->n_more_texts; i++)    /* an untrusted store may name a device */
        if (stat(calm_recipe_text(recipe, i), &info) != 0 || !S_ISREG(info.st_mode))
            path = calm_recipe_text(recipe, i);
    if (!path)
        return calm_recipe_text_digest(ctx, recipe, digest);
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "%s: expected the calibration text of run %lld (SHA-256 %s), found no such file; put it back%s",
                     path, (long long)run->id, want->text ? want->text : "unknown",
                     path[0] == '/' ? "" : ", or work in the folder that calm quantize worked in");
}

/* The stage of a run (calm_inputs_read_windows) over inputs that have a recipe, a model and a tokenizer alone; guard
 * windows are cut too, since they decide where calibration ends. */
static calm_status read_windows(calm_ctx *ctx, const calm_recipe *recipe, calm_model *model, calm_windows *out)
{
    calm_inputs in = {.recipe = recipe, .model = model};
    calm_status status = recipe->calib_is_token_ids ? CALM_OK : calm_inputs_open_tokenizer(ctx, &in);
    if (status == CALM_OK)
        status = calm_inputs_read_windows(ctx, &in);
    *out = in.calib;
    calm_tokenizer_close(in.tokenizer);    /* windows have ids, no texts */
    return status;
}

/* A text that is not the run's may well give no windows at all: then the other text is what to report, not what the
 * reader found in it. */
static calm_status blame_text(calm_ctx *ctx, const calm_stored_run *run, const known *want, const char *path,
                              const char *digest, calm_status status)
{
    char reason[CALM_MESSAGE_MAX];
    if ((status != CALM_EARG && status != CALM_EFORMAT) || !want->text || strcmp(want->text, digest) == 0)
        return status;
    memcpy(reason, ctx->message, sizeof reason);
    calm_ctx_forgive(ctx);
    return calm_fail(ctx, CALM_EMISMATCH,
                     "%s: expected the calibration text of run %lld (SHA-256 %s), found another (%s): %.400s; "
                     "put the run's back", path, (long long)run->id, want->text, digest, reason);
}

/* Other windows: of another text, or of the same text and another tokenizer.  The digest of the text says which,
 * and so what to put back. */
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
