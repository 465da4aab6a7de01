/* Endpoint, cache and token of the hub, from the environment variables that huggingface_hub reads. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_hub_settings {
    const char *endpoint;        /* "https://huggingface.co", without a slash at the end              */
    const char *cache;           /* directory that holds models--ORG--NAME                            */
    const char *token;           /* NULL: none.  Never printed, in no message and no log              */
    const char *token_source;    /* where it came from, for messages: "HF_TOKEN", or a path           */
    const char *ca_file;         /* certificates to trust instead of the system's; NULL: those        */
    bool offline;                /* the cache alone                                                   */
    bool pushes;                 /* something is sent, for which no cache does                        */
    long connect_seconds;        /* until a connection stands                                         */
    long stall_seconds;          /* without a byte, before a transfer is given up                     */
    int attempts;                /* without a new byte, before a file is given up                     */
    long backoff_ms;             /* pause before the second attempt; each later one is twice as long  */
} calm_hub_settings;

/* From HF_ENDPOINT; HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME; HF_TOKEN,
 * HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE;
 * HF_HUB_DOWNLOAD_TIMEOUT; SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE.  An empty variable counts as unset.  `~`
 * and `$NAME` in paths are replaced.  Texts in ctx->out.  CALM_EARG: a variable has a value that cannot be used; the
 * message names the variable, and shows the value unless that is a secret. */
calm_status calm_hub_settings_read(calm_ctx *ctx, calm_hub_settings *out);
