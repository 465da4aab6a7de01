/* The steps of find and pull. */
#include "ptq/hub/hub.h"

#include <errno.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/hub/cache.h"
#include "ptq/hub/fetch.h"

#define SPARE_BYTES ((int64_t)16 << 20)    /* disk space for folders, links and the file system's data */

/* ---- the cache ---- */

/* Returns the missing files, in ctx->out; NULL: none. */
static calm_status list_missing(calm_ctx *ctx, const char *repo_dir, const char *commit, bool tokenizer,
                                const char **out)
{
    CALM_SCOPED_TEXT(text);
    *out = NULL;
    CALM_TRY(calm_hub_missing(ctx, repo_dir, commit, tokenizer, &text));
    return text.length ? calm_strf(ctx, ctx->out, out, "%s", text.data) : CALM_OK;
}

calm_status calm_hub_find(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_hub_snapshot *out)
{
    char *repo_dir, *path;
    const char *weights;
    bool known;
    *out = (calm_hub_snapshot){.repo = name->repo, .revision = name->revision};
    CALM_TRY(calm_hub_repo_dir(ctx, settings, name, &repo_dir));
    CALM_TRY(calm_hub_ref_read(ctx, repo_dir, name->revision, out->commit, &known));
    if (!known)
        return CALM_OK;
    CALM_TRY(calm_hub_snapshot_dir(ctx, repo_dir, out->commit, &path));
    if (!calm_is_directory(path))
        return CALM_OK;
    out->path = path;
    CALM_TRY(list_missing(ctx, repo_dir, out->commit, false, &weights));
    CALM_TRY(list_missing(ctx, repo_dir, out->commit, true, &out->missing));
    out->usable = weights == NULL;
    return calm_hub_snapshot_files(ctx, path, &out->files, &out->n_files);
}

calm_status calm_hub_check_offline(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_snapshot *found)
{
    if (found->usable)
        return CALM_OK;
    if (!found->path)
        return calm_fail(ctx, CALM_ENOTFOUND,
                         "%s: revision %s is not in the cache (%s), and HF_HUB_OFFLINE is set: unset it to fetch the "
                         "model, or set HF_HUB_CACHE to where it is", found->repo, found->revision, settings->cache);
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "%s: the cache lacks %s (in %s), and HF_HUB_OFFLINE is set: unset it to fetch what is missing",
                     found->repo, found->missing, found->path);
}

/* ---- files to fetch ---- */

/* The files of a pull. */
typedef struct wanted {
    calm_hub_file **files;    /* [n] entries of the listing */
    size_t n;
} wanted;

static calm_status get_listing(calm_ctx *ctx, calm_hub_session *s, calm_hub_listing *listing)
{
    char *url, *revision, *where;
    CALM_SCOPED_TEXT(text);
    CALM_TRY(calm_hub_quote(ctx, s->name->revision, false, &revision));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &url, "%s/api/models/%s/revision/%s?blobs=true", s->settings->endpoint,
                       s->name->repo, revision));
    CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: the answer of %s", s->name->repo, s->settings->endpoint));
    CALM_TRY(calm_hub_get_text(ctx, s, url, s->name->repo, CALM_HUB_LISTING_MAX, &text));
    s->commit = listing->commit;
    return calm_hub_listing_parse(ctx, where, text.data ? text.data : "", text.length, listing);
}

/* Fetches one file into the snapshot. */
static calm_status bring(calm_ctx *ctx, calm_hub_session *s, calm_hub_file *file)
{
    if (!calm_hub_has_blob(ctx, s, file))
        CALM_TRY(calm_hub_fetch(ctx, s, file));
    return calm_hub_link(ctx, s->repo_dir, s->commit, file->name, file->etag);
}

/* Requests the sizes and etags that the listing lacks. */
static calm_status complete(calm_ctx *ctx, const calm_hub_session *s, calm_hub_file *file)
{
    return file->etag[0] && file->bytes >= 0 ? CALM_OK : calm_hub_get_metadata(ctx, s, file);
}

/* Adds the shards that the index names; the index is fetched first, since it says what else to fetch. */
static calm_status want_shards(calm_ctx *ctx, calm_hub_session *s, const calm_hub_listing *listing,
                               calm_hub_file *index, wanted *w)
{
    char *path, *text;
    const char **shards;
    size_t n_bytes, n_shards;
    CALM_TRY(complete(ctx, s, index));
    if (index->bytes > (int64_t)CALM_HUB_INDEX_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: %s has %lld bytes, expected at most %zu MiB", s->name->repo,
                         index->name, (long long)index->bytes, CALM_HUB_INDEX_MAX >> 20);
    CALM_TRY(bring(ctx, s, index));
    CALM_TRY(calm_hub_blob_path(ctx, s->repo_dir, index->etag, &path));
    CALM_TRY(calm_read_file(ctx, path, CALM_HUB_INDEX_MAX, &text, &n_bytes));
    CALM_TRY(calm_hub_index_shards(ctx, index->name, text, n_bytes, &shards, &n_shards));
    for (size_t i = 0; i < n_shards; i++) {
        calm_hub_file *file = calm_hub_listing_find(listing, shards[i]);
        if (!file)
            return calm_fail(ctx, CALM_EFORMAT, "%s: %s names %s, which the repository has not", s->name->repo,
                             index->name, shards[i]);
        w->files[w->n++] = file;
    }
    return CALM_OK;
}

