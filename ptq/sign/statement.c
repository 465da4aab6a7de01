/* The in-toto statement about the files of a folder: writes it, and compares it with the files. */
#include <stdlib.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/io/folder.h"
#include "ptq/sign/sign_impl.h"

#define STATEMENT_TYPE "https://in-toto.io/Statement/v1"
#define PREDICATE_TYPE "https://model_signing/signature/v1.0"

/* Files that a signature does not cover: those that model_signing ignores, too, and, when calm signs, the list of files
 * that calm wrote, which is not in a repository. */
static const char *const left_out[] = {".git", ".gitattributes", ".github", ".gitignore", CALM_OUTPUT_LIST};
#define N_LEFT_OUT (sizeof left_out / sizeof *left_out)
#define N_OF_GIT (N_LEFT_OUT - 1)

/* A file with its digest. */
typedef struct item {
    const char *name, *path;
    size_t bytes;
    char digest[CALM_SHA256_HEX];
} item;

/* Is `name` the path or below it? */
static bool is_below(const char *name, const char *path)
{
    const size_t n = strlen(path);
    return n && strncmp(name, path, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

/* Returns the name of the signature below `dir`; "" if it is elsewhere. */
static calm_status signature_name(calm_ctx *ctx, const char *dir, const char *signature, const char **out)
{
    char *parent;
    calm_status status = CALM_OK;
    *out = "";
    CALM_TRY(calm_path_parent(ctx, signature, &parent));
    char *here = realpath(dir, NULL), *there = realpath(parent, NULL);
    if (here && there && is_below(there, here)) {
        const char *below = there + strlen(here);
        char *name;
        status = calm_strf(ctx, ctx->out, &name, "%s%s%s", *below ? below + 1 : "", *below ? "/" : "",
                           calm_path_name(signature));
        *out = status == CALM_OK ? name : "";
    }
    free(here);
    free(there);
    return status;
}

/* ---- digests ---- */

typedef struct digests {
    item *items;             /* [n] */
    size_t n, total, done;
    calm_tick_fn *tick;
    void *user;
} digests;

/* Lists the files below `dir` except `ignored` [n_ignored], with digests. */
static calm_status take_digests(calm_ctx *ctx, const char *dir, const char *const *ignored, size_t n_ignored,
                                digests *d)
{
    calm_folder_file *files;
    size_t n;
    CALM_TRY(calm_folder_files(ctx, dir, CALM_FOLDER_HIDDEN | CALM_FOLDER_NO_LINKS, &files, &n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, d->items, n + 1));
    for (size_t i = 0; i < n; i++) {
        bool is_ignored = false;
        for (size_t k = 0; k < n_ignored; k++)
            is_ignored |= is_below(files[i].name, ignored[k]);
        if (is_ignored)
            continue;
        d->items[d->n++] = (item){.name = files[i].name, .path = files[i].path, .bytes = files[i].bytes};
        d->total += files[i].bytes;
    }
    for (size_t i = 0; i < d->n; i++) {
        CALM_TRY(calm_sha256_file(ctx, d->items[i].path, d->items[i].digest));
        d->done += d->items[i].bytes;
        if (d->tick)
            d->tick(d->user, d->done, d->total);
    }
    return CALM_OK;
}

/* Decodes a digest; false: it is not 64 hexadecimal digits. */
static bool bytes_of(const char *hex, unsigned char out[CALM_SHA256_HEX / 2])
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(hex) != CALM_SHA256_HEX - 1)
        return false;
    for (size_t i = 0; i < CALM_SHA256_HEX / 2; i++) {
        const char *high = strchr(digits, hex[2 * i]), *low = strchr(digits, hex[2 * i + 1]);
        if (!high || !low)
            return false;
        out[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}

/* Computes the SHA-256 over the digests of all items. */
static calm_status sum_of(calm_ctx *ctx, const item *items, size_t n, char root[CALM_SHA256_HEX])
{
    calm_sha256 all;
    calm_sha256_init(&all);
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[CALM_SHA256_HEX / 2];
        if (bytes_of(items[i].digest, bytes))
            calm_sha256_update(&all, bytes, sizeof bytes);
    }
    return calm_sha256_finish(ctx, &all, root);
}

/* ---- writing ---- */

static calm_json *subjects_of(const char *dir, const char *root)
{
    char *whole = realpath(dir, NULL);
    calm_json *subjects = calm_json_new_array();
    calm_json_add(subjects, CALM_OBJECT(CALM_KV("name", calm_path_name(whole ? whole : dir)),
                                        CALM_KV("digest", CALM_OBJECT(CALM_KV("sha256", root)))));
    free(whole);
    return subjects;
}

static calm_json *serialization_of(const char *const *ignored, size_t n)
{
    calm_json *paths = calm_json_new_array();
    for (size_t i = 0; i < n; i++)
        if (ignored[i][0])
            calm_json_add_string(paths, ignored[i]);
    return CALM_OBJECT(CALM_KV("method", "files"), CALM_KV("hash_type", "sha256"),
                       CALM_KV("allow_symlinks", (bool)false), CALM_KV("ignore_paths", paths));
}

static calm_json *resources_of(const digests *d)
{
    calm_json *list = calm_json_new_array();
    for (size_t i = 0; i < d->n; i++)
        calm_json_add(list, CALM_OBJECT(CALM_KV("name", d->items[i].name), CALM_KV("algorithm", "sha256"),
                                        CALM_KV("digest", (const char *)d->items[i].digest)));
    return list;
}

calm_status calm_sign_statement(calm_ctx *ctx, const char *dir, const char *signature, calm_tick_fn *tick,
                                void *tick_user, size_t *n_files, calm_json **out)
{
    digests d = {.tick = tick, .user = tick_user};
    const char *ignored[N_LEFT_OUT + 1];
    char root[CALM_SHA256_HEX];
    memcpy(ignored, left_out, sizeof left_out);
    CALM_TRY(signature_name(ctx, dir, signature, &ignored[N_LEFT_OUT]));
    CALM_TRY(take_digests(ctx, dir, ignored, N_LEFT_OUT + 1, &d));
    if (!d.n)
        return calm_fail(ctx, CALM_EARG, "%s: no files here; expected the directory of a model", dir);
    CALM_TRY(sum_of(ctx, d.items, d.n, root));
    *n_files = d.n;
    *out = CALM_OBJECT(CALM_KV("_type", STATEMENT_TYPE), CALM_KV("subject", subjects_of(dir, root)),
                       CALM_KV("predicateType", PREDICATE_TYPE),
                       CALM_KV("predicate", CALM_OBJECT(
                           CALM_KV("serialization", serialization_of(ignored, N_LEFT_OUT + 1)),
                           CALM_KV("resources", resources_of(&d)))));
    return CALM_OK;
}

/* ---- comparing ---- */

static calm_status read_resource(calm_ctx *ctx, const char *where, const calm_json *resource, item *out)
{
    const char *algorithm, *digest;
    unsigned char bytes[CALM_SHA256_HEX / 2];
    CALM_TRY(calm_json_need_string(ctx, where, resource, "name", NULL, &out->name));
    CALM_TRY(calm_json_need_string(ctx, where, resource, "algorithm", NULL, &algorithm));
    CALM_TRY(calm_json_need_string(ctx, where, resource, "digest", NULL, &digest));
    if (strcmp(algorithm, "sha256") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: %s has a digest by %s; calm knows sha256", where, out->name,
                         algorithm);
    if (!bytes_of(digest, bytes))
        return calm_fail(ctx, CALM_EFORMAT, "%s: the digest of %s is no SHA-256 in hexadecimal", where, out->name);
    memcpy(out->digest, digest, CALM_SHA256_HEX);
    return CALM_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->name, ((const item *)b)->name);
}

