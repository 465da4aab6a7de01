/* Models by their name on the Hugging Face hub: found in its cache, fetched into it. */
#ifndef CALM_HUB_HUB_H
#define CALM_HUB_HUB_H

#include "ptq/hub/listing.h"
#include "ptq/hub/settings.h"

typedef struct calm_hub_snapshot {
    const char *repo, *revision;    /* as asked for                                                */
    char commit[CALM_HUB_COMMIT];   /* "": the cache does not know the revision                    */
    const char *path;               /* directory of the checkpoint                                 */
    calm_hub_file *files;           /* [n_files] that calm has a use for, by name                  */
    size_t n_files;
    const char *missing;            /* what the cache lacks of it, "a, b"; NULL: nothing           */
    bool usable;                    /* nothing but tokenizer.json is missing                       */
} calm_hub_snapshot;

/* Look into the cache alone; texts in ctx->out.  An unknown revision is no failure: `usable` is false and
 * `path` NULL. */
calm_status calm_hub_find(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_hub_snapshot *out);

/* CALM_ENOTFOUND: offline, and the snapshot that calm_hub_find gave is not usable; says what is missing. */
calm_status calm_hub_check_offline(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_snapshot *found);

/* Ask the hub what the revision has, fetch what the cache lacks of what calm needs, and give the snapshot; offline:
 * calm_hub_find and calm_hub_check_offline.  `tick` counts bytes that had to come; NULL: nobody asks.  Interrupted, it
 * leaves blobs/ETAG.incomplete, and the next call goes on from there.
 * CALM_ENOSPC: before anything is fetched where there is no room for it, or when the disk is full after all.
 * CALM_EUNSUPPORTED: no safetensors weights.  CALM_EFORMAT: an answer that no hub gives, or an unsafe file name.
 * CALM_EMISMATCH: size or checksum.  CALM_ENOTFOUND, CALM_EIO: refusals and network (refused.h). */
calm_status calm_hub_pull(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          calm_tick_fn *tick, void *tick_user, calm_hub_snapshot *out);

#endif
