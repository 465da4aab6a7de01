/* Chat templates and special tokens of a model's files. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"

#define CALM_TEMPLATES_DIR "additional_chat_templates"
#define CALM_TEMPLATES_SUFFIX ".jinja"

typedef struct calm_named_template {
    const char *name, *text;
} calm_named_template;

/* Texts are borrowed from the settings or `json`, or in ctx->out. */
typedef struct calm_template_files {
    const char *text;                 /* the default one; NULL: there is none */
    calm_named_template *named;       /* [n] the others, in ctx->scratch */
    size_t n, capacity;
    calm_json *json;                  /* chat_template.json */
} calm_template_files;

/* Templates of a model's directory (or the directory of a GGUF file): chat_template.jinja before chat_template.json
 * before chat_template of `settings`, which is tokenizer_config.json and may be NULL, as transformers takes them; and
 * `files`, names below the directory of which one that is called default counts where there is no other. */
calm_status calm_template_files_read(calm_ctx *ctx, const char *dir, const calm_json *settings, const calm_words *files,
                                     calm_template_files *out);
void calm_template_files_close(calm_template_files *files);

/* A token of tokenizer_config.json, "text" or {"content": "text"}; NULL when there is none. */
const char *calm_settings_token(const calm_json *settings, const char *key);