/* Lists the files of a statement, by name; texts point into it.  Its subject must be the digest over them. */
static calm_status read_statement(calm_ctx *ctx, const char *where, const calm_json *statement, item **out, size_t *n)
{
    const calm_json *predicate = calm_json_get(statement, "predicate");
    const calm_json *resources = calm_json_get(predicate, "resources");
    const calm_json *subject = calm_json_at(calm_json_get(statement, "subject"), 0);
    const char *expected = calm_json_string(calm_json_get(calm_json_get(subject, "digest"), "sha256"), "");
    const char *type = calm_json_string(calm_json_get(statement, "predicateType"), "");
    const char *method = calm_json_string(calm_json_get(calm_json_get(predicate, "serialization"), "method"), "");
    char root[CALM_SHA256_HEX];
    if (strcmp(type, PREDICATE_TYPE) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the predicate is \"%s\", expected %s", where, type, PREDICATE_TYPE);
    if (strcmp(method, "files") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: digests of \"%s\"; calm knows those of whole files", where,
                         method);
    CALM_TRY(calm_json_expect(ctx, resources, CALM_JSON_ARRAY, "%s: predicate.resources", where));
    *n = calm_json_size(resources);
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n ? *n : 1));
    for (size_t i = 0; i < *n; i++)
        CALM_TRY(read_resource(ctx, where, calm_json_at(resources, i), *out + i));
    CALM_TRY(sum_of(ctx, *out, *n, root));
    if (strcmp(root, expected) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: the digest over all files is %s, the subject says %s", where, root,
                         expected);
    qsort(*out, *n, sizeof **out, by_name);
    for (size_t i = 1; i < *n; i++)
        if (strcmp((*out)[i - 1].name, (*out)[i].name) == 0)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s is signed twice", where, (*out)[i].name);
    return CALM_OK;
}

