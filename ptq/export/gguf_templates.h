/* Chat templates as keys of a GGUF file.
 *
 *   tokenizer.chat_template          the default one
 *   tokenizer.chat_template.NAME     each of the others; letters and digits of NAME stay, the rest becomes _
 *   tokenizer.chat_templates         those names
 *
 * Source: gguf-py of llama.cpp, SpecialVocab and GGUFWriter.add_chat_template. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf_write.h"
#include "ptq/io/json.h"

/* Add the templates of a model's directory (or the directory of a GGUF file): chat_template.jinja before
 * chat_template.json before chat_template of `settings`, which is tokenizer_config.json and may be NULL, as
 * transformers takes them; and those of additional_chat_templates/. */
calm_status calm_gguf_add_templates(calm_ctx *ctx, const char *dir, const calm_json *settings, calm_gguf_keys *keys);
