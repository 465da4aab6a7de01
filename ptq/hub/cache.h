/* The Hugging Face cache as it is on disk (huggingface_hub's layout; docs/hub.md shows it).  `repo_dir` is
 * CACHE/models--ORG--NAME. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/hub/listing.h"
#include "ptq/hub/settings.h"

/* CACHE/models--ORG--NAME, in ctx->out. */
calm_status calm_hub_repo_dir(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                              calm_string_out out);

/* repo_dir/snapshots/COMMIT and repo_dir/blobs/ETAG, in ctx->out. */
calm_status calm_hub_snapshot_dir(calm_ctx *ctx, const char *repo_dir, const char *commit, calm_string_out out);
calm_status calm_hub_blob_path(calm_ctx *ctx, const char *repo_dir, const char *etag, calm_string_out out);

/* The commit that a revision is known to be here: itself when it is a whole hash, else what refs/REVISION says.
 * *known is false when the cache does not know.  CALM_EFORMAT: the file holds no commit. */
calm_status calm_hub_ref_read(calm_ctx *ctx, const char *repo_dir, const char *revision, char commit[CALM_HUB_COMMIT],
                              bool *known);

/* Write the commit to refs/REVISION, unless the revision is a whole hash or the file has that commit already. */
calm_status calm_hub_ref_write(calm_ctx *ctx, const char *repo_dir, const char *revision, const char *commit);

/* snapshots/COMMIT/NAME becomes a relative link to blobs/ETAG, in one step, whatever was there. */
calm_status calm_hub_link(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name, const char *etag);

/* Note in .no_exist/COMMIT/NAME that the repository has no such file. */
calm_status calm_hub_mark_absent(calm_ctx *ctx, const char *repo_dir, const char *commit, const char *name);

/* Append to `missing`, joined by ", ", the files that calm needs and a snapshot does not have: config.json, the
 * weights (the shards that the index names) and, if asked for, a tokenizer.json that is not known to be absent.
 * CALM_EFORMAT: the index is malformed. */
calm_status calm_hub_missing(calm_ctx *ctx, const char *repo_dir, const char *commit, bool tokenizer,
                             calm_text *missing);

/* The files of a snapshot that calm has a use for, sorted by name, in ctx->out; `bytes` and `name` are set. */
calm_status calm_hub_snapshot_files(calm_ctx *ctx, const char *snapshot, calm_hub_file **out, size_t *n);

/* The lock that huggingface_hub takes too while it fetches a blob: CACHE/.locks/models--ORG--NAME/ETAG.lock.  Waits for
 * another process, with a line in the log.  *fd is -1 on file systems without locks.  unlock takes -1. */
calm_status calm_hub_lock(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const char *etag, int *fd);
void calm_hub_unlock(int fd);

/* Put CACHEDIR.TAG into the cache directory, which makes backup programs skip it.  A directory that cannot be written
 * is no failure. */
calm_status calm_hub_tag_cache(calm_ctx *ctx, const char *cache);
