/* Renders chats with the chat template of their model, as apply_chat_template of transformers does: the template of
 * chat_template.jinja, chat_template.json, tokenizer_config.json or a GGUF file, or a template named "tool_use" for
 * chats with tools.  Variables: messages, tools, documents, the members of chat_template_kwargs, special tokens,
 * add_generation_prompt. */
#pragma once

#include "ptq/base/text.h"
#include "ptq/data/chat_messages.h"
#include "ptq/jinja/jinja.h"

/* Renderer for one model.  The caller initialises `model` (directory or GGUF file; borrowed) and `prompts`, the
 * rest with zeros.  Files are read for the first chat. */
typedef struct calm_chat {
    const char *model;
    bool prompts;                     /* add_generation_prompt: texts end where the answer begins     */
    calm_json *settings;              /* tokenizer_config.json, or the equivalent of a GGUF file      */
    calm_jinja *plain, *with_tools;   /* NULL: there is none */
    bool is_open;
    size_t n;                         /* chats rendered */
} calm_chat;
void calm_chat_close(calm_chat *chat);

/* Renders a document that calm_chat_is accepts into `out`, whose contents are replaced.  CALM_EARG: the model has no
 * chat template; the message says what to do.  CALM_EFORMAT: no messages, or the template refuses them;
 * CALM_EUNSUPPORTED: the template uses a feature that calm does not have. */
calm_status calm_chat_render(calm_ctx *ctx, calm_chat *chat, const char *where, const calm_json *document,
                             calm_text *out);

/* Logs how many chats of the file `path` were rendered, if any. */
void calm_chat_note(calm_ctx *ctx, const calm_chat *chat, const char *path);
