/* Decompression of gzip texts. */
#include "ptq/data/gunzip.h"

#include <string.h>
#include <zlib.h>

#define PIECE 65536
/* Maximum bytes passed to zlib at once, whose counters have 32 bits. */
#define INPUT_MAX ((size_t)1 << 30)

bool calm_gunzip_is(const char *bytes, size_t n)
{
    return n >= 2 && memcmp(bytes, "\x1F\x8B", 2) == 0;
}

/* State of a decompression: the rest of the input, the limit of the text's bytes, and the text. */
typedef struct unzipper {
    const char *path;
    const unsigned char *rest;
    size_t n_rest, limit;
    calm_text *out;
} unzipper;

static void feed(z_stream *stream, unzipper *u)
{
    const size_t n = calm_size_min(u->n_rest, INPUT_MAX);
    if (stream->avail_in)
        return;
    memcpy(&stream->next_in, &u->rest, sizeof u->rest);    /* zlib does not write there */
    stream->avail_in = (uInt)n;
    u->rest += n;
    u->n_rest -= n;
}

/* Decompresses one gzip member; fails if the data ends before it. */
static calm_status read_member(calm_ctx *ctx, z_stream *stream, unzipper *u)
{
    unsigned char piece[PIECE];
    for (int state = Z_OK; state != Z_STREAM_END;) {
        feed(stream, u);
        stream->next_out = piece;
        stream->avail_out = sizeof piece;
        state = inflate(stream, Z_NO_FLUSH);
        const size_t n = sizeof piece - stream->avail_out;
        if (state == Z_MEM_ERROR)
            return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", u->path);
        if ((state != Z_OK && state != Z_STREAM_END) || (state == Z_OK && !n && !stream->avail_in && !u->n_rest))
            return calm_fail(ctx, CALM_EFORMAT, "%s: the gzip data is %s after %zu bytes of text", u->path,
                             state == Z_DATA_ERROR || state == Z_NEED_DICT ? "broken" : "cut off", u->out->length);
        if (n > u->limit - u->out->length)
            return calm_fail(ctx, CALM_EFORMAT, "%s: expected at most %zu bytes when it is not compressed: divide the "
                             "file", u->path, u->limit);
        calm_text_append(u->out, (const char *)piece, n);
        CALM_TRY(calm_text_check(ctx, u->out));
    }
    return CALM_OK;
}

static calm_status read_members(calm_ctx *ctx, z_stream *stream, unzipper *u)
{
    do {
        CALM_TRY(read_member(ctx, stream, u));
        inflateReset(stream);
    } while (stream->avail_in || u->n_rest);
    return CALM_OK;
}

calm_status calm_gunzip(calm_ctx *ctx, const char *path, const char *bytes, size_t n, size_t limit, calm_text *out)
{
    unzipper u = {.path = path, .rest = (const unsigned char *)bytes, .n_rest = n, .limit = limit, .out = out};
    z_stream stream = {0};
    if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK)    /* for a gzip header       */
        return calm_fail(ctx, CALM_ENOMEM, "%s: out of memory", path);
    const calm_status status = read_members(ctx, &stream, &u);
    inflateEnd(&stream);
    return status;
}
