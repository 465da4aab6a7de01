/* Chats as data sets write them.
 *
 *   messages, conversations, conversation          [{"role": "user", "content": ...} or {"from": "human", "value":
 *                                                  ...}, ...], with "system" for a message before them
 *   prompt and completion (or response)            two texts, or two such lists
 *   instruction, input (or context) and output (or response)
 *                                                  the input follows the instruction on the next line
 *
 * Other names of a speaker ("from") than these are refused: human, user; gpt, chatgpt, assistant, model, bot; system;
 * tool, function, observation. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"

/* Is the object one of these? */
bool calm_chat_is(const calm_json *document);

/* Its messages, each {"role", "content", ...} without members that are null, as apply_chat_template of transformers
 * passes them on (a message's reasoning under the names reasoning_content and thinking too).  *out is freed with
 * calm_json_free.  CALM_EFORMAT, with `where`. */
calm_status calm_chat_messages(calm_ctx *ctx, const char *where, const calm_json *document, calm_json **out);
