/* Locks: writes, reads and checks them.
 *
 * A lock is read by users and by `calm verify`, on other machines and with later versions, so it is untrusted: every
 * part is checked before a run is started from it. */
#include "ptq/lock/lock.h"

#include <stdio.h>
#include <string.h>

#include "ptq/state/environment.h"
#include "ptq/recipe/document.h"
#include "ptq/base/file.h"

/* ---- the path of a lock ---- */

/* A word with a slash, or one that exists as a file, is a path; other words are shipped recipes, next to which nothing
 * is written. */
calm_status calm_lock_path(calm_ctx *ctx, const char *recipe_file, const char *output, const char **path)
{
    const bool by_path = recipe_file && strcmp(calm_path_name(recipe_file), "calm_recipe.json") != 0 &&
                         (strchr(recipe_file, '/') || calm_path_exists(recipe_file));
    const char *stem = by_path ? recipe_file : output;
    size_t length = strlen(stem);
    if (by_path && length > 5 && calm_text_ends_with(stem, ".json"))    /* a.json: a.lock.json */
        length -= 5;
    while (!by_path && length > 1 && stem[length - 1] == '/')    /* out/: out.lock.json */
        length--;
    return calm_strf(ctx, ctx->out, path, "%.*s.lock.json", (int)length, stem);
}

/* ---- parts of a run ---- */

/* Returns the choice of each job, "ALGORITHM SCHEME" or "float", so that a lock that differs in bytes shows which
 * choice differs. */
static calm_status plan_json(calm_ctx *ctx, const calm_result *r, calm_json *plan)
{
    const calm_layout *layout = r->layout;
    for (size_t job = r->first_job; job < r->end_job; job++) {
        const calm_plan_job *chosen = &r->plan.jobs[job];
        char *text;
        const char *name = chosen->quantized ? chosen->entry_name : "float";
        const char *scheme = CALM_SCHEME_NAME(&chosen->scheme);
        const bool complete = !chosen->quantized || strstr(name, scheme);    /* with several schemes the name has it */
        CALM_TRY(calm_strf(ctx, ctx->scratch, &text, "%s%s%s", name, complete ? "" : " ", complete ? "" : scheme));
        calm_json_set_string(plan, layout->jobs[job].name, text);
    }
    return CALM_OK;
}

/* Returns the figures with all digits, because they are compared bit by bit. */
static calm_json *result_json(const calm_result *r)
{
    const calm_embedding_result *embeddings = &r->eval_result.embeddings;
    const calm_eval_result *predictions = &r->eval_result.predictions;
    calm_json *result = CALM_OBJECT(CALM_KV("name", r->name), CALM_KV("bits_per_weight", r->bits_per_weight),
                                    CALM_KV("bytes_before", r->bytes_before), CALM_KV("bytes_after", r->bytes_after));
    if (!r->evaluates)
        return result;
    if (r->eval_result.kind == CALM_STORE_EMBEDDINGS)
        return CALM_EXTEND(result, CALM_KV("error", embeddings->error), CALM_KV("cosine", embeddings->cosine),
                           CALM_KV("cosine_min", embeddings->cosine_min), CALM_KV("spearman", embeddings->spearman));
    return CALM_EXTEND(result, CALM_KV("ppl_float", r->eval_float.predictions.ppl), CALM_KV("ppl", predictions->ppl),
                       CALM_KV("kl", predictions->kl), CALM_KV("top1", predictions->top1));
}

/* Adds the digests of token windows to the inputs.  Unlike the files they are known only after a run has read its
 * texts. */
static void add_windows(const calm_result *r, calm_json *inputs)
{
    calm_json_set(inputs, "windows",
                  CALM_OBJECT(CALM_KV("calibration", r->calib.sha256),
                              CALM_KV("guard", r->guard.n ? calm_json_of_string(r->guard.sha256) : NULL),
                              CALM_KV("evaluation", r->evaluates ? calm_json_of_string(r->eval.sha256) : NULL)));
}

calm_status calm_lock_new(calm_ctx *ctx, const calm_result *r, const calm_json *document, calm_json *inputs,
                          calm_json **out)
{
    CALM_SCOPED_JSON(root);
    calm_json *plan = calm_json_new_object(), *environment = NULL, *outputs;
    *out = NULL;
    add_windows(r, inputs);
    calm_status status = plan_json(ctx, r, plan);
    if (status == CALM_OK)
        status = calm_environment_json(ctx, &environment);
    /* Members in the order for readers; `inputs` is set even after a failure, so that freeing `root` frees all. */
    root = CALM_OBJECT(CALM_KV("calm_lock", (int64_t)CALM_LOCK_VERSION), CALM_KV("recipe", calm_json_copy(document)),
                       CALM_KV("resolved", calm_recipe_json(r->recipe)), CALM_KV("environment", environment),
                       CALM_KV("inputs", inputs), CALM_KV("plan", plan));
    CALM_TRY(status);
    CALM_TRY(calm_lock_outputs(ctx, r->recipe->output, r->files, r->n_files, &outputs));
    *out = CALM_EXTEND(root, CALM_KV("outputs", outputs), CALM_KV("result", result_json(r)));
    root = NULL;    /* *out owns it */
    return CALM_OK;
}

/* ---- files ---- */

