/* The encoder: the state of one call of calm_tokenizer_encode.
 *
 * A piece of the normalized text goes down the chain of pre-tokenizers, each of which passes its own pieces on, to the
 * model, which appends ids.  Ids of short pieces are remembered: the second occurrence is a copy. */
#pragma once

#include "ptq/tokenizer/tokenizer_parts.h"

typedef struct calm_cache_slot calm_cache_slot;

/* Memory that grows on request; growing does not keep its contents. */
typedef struct calm_room {
    void *data;
    size_t bytes;
} calm_room;

/* All its memory is in ctx->scratch, except the matchers. */
struct calm_encoder {
    calm_ctx *ctx;
    const calm_tokenizer *tok;
    calm_matcher *matchers[CALM_TOKENIZER_MAX_PARTS];    /* of the pre-tokenizers with a regex; on the heap */
    uint32_t *ids;              /* [n_ids] so far */
    size_t n_ids, ids_capacity;
    calm_cache_slot *cache;     /* [cache_mask + 1]: pieces encoded so far, and the range of `ids` that holds theirs */
    size_t cache_mask, n_cached;
    char *kept;                 /* [kept_left] free for the texts of the cache */
    size_t kept_left;
    const char *start;          /* the normalized text where the text itself begins; NULL: that was removed */
    calm_room changed[CALM_TOKENIZER_MAX_PARTS];    /* a piece as pre-tokenizer i has changed it */
    calm_room spelled;          /* a piece in the byte-level alphabet */
    calm_room work;             /* the model's */
};

/* Set *out, a pointer to objects of `size` bytes, to room for `count` of them: uninitialised, valid until the next call
 * for the same `room`.  CALM_ENOMEM. */
calm_status calm_encoder_reserve(calm_encoder *enc, calm_room *room, size_t count, size_t size, void *out);

/* Make room for `count` more ids.  CALM_ENOMEM. */
calm_status calm_encoder_reserve_ids(calm_encoder *enc, size_t count);

/* Append an id.  CALM_ENOMEM. */
calm_status calm_encoder_put(calm_encoder *enc, uint32_t id);

/* Run pre-tokenizer `index` on the piece, or the model if `index` is past the last one; an empty piece gives no ids.
 * The bytes of the piece must not change until the call returns.  Fails as the pre-tokenizers and the model do. */
calm_status calm_encoder_pass(calm_encoder *enc, size_t index, calm_piece piece);

/* Split the piece by pattern and behavior of pre-tokenizer `index`, and run the next one on each part.
 * CALM_EFORMAT when a search passes its limits; else as calm_encoder_pass. */
calm_status calm_encoder_split(calm_encoder *enc, size_t index, calm_piece in);
