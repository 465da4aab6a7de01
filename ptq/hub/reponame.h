/* Names: of repositories ("ORG/NAME@REVISION"), and of the files in them that calm needs. */
#pragma once

#include "ptq/base/context.h"

#define CALM_HUB_COMMIT 41       /* 40 hexadecimal digits and the NUL                 */
#define CALM_HUB_ETAG 136        /* name of a blob: up to 128 letters, digits and -._ */

typedef struct calm_hub_name {
    const char *repo;        /* "ORG/NAME"                            */
    const char *revision;    /* branch, tag or commit; "main"         */
    const char *folder;      /* "models--ORG--NAME"                   */
} calm_hub_name;

/* Does the word have the form ORG/NAME or ORG/NAME@REVISION?  The hub is not asked whether the repository exists. */
bool calm_hub_is_name(const char *word);

/* Splits such a word; texts in ctx->out.  CALM_EARG says which rule of the hub the name or the revision breaks. */
calm_status calm_hub_name_parse(calm_ctx *ctx, const char *word, calm_hub_name *out);

/* Is the text a whole commit hash: 40 lower-case hexadecimal digits? */
bool calm_hub_is_commit(const char *text);

/* Is the text a valid name of a blob: at most 128 letters, digits, - . _ without a leading dot? */
bool calm_hub_is_etag(const char *text);

/* Returns NULL if `name` [n bytes] is a plain relative path, else what is wrong with it ("goes up with \"..\"").  Every
 * name from a server passes this check before it becomes part of a path. */
const char *calm_hub_name_fault(const char *name, size_t n);

/* Does calm fetch a file of that name (configuration, tokenizer, chat template, readme, licence; not weights)? */
bool calm_hub_is_wanted(const char *name);

/* Returns the fixed ones of these names, NULL at the end; readme and licence have no fixed name. */
const char *const *calm_hub_fixed_names(void);

/* Quotes `text` for a URL: all but letters, digits, - . _ ~ (and, with keep_slash, /) as %XX; in ctx->scratch. */
calm_status calm_hub_quote(calm_ctx *ctx, const char *text, bool keep_slash, char **out);