/* Writes via one temporary name, so that the next run overwrites what a killed run left; calm_json_save would leave a
 * file per process. */
static calm_status write_text(calm_ctx *ctx, const char *path, const calm_text *text)
{
    calm_writer writer;
    calm_new_file file;
    CALM_TRY(calm_new_file_begin(ctx, path, ".tmp", &file));
    CALM_TRY(calm_writer_open(ctx, &writer, file.temporary));
    calm_writer_put(ctx, &writer, text->data, text->length);
    calm_writer_close(ctx, &writer);
    return calm_new_file_end(ctx, &file);
}

/* Creates the folder of the lock, next to the output, if it does not exist. */
calm_status calm_lock_write(calm_ctx *ctx, const calm_json *lock, const char *path)
{
    CALM_SCOPED_TEXT(text);
    CALM_TRY(calm_make_parent(ctx, path));
    CALM_TRY(calm_json_write(ctx, lock, 2, &text));
    calm_text_append(&text, "\n", 1);
    CALM_TRY(calm_text_check(ctx, &text));
    return write_text(ctx, path, &text);
}

/* Checks that every member of an object is a digest, because digests are printed in messages and compared as texts. */
static calm_status check_digests(calm_ctx *ctx, const char *path, const calm_json *lock, const char *part,
                                 const char *member)
{
    const calm_json *digests = calm_json_get(calm_json_get(lock, part), member), *value;
    const char *key;
    if (calm_json_typeof(digests) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: /%s/%s: expected an object of digests; the lock is damaged", path,
                         part, member);
    for (void *iter = NULL; calm_json_next(digests, &iter, &key, &value);) {
        const char *text = calm_json_string(value, "");
        if (!calm_is_hex(text, CALM_SHA256_HEX - 1))
            return calm_fail(ctx, CALM_EFORMAT, "%s: /%s/%s/%.200s: expected a SHA-256 of 64 digits", path, part,
                             member, key);
    }
    return CALM_OK;
}

/* Checks the version first, because a newer lock may have other parts without being damaged, and the recipe last, as a
 * document. */
static calm_status check(calm_ctx *ctx, const char *path, const calm_json *lock)
{
    static const char *const digests[][2] = {{"inputs", "files"},  {"inputs", "tensors"},  {"inputs", "texts"},
                                             {"inputs", "windows"}, {"outputs", "files"}, {"outputs", "tensors"}};
    static const char *const objects[] = {"recipe", "environment", "plan", "result"};
    char *where;
    const calm_json *version = calm_json_get(lock, "calm_lock");
    if (calm_json_typeof(version) != CALM_JSON_INT || calm_json_int(version, 0) < 1)
        return calm_fail(ctx, CALM_EFORMAT, "%s: not a lock of calm: it has no \"calm_lock\": %d", path,
                         CALM_LOCK_VERSION);
    if (calm_json_int(version, 0) > CALM_LOCK_VERSION)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: written by a newer calm: lock version %lld, this program knows "
                                                 "versions up to %d", path, (long long)calm_json_int(version, 0),
                         CALM_LOCK_VERSION);
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        if (calm_json_typeof(calm_json_get(lock, objects[i])) != CALM_JSON_OBJECT)
            return calm_fail(ctx, CALM_EFORMAT, "%s: /%s: expected an object; the lock is damaged", path, objects[i]);
    for (size_t i = 0; i < sizeof digests / sizeof *digests; i++)
        CALM_TRY(check_digests(ctx, path, lock, digests[i][0], digests[i][1]));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: in /recipe", path));
    return calm_document_check(ctx, where, calm_json_get(lock, "recipe"));
}

/* Returns member `name` of an object in the lock; creates it if it is missing. */
static calm_json *section(calm_json *of, const char *name)
{
    if (!calm_json_get(of, name))
        calm_json_set(of, name, calm_json_new_object());
    return (calm_json *)calm_json_get(of, name);
}

/* Sets the dtype that a recipe without one means: float32. */
static void name_operands(calm_json *lock)
{
    calm_json *calibration = section(section(lock, "recipe"), "calibration");
    if (!calm_json_get(calibration, "dtype"))
        calm_json_set_string(calibration, "dtype", "f32");
}

void calm_lock_apply_dtype(const calm_json *lock, calm_recipe_spec *spec)
{
    const calm_json *calibration = calm_json_get(calm_json_get(lock, "recipe"), "calibration");
    const char *name = calm_json_string(calm_json_get(calibration, "dtype"), "");
    if (spec->calib_dtype == CALM_SPEC_OPERANDS_AUTO)
        spec->calib_dtype = calm_option_value_index(CALM_OPERANDS_NAMES "|auto", name);
}

calm_status calm_lock_read(calm_ctx *ctx, const char *path, calm_json **out)
{
    CALM_SCOPED_JSON(lock);
    *out = NULL;
    CALM_TRY(calm_json_read(ctx, path, CALM_LOCK_BYTES, &lock));
    CALM_TRY(check(ctx, path, lock));
    name_operands(lock);
    *out = lock;
    lock = NULL;
    return CALM_OK;
}

const char *calm_lock_kernels(const calm_json *lock)
{
    return calm_json_string(calm_json_get(calm_json_get(lock, "environment"), "kernels"), NULL);
}
