/* Chat templates and special tokens in the files of a model. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"

#define CALM_TEMPLATES_DIR "additional_chat_templates"
#define CALM_TEMPLATES_SUFFIX ".jinja"

typedef struct calm_named_template {
    const char *name, *text;
} calm_named_template;

/* Texts are borrowed from the settings or `json`, or are in ctx->out. */
typedef struct calm_template_files {
    const char *text;                 /* default template; NULL: there is none */
    calm_named_template *named;       /* [n] other templates, in ctx->scratch */
    size_t n, capacity;
    calm_json *json;                  /* chat_template.json */
} calm_template_files;

/* Reads the templates of a model's directory (or the directory of a GGUF file).  As in transformers,
 * chat_template.jinja has priority over chat_template.json, and that over chat_template of `settings`
 * (tokenizer_config.json; may be NULL).  `files` names further templates below the directory; one called default is
 * used if there is no other default. */
calm_status calm_template_files_read(calm_ctx *ctx, const char *dir, const calm_json *settings, const calm_words *files,
                                     calm_template_files *out);
void calm_template_files_close(calm_template_files *files);

/* Returns a token of tokenizer_config.json, written as "text" or {"content": "text"}; NULL: there is none. */
const char *calm_settings_token(const calm_json *settings, const char *key);