static calm_status choose(calm_ctx *ctx, calm_hub_session *s, const calm_hub_listing *listing, wanted *w)
{
    calm_hub_file *index = calm_hub_listing_find(listing, CALM_HUB_INDEX);
    if (!calm_hub_listing_find(listing, "config.json"))
        return calm_fail(ctx, CALM_EUNSUPPORTED,
                         "%s: expected config.json in the repository, found none; calm reads checkpoints of the "
                         "transformers library", s->name->repo);
    CALM_TRY(calm_hub_listing_check_weights(ctx, s->name->repo, listing));
    CALM_TRY(CALM_NEW(ctx, ctx->out, w->files, 2 * listing->n_files + 1));
    for (size_t i = 0; i < listing->n_files; i++)
        if (calm_hub_is_wanted(listing->files[i].name))
            w->files[w->n++] = &listing->files[i];
    if (index) {
        w->files[w->n++] = index;
        CALM_TRY(want_shards(ctx, s, listing, index, w));
    } else {
        w->files[w->n++] = calm_hub_listing_find(listing, CALM_HUB_SINGLE);
    }
    for (size_t i = 0; i < w->n; i++)
        CALM_TRY(complete(ctx, s, w->files[i]));
    return CALM_OK;
}

/* ---- disk space ---- */

static calm_status check_room(calm_ctx *ctx, const calm_hub_session *s)
{
    double free_bytes;
    if (!calm_disk_free(s->settings->cache, &free_bytes))
        return calm_fail_errno(ctx, errno, "%s: cannot ask for free space", s->settings->cache);
    if (s->total_bytes == 0 || (double)(s->total_bytes + SPARE_BYTES) <= free_bytes)
        return CALM_OK;
    return calm_fail(ctx, CALM_ENOSPC,
                     "%s: %.2f GB are to be fetched, but %s has %.2f GB free; make room, or set HF_HUB_CACHE to "
                     "another disk", s->name->repo, (double)s->total_bytes / 1e9, s->settings->cache, free_bytes / 1e9);
}

/* Returns the bytes to download; files of the same content count once. */
static int64_t bytes_to_come(calm_ctx *ctx, const calm_hub_session *s, const wanted *w)
{
    int64_t total = 0;
    for (size_t i = 0; i < w->n; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = strcmp(w->files[i]->etag, w->files[j]->etag) == 0;
        if (!seen && w->files[i]->bytes > 0 && !calm_hub_has_blob(ctx, s, w->files[i]))
            total += w->files[i]->bytes - calm_hub_partial_bytes(ctx, s, w->files[i]);
    }
    return total;
}

/* ---- pull ---- */

static calm_status report(calm_ctx *ctx, const calm_hub_session *s, const wanted *w, calm_hub_snapshot *out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->files, w->n));
    for (size_t i = 0; i < w->n; i++) {
        out->files[i] = *w->files[i];
        out->files[i].bytes = out->files[i].bytes < 0 ? 0 : out->files[i].bytes;
    }
    calm_hub_files_sort(out->files, w->n);
    out->n_files = w->n;
    memcpy(out->commit, s->commit, CALM_HUB_COMMIT);
    CALM_TRY(calm_hub_snapshot_dir(ctx, s->repo_dir, s->commit, &out->path));
    CALM_TRY(list_missing(ctx, s->repo_dir, s->commit, true, &out->missing));
    out->usable = true;
    return CALM_OK;
}

static calm_status pull(calm_ctx *ctx, calm_hub_session *s, calm_tick_fn *tick, calm_hub_snapshot *out)
{
    calm_hub_listing listing;
    wanted w = {.n = 0};
    char known[CALM_HUB_COMMIT];
    bool is_known;
    CALM_TRY(get_listing(ctx, s, &listing));
    if (calm_hub_is_commit(s->name->revision) && strcmp(s->name->revision, listing.commit) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: asked for commit %s, the hub answered with %s; check HF_ENDPOINT",
                         s->name->repo, s->name->revision, listing.commit);
    CALM_TRY(calm_make_directories(ctx, s->repo_dir));
    CALM_TRY(calm_hub_tag_cache(ctx, s->settings->cache));
    CALM_TRY(choose(ctx, s, &listing, &w));
    s->done_bytes = 0;
    s->total_bytes = bytes_to_come(ctx, s, &w);
    CALM_TRY(check_room(ctx, s));
    s->tick = tick;    /* the total is known now */
    /* If the cache has a complete snapshot of the revision, the ref changes only after the new one is complete. */
    CALM_TRY(calm_hub_ref_read(ctx, s->repo_dir, s->name->revision, known, &is_known));
    if (!is_known)
        CALM_TRY(calm_hub_ref_write(ctx, s->repo_dir, s->name->revision, s->commit));
    for (size_t i = 0; i < w.n; i++) {
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(bring(ctx, s, w.files[i]));
    }
    /* Mark the absence, as huggingface_hub does, so that offline a missing tokenizer.json does not count as missing
     * from the cache. */
    for (const char *const *fixed = calm_hub_fixed_names(); *fixed; fixed++)
        if (!calm_hub_listing_find(&listing, *fixed))
            CALM_TRY(calm_hub_mark_absent(ctx, s->repo_dir, s->commit, *fixed));
    CALM_TRY(calm_hub_ref_write(ctx, s->repo_dir, s->name->revision, s->commit));
    return report(ctx, s, &w, out);
}

calm_status calm_hub_pull(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_tick_fn *tick, void *tick_user, calm_hub_snapshot *out)
{
    calm_hub_session s = {.settings = settings, .name = name, .tick_user = tick_user};
    if (settings->offline) {
        CALM_TRY(calm_hub_find(ctx, settings, name, out));
        return calm_hub_check_offline(ctx, settings, out);
    }
    *out = (calm_hub_snapshot){.repo = name->repo, .revision = name->revision};
    CALM_TRY(calm_hub_repo_dir(ctx, settings, name, &s.repo_dir));
    if (calm_http_open(ctx, settings, &s.http) == CALM_OK)
        pull(ctx, &s, tick, out);
    calm_http_close(s.http);
    return ctx->status;
}
