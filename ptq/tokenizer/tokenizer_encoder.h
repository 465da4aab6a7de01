/* The encoder: state of one call of calm_tokenizer_encode.
 *
 * A piece of the normalized text passes through the chain of pre-tokenizers, each of which passes its pieces to the
 * next one, to the model, which appends ids.  The ids of short pieces are cached. */
#pragma once

#include "ptq/tokenizer/tokenizer_parts.h"

typedef struct calm_cache_slot calm_cache_slot;

/* A buffer that grows on request; growing discards its contents. */
typedef struct calm_room {
    void *data;
    size_t bytes;
} calm_room;

/* All memory is in ctx->scratch, except the matchers. */
struct calm_encoder {
    calm_ctx *ctx;
    const calm_tokenizer *tok;
    calm_matcher *matchers[CALM_TOKENIZER_MAX_PARTS];    /* of pre-tokenizers with a regex; on the heap     */
    uint32_t *ids;              /* [n_ids] ids of the text so far */
    size_t n_ids, ids_capacity;
    calm_cache_slot *cache;     /* hash table [cache_mask + 1] of encoded pieces, with the range of their ids        */
    size_t cache_mask, n_cached;
    char *kept;                 /* [kept_left] free bytes for texts of the cache */
    size_t kept_left;
    const char *start;          /* start of the normalized text; NULL: its beginning was removed            */
    calm_room changed[CALM_TOKENIZER_MAX_PARTS];    /* output of pre-tokenizer i                 */
    calm_room spelled;          /* a piece in the byte-level alphabet */
    calm_room work;             /* workspace of the model */
};

/* Sets *out, a pointer to objects of `size` bytes, to uninitialised memory for `count` objects, valid until the
 * next call for the same `room`.  CALM_ENOMEM. */
calm_status calm_encoder_reserve(calm_encoder *enc, calm_room *room, size_t count, size_t size, void *out);

/* Makes room for `count` more ids.  CALM_ENOMEM. */
calm_status calm_encoder_reserve_ids(calm_encoder *enc, size_t count);

/* Appends an id.  CALM_ENOMEM. */
calm_status calm_encoder_put(calm_encoder *enc, uint32_t id);

/* Runs pre-tokenizer `index` on the piece, or the model if `index` is past the last one; an empty piece gives no
 * ids.  The bytes of the piece must not change until the call returns.  Fails as the pre-tokenizers and the model
 * do. */
calm_status calm_encoder_pass(calm_encoder *enc, size_t index, calm_piece piece);

/* Splits the piece by pattern and behavior of pre-tokenizer `index`, and runs the next one on each part.
 * CALM_EFORMAT: a search exceeds its limits; else as calm_encoder_pass. */
calm_status calm_encoder_split(calm_encoder *enc, size_t index, calm_piece in);
