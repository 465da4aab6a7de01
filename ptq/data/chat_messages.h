/* Chats in the formats of common data sets.
 *
 *   messages, conversations, conversation          [{"role": "user", "content": ...} or {"from": "human", "value":
 *                                                  ...}, ...], with "system" for a message before them
 *   prompt and completion (or response)            two texts, or two such lists
 *   instruction, input (or context) and output (or response)
 *                                                  the input follows the instruction on the next line
 *
 * A speaker ("from") has one of these names, others are refused: human, user; gpt, chatgpt, assistant, model, bot;
 * system; tool, function, observation. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Returns whether the object is a chat in one of these formats. */
bool calm_chat_is(const calm_json *document);

/* Returns the messages, each {"role", "content", ...} without null members, as apply_chat_template of transformers
 * passes them on (a message's reasoning also under the names reasoning_content and thinking).  *out is freed with
 * calm_json_free.  CALM_EFORMAT, with `where`. */
calm_status calm_chat_messages(calm_ctx *ctx, const char *where, const calm_json *document, calm_json **out);
