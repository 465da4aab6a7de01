/* The hub's listing of a repository's files, and which of them calm fetches. */
#pragma once

#include <stdint.h>

#include "ptq/hub/reponame.h"

#define CALM_HUB_LISTING_MAX ((size_t)16 << 20)    /* bytes of an answer */
#define CALM_HUB_INDEX_MAX ((size_t)64 << 20)      /* bytes of model.safetensors.index.json */
#define CALM_HUB_INDEX "model.safetensors.index.json"
#define CALM_HUB_SINGLE "model.safetensors"

typedef struct calm_hub_file {
    const char *name;               /* path in the repository                                               */
    int64_t bytes;                  /* -1: not known                                                        */
    char etag[CALM_HUB_ETAG];       /* name of its blob: SHA-256 (64 digits), git's SHA-1 (40), or another; "": not
                                     * known                                                                */
    bool fetched;                   /* this call downloaded it; else it was in the cache                    */
} calm_hub_file;

typedef struct calm_hub_listing {
    char commit[CALM_HUB_COMMIT];
    calm_hub_file *files;           /* [n_files] */
    size_t n_files;
} calm_hub_listing;

/* Parses the answer to /api/models/ORG/NAME/revision/REV, into ctx->out; messages begin with `where`.
 * CALM_EFORMAT: not JSON, no commit, a name that is not a plain relative path, or an impossible size. */
calm_status calm_hub_listing_parse(calm_ctx *ctx, const char *where, const char *bytes, size_t n_bytes,
                                   calm_hub_listing *out);

/* Returns the file of that name, or NULL. */
calm_hub_file *calm_hub_listing_find(const calm_hub_listing *listing, const char *name);

/* Sorts files by name. */
void calm_hub_files_sort(calm_hub_file *files, size_t n);

/* Lists the different files that the weight map of an index names, sorted, in ctx->out.  CALM_EFORMAT as above. */
calm_status calm_hub_index_shards(calm_ctx *ctx, const char *where, const char *bytes, size_t n_bytes,
                                  const char ***out, size_t *n);

/* Checks that the listing has safetensors weights.  CALM_EUNSUPPORTED: it has none; the message says what it has. */
calm_status calm_hub_listing_check_weights(calm_ctx *ctx, const char *repo, const calm_hub_listing *listing);
