/* Renders chats with the chat template of their model, as apply_chat_template of transformers does: the template of
 * chat_template.jinja, chat_template.json, tokenizer_config.json or a GGUF file, of named ones "tool_use" for chats
 * with tools; variables: messages, tools, documents, the members of chat_template_kwargs, special tokens,
 * add_generation_prompt. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/data/chat_messages.h"
#include "ptq/jinja/jinja.h"

/* `model`, its directory or GGUF file, borrowed, and `prompts` are set to begin with.  Files are read for the first
 * chat. */
typedef struct calm_chat {
    const char *model;
    bool prompts;                     /* texts end where an answer begins: add_generation_prompt      */
    calm_json *settings;              /* tokenizer_config.json, or what a GGUF file says in its place */
    calm_jinja *plain, *with_tools;   /* NULL: there is none */
    bool is_open;
    size_t n;                         /* chats rendered */
} calm_chat;
void calm_chat_close(calm_chat *chat);

/* The text of a document that calm_chat_is, in place of what `out` holds.
 * CALM_EARG: the model has no chat template; the message says what to do.  CALM_EFORMAT: no messages, or the template
 * refuses them; CALM_EUNSUPPORTED: the template uses what calm does not have. */
calm_status calm_chat_render(calm_ctx *ctx, calm_chat *chat, const char *where, const calm_json *document,
                             calm_text *out);

/* Log how many chats of the file `path` went through the template, if any did. */
void calm_chat_note(calm_ctx *ctx, const calm_chat *chat, const char *path);
