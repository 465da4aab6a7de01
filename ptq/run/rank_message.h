/* Messages between ranks, read front to back.  All ranks run the same program, so structs travel as they are; what they
 * point to follows them. */
#ifndef CALM_RUN_RANK_MESSAGE_H
#define CALM_RUN_RANK_MESSAGE_H

#include "ptq/base/text.h"

/* `bad` once a message ends too early; what is read from there on is 0. */
typedef struct calm_rank_message {
    const char *at, *end;
    bool bad;
} calm_rank_message;

/* The next bytes [n] into `out`. */
void calm_rank_message_read(calm_rank_message *in, void *out, size_t n);

/* The same into ctx->scratch: elements [n] of `size` bytes.  NULL where the message ends too early.  CALM_ENOMEM. */
calm_status calm_rank_message_array(calm_ctx *ctx, calm_rank_message *in, uint64_t n, size_t size, void *out);

/* A text that calm_rank_message_put_text wrote, into ctx->scratch; NULL of NULL.  CALM_ENOMEM. */
calm_status calm_rank_message_text(calm_ctx *ctx, calm_rank_message *in, const char **out);

/* Can so many rows of `least` bytes each still follow?  If not the message is bad. */
bool calm_rank_message_fits(calm_rank_message *in, uint64_t n, size_t least);

/* Append bytes [n], or a text or NULL. */
void calm_rank_message_put(calm_text *out, const void *bytes, size_t n);
void calm_rank_message_put_text(calm_text *out, const char *text);

#endif
