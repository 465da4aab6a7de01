/* Finds models of the Hugging Face hub by name in the local cache, and downloads them into the cache. */
#pragma once

#include "ptq/hub/listing.h"
#include "ptq/hub/settings.h"

typedef struct calm_hub_snapshot {
    const char *repo, *revision;    /* as requested                                                */
    char commit[CALM_HUB_COMMIT];   /* "": the cache does not know the revision                    */
    const char *path;               /* directory of the checkpoint                                 */
    calm_hub_file *files;           /* [n_files] files that calm uses, by name                     */
    size_t n_files;
    const char *missing;            /* files that are not in the cache, "a, b"; NULL: none         */
    bool usable;                    /* at most tokenizer.json is missing                           */
} calm_hub_snapshot;

/* Finds a model in the cache; texts in ctx->out.  An unknown revision is not a failure: `usable` is then false and
 * `path` NULL. */
calm_status calm_hub_find(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_hub_snapshot *out);

/* Checks that a snapshot of calm_hub_find can be used offline.  CALM_ENOTFOUND, naming the missing files: it cannot. */
calm_status calm_hub_check_offline(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_snapshot *found);

/* Requests the revision's list of files from the hub, and downloads those that calm needs and the cache lacks; offline,
 * does calm_hub_find and calm_hub_check_offline instead.  `tick` (may be NULL) counts fetched bytes.  An interrupted
 * call leaves blobs/ETAG.incomplete, from which the next one continues.
 * CALM_ENOSPC: the disk is too full, known before the first download if the sizes are.  CALM_EUNSUPPORTED: no
 * safetensors weights.  CALM_EFORMAT: not an answer of a hub, or an unsafe file name.  CALM_EMISMATCH: a wrong size or
 * checksum.
 * CALM_ENOTFOUND, CALM_EIO: refusals and network failures (refused.h). */
calm_status calm_hub_pull(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_tick_fn *tick, void *tick_user, calm_hub_snapshot *out);
