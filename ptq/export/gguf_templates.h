/* Chat templates as keys of a GGUF file.
 *
 *   tokenizer.chat_template          the default template
 *   tokenizer.chat_template.NAME     each other template; in NAME all but letters and digits becomes _
 *   tokenizer.chat_templates         the names of the other templates
 *
 * Source: gguf-py of llama.cpp, SpecialVocab and GGUFWriter.add_chat_template. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf_write.h"
#include "ptq/io/json.h"

/* Adds the templates of a model's directory (or the directory of a GGUF file): the first of chat_template.jinja,
 * chat_template.json and the member chat_template of `settings` (tokenizer_config.json, may be NULL), as transformers
 * does; and those of additional_chat_templates/. */
calm_status calm_gguf_add_templates(calm_ctx *ctx, const char *dir, const calm_json *settings, calm_gguf_keys *keys);
