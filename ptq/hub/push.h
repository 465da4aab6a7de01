/* Push: uploads the files of a directory as one commit of a repository on the hub.
 *
 *   create      the repository, unless it exists
 *   ask         which files are large by the hub's rules, and whether the hub accepts the model card
 *   send        the large files to the storage host, by git LFS's batch protocol, except those that it already has
 *   commit      all files at once: until then the repository does not change, so the same command continues an
 *               interrupted push
 *
 * The protocol is that of huggingface_hub: api/repos/create, api/validate-yaml, api/models/R/preupload, R.git/info/lfs,
 * api/models/R/commit. */
#pragma once

#include "ptq/base/sha256.h"
#include "ptq/hub/reponame.h"
#include "ptq/hub/settings.h"

typedef struct calm_push_file {
    const char *name;                /* path below the directory, with slashes     */
    const char *path;                /* path on this machine                       */
    size_t bytes;
    char sha256[CALM_SHA256_HEX];    /* "" until it is needed                      */
    bool large;                      /* is uploaded to the storage host            */
    bool ignored;                    /* the repository's .gitignore ignores it     */
    bool sent;                       /* this call uploaded it to the storage host  */
} calm_push_file;

typedef struct calm_push_options {
    const char *dir;
    bool hidden;             /* if the push creates the repository, make it private */
    bool force;              /* commit even if the repository has files of others */
} calm_push_options;

typedef struct calm_push_result {
    calm_push_file *files;   /* [n_files] by name                                */
    size_t n_files;
    size_t sent_bytes;       /* uploaded bytes of large files                    */
    bool created;            /* the push created the repository                  */
    const char *url;         /* address of the repository, in ctx->out           */
    const char *commit;      /* "" if the hub does not say                       */
} calm_push_result;

/* Lists the files of a push, all below `dir` except hidden ones: *out [*n] by name, in ctx->out.  CALM_ENOTFOUND: no
 * such directory.  CALM_EARG: it has no config.json and no GGUF file, or a name that a repository cannot have. */
calm_status calm_hub_push_files(calm_ctx *ctx, const char *dir, calm_push_file **out, size_t *n);

/* Pushes these files.  `tick` (may be NULL) counts bytes of large files.
 * CALM_EARG: no token, or one that may not write; HF_HUB_OFFLINE; a repository with files of others without `force`; a
 * card that the hub does not accept.  CALM_EFORMAT: not an answer of a hub.  CALM_EIO: calm_hub_refused (refused.h). */
calm_status calm_hub_push(calm_ctx *ctx, const calm_hub_settings *settings, const calm_hub_name *name,
                          const calm_push_options *options, calm_tick_fn *tick, void *tick_user,
                          calm_push_result *out);
