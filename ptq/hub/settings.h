/* Endpoint, cache and token of the hub, from the environment variables that huggingface_hub reads. */
#pragma once

#include "ptq/base/context.h"

typedef struct calm_hub_settings {
    const char *endpoint;        /* "https://huggingface.co", without a slash at the end              */
    const char *cache;           /* directory that holds models--ORG--NAME                            */
    const char *token;           /* NULL: none.  No message and no log may have it                    */
    const char *token_source;    /* source of the token, for messages: "HF_TOKEN", or a path          */
    const char *ca_file;         /* certificates to trust instead of the system's; NULL: the system's */
    bool offline;                /* use only the cache                                                */
    bool pushes;                 /* the command uploads, so messages do not suggest the cache         */
    long connect_seconds;        /* time limit of a connection attempt                                */
    long stall_seconds;          /* time without a byte after which a transfer fails                  */
    int attempts;                /* attempts without a new byte after which a file fails              */
    long backoff_ms;             /* pause before the second attempt; each later one is twice as long  */
} calm_hub_settings;

/* Reads HF_ENDPOINT; HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME; HF_TOKEN,
 * HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH, HF_HUB_DISABLE_IMPLICIT_TOKEN; HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE;
 * HF_HUB_DOWNLOAD_TIMEOUT; SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE.  An empty variable counts as unset.  `~`
 * and `$NAME` in paths are expanded.  Texts in ctx->out.  CALM_EARG: a variable has an unusable value; the message
 * names the variable, and shows the value unless that is a secret. */
calm_status calm_hub_settings_read(calm_ctx *ctx, calm_hub_settings *out);
