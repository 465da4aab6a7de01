/* Messages between ranks: a text follows its length. */
#include "ptq/ranks/ranks.h"

#include <string.h>

/* The length that means NULL, which differs from "". */
#define NO_TEXT UINT32_MAX

void calm_rank_message_read(calm_rank_message *in, void *out, size_t n)
{
    in->bad |= (size_t)(in->end - in->at) < n;
    /* Readers continue with zeros and check `bad` once, at the end. */
    if (in->bad) {
        memset(out, 0, n);
        return;
    }
    memcpy(out, in->at, n);
    in->at += n;
}

bool calm_rank_message_fits(calm_rank_message *in, uint64_t n, size_t least)
{
    /* Divide instead of multiplying, because n comes from the message and n * least may overflow. */
    in->bad |= n > (size_t)(in->end - in->at) / least;
    return !in->bad;
}

calm_status calm_rank_message_array(calm_ctx *ctx, calm_rank_message *in, uint64_t n, size_t size, void *out)
{
    void **at = out;
    *at = NULL;
    if (!calm_rank_message_fits(in, n, size))
        return CALM_OK;
    CALM_TRY(calm_alloc_raw(ctx, ctx->scratch, at, n ? (size_t)n : 1, size, "what another rank sent"));
    calm_rank_message_read(in, *at, (size_t)n * size);
    return CALM_OK;
}

calm_status calm_rank_message_text(calm_ctx *ctx, calm_rank_message *in, const char **out)
{
    uint32_t n;
    char *copy;
    *out = NULL;
    calm_rank_message_read(in, &n, sizeof n);
    /* Checked before the allocation. */
    in->bad |= n != NO_TEXT && (size_t)(in->end - in->at) < n;
    if (in->bad || n == NO_TEXT)
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, copy, (size_t)n + 1));
    calm_rank_message_read(in, copy, n);
    *out = copy;
    return CALM_OK;
}

void calm_rank_message_put(calm_text *out, const void *bytes, size_t n)
{
    calm_text_append(out, bytes, n);
}

void calm_rank_message_put_text(calm_text *out, const char *text)
{
    const uint32_t n = text ? (uint32_t)strlen(text) : NO_TEXT;
    calm_text_append(out, (const char *)&n, sizeof n);
    if (text)
        calm_text_append(out, text, n);
}