/* Lists the files to ignore: those that the signer did not cover, git's files, and the signature. */
static calm_status ignored_of(calm_ctx *ctx, const char *dir, const char *signature, const calm_json *statement,
                              const char ***out, size_t *n)
{
    const calm_json *paths = calm_json_get(
        calm_json_get(calm_json_get(statement, "predicate"), "serialization"), "ignore_paths");
    const size_t n_paths = calm_json_size(paths);
    *n = N_OF_GIT + 1 + n_paths;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, *n));
    memcpy(*out, left_out, N_OF_GIT * sizeof *left_out);
    CALM_TRY(signature_name(ctx, dir, signature, *out + N_OF_GIT));
    for (size_t i = 0; i < n_paths; i++)
        (*out)[N_OF_GIT + 1 + i] = calm_json_string(calm_json_at(paths, i), "");
    return CALM_OK;
}

/* Compares two lists sorted by name; a file without an equal entry in the other list differs. */
static void compare(const item *signed_, size_t n_signed, const item *found, size_t n_found, calm_sign_check *out)
{
    size_t i = 0, j = 0;
    while (i < n_signed || j < n_found) {
        const int order = i == n_signed ? 1 : j == n_found ? -1 : strcmp(signed_[i].name, found[j].name);
        const char *expected = order <= 0 ? signed_[i].digest : NULL, *now = order >= 0 ? found[j].digest : NULL;
        if (order != 0 || strcmp(expected, now) != 0)
            out->differences[out->n++] = (calm_sign_difference){
                .name = order <= 0 ? signed_[i].name : found[j].name, .expected = expected, .found = now};
        i += order <= 0;
        j += order >= 0;
        out->n_files++;
    }
}

calm_status calm_sign_compare(calm_ctx *ctx, const char *dir, const char *signature, const calm_json *statement,
                              calm_tick_fn *tick, void *tick_user, calm_sign_check *out)
{
    digests d = {.tick = tick, .user = tick_user};
    item *expected;
    const char **ignored;
    size_t n = 0, n_ignored;
    CALM_TRY(read_statement(ctx, signature, statement, &expected, &n));
    CALM_TRY(ignored_of(ctx, dir, signature, statement, &ignored, &n_ignored));
    CALM_TRY(take_digests(ctx, dir, ignored, n_ignored, &d));
    *out = (calm_sign_check){0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->differences, n + d.n + 1));
    compare(expected, n, d.items, d.n, out);
    return CALM_OK;
}
