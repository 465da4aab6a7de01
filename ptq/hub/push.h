/* Push: the files of a directory as one commit of a repository on the hub.
 *
 *   create      the repository, unless it is there
 *   ask         which files are large, by the hub's own rules, and whether the card is one it takes
 *   send        those to the storage host, by git LFS's batch protocol; what it has already is not sent again
 *   commit      all files at once: until then the repository does not change, so that a push that broke off is
 *               continued by the same command
 *
 * The protocol is that of huggingface_hub: api/repos/create, api/validate-yaml, api/models/R/preupload, R.git/info/lfs,
 * api/models/R/commit. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/hub/reponame.h"
#include "ptq/hub/settings.h"

typedef struct calm_push_file {
    const char *name;                /* below the directory, with slashes          */
    const char *path;
    size_t bytes;
    char sha256[CALM_SHA256_HEX];    /* "" until it is needed                      */
    bool large;                      /* goes to the storage host                   */
    bool ignored;                    /* by the repository's .gitignore             */
    bool sent;                       /* in this call: the storage host had it not  */
} calm_push_file;

typedef struct calm_push_options {
    const char *dir;
    bool hidden;             /* a repository that is made here is private        */
    bool force;              /* commit to one that has files of others           */
} calm_push_options;

typedef struct calm_push_result {
    calm_push_file *files;   /* [n_files] by name                                */
    size_t n_files;
    size_t sent_bytes;       /* of large files                                   */
    bool created;
    const char *url;         /* of the repository, in ctx->out                   */
    const char *commit;      /* "" where the hub does not say                    */
} calm_push_result;

/* The files that a push takes: all below `dir` but hidden ones; *out [*n] by name, in ctx->out.  CALM_ENOTFOUND: no
 * such directory.  CALM_EARG: it has no config.json and no GGUF file, or a name that a repository cannot have. */
calm_status calm_hub_push_files(calm_ctx *ctx, const char *dir, calm_push_file **out, size_t *n);

/* Push them.  `tick` (may be NULL) counts bytes of large files.
 * CALM_EARG: no token, one that may not write, HF_HUB_OFFLINE, a repository with files of others and no `force`, a card
 * that the hub does not take.  CALM_EFORMAT: not an answer of a hub.  CALM_EIO: calm_hub_refused (refused.h). */
calm_status calm_hub_push(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const calm_push_options *options, calm_tick_fn *tick, void *tick_user,
                          calm_push_result *out);
