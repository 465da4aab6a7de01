/* The Hugging Face cache as it is on disk (huggingface_hub's layout; docs/hub.md shows it).  `repo_dir` is
 * CACHE/models--ORG--NAME. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/hub/listing.h"
#include "ptq/hub/settings.h"

/* Returns CACHE/models--ORG--NAME, in ctx->out. */
calm_status calm_hub_repo_dir(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                              calm_string_out out);

/* Return repo_dir/snapshots/COMMIT and repo_dir/blobs/ETAG, in ctx->out. */
calm_status calm_hub_snapshot_dir(calm_ctx *ctx, const char *repo_dir, const char *commit, calm_string_out out);
calm_status calm_hub_blob_path(calm_ctx *ctx, const char *repo_dir, const char *etag, calm_string_out out);

/* Returns the commit of a revision: the revision itself if it is a whole hash, else the content of refs/REVISION.
 * *known is false if the cache has neither.  CALM_EFORMAT: the file does not hold a commit. */
calm_status calm_hub_ref_read(calm_ctx *ctx, const char *repo_dir, const char *revision, char commit[CALM_HUB_COMMIT],
                              bool *known);

/* Writes the commit to refs/REVISION, unless the revision is a whole hash or the file already has this commit. */
calm_status calm_hub_ref_write(calm_ctx *ctx, const char *repo_dir, const char *revision, const char *commit);

/* Makes snapshots/COMMIT/NAME a relative link to blobs/ETAG; replaces an existing file in one step. */
calm_status calm_hub_link(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name, const char *etag);

/* Creates .no_exist/COMMIT/NAME, which says that the repository has no such file. */
calm_status calm_hub_mark_absent(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name);

/* Appends to `missing`, joined by ", ", the files that calm needs and a snapshot lacks: config.json, the weights (the
 * shards that the index names) and, with `tokenizer`, a tokenizer.json that is not known to be absent.  CALM_EFORMAT:
 * the index is malformed. */
calm_status calm_hub_missing(calm_ctx *ctx, const char *repo_dir, const char *commit, bool tokenizer,
                             calm_text *missing);

/* Lists the files of a snapshot that calm uses, sorted by name, in ctx->out; only `bytes` and `name` are set. */
calm_status calm_hub_snapshot_files(calm_ctx *ctx, const char *snapshot, calm_hub_file **out, size_t *n);

/* Takes the lock that huggingface_hub also takes to fetch a blob, CACHE/.locks/models--ORG--NAME/ETAG.lock; waits for
 * another process, and logs that.  *fd is -1 on file systems without locks; unlock allows -1.  CALM_EINTERRUPTED */
calm_status calm_hub_lock(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const char *etag, int *fd);
void calm_hub_unlock(int fd);

/* Writes CACHEDIR.TAG into the cache directory, so that backup programs skip it.  A directory that cannot be written is
 * not a failure. */
calm_status calm_hub_tag_cache(calm_ctx *ctx, const char *cache);
