/* Prefix code of exponents in four streams, which encoder and decoder process side by side: one stream's work hides
 * the latency of another.  A look-up decodes as many symbols as 11 bits hold, at most four. */
#include "ptq/quant/exponent_code.h"

#include <stdint.h>
#include <string.h>

#include "ptq/base/simd.h"

#define MAGIC "CALMEXP1"
#define HEADER ((size_t)40)
#define END ((size_t)8)             /* padding, so that 8 bytes can be read at each byte of a stream */
#define BLOCK ((size_t)1 << 14)
#define BLOCK_HEADER ((size_t)10)
#define STREAMS 4
#define SYMBOLS 16
#define ESCAPE 15
#define BITS 11                     /* of the longest code word */
#define WINDOW ((size_t)1 << BITS)
#define AT_ONCE 4                   /* symbols of a look-up, and code words between two stores of the encoder */
#define LOOKUPS 5                   /* 5 * 11 bits of the 57 that are valid after a load at a byte */
#define STREAM_MOST (BLOCK / STREAMS * BITS / 8 + 16)
#define SAMPLE ((size_t)1024)
/* The exponent of symbol 0 is 3 above that of the standard deviation: 8 to 16 times as large. */
#define ABOVE 3
/* -(E log2 |N(0, 1)|), and the .0573 by which exponent + fraction is below log2 on average, in 128ths. */
#define CENTRE 125

/* Code lengths of P(2^(3-s-f) < |x| < 2^(4-s-f)), at least 2^-12, for x of N(0, 1) and f = 0, 1/8, ... 7/8; for
 * other exponents 2^-11. */
static const uint64_t gaussian[8] = {0xbbaa8765532225bb, 0xbbaa8765442224bb, 0xbbba8765433223ab, 0xbbb997654332239b,
                                     0xbbbaa8865432228b, 0xbbbaa8775432227b, 0xbbbaa8766432226b, 0xbbbaa8765532225b};

typedef struct words {
    const uint8_t *at;
    size_t n, width;    /* bytes of a word */
} words;

/* ---- words and their parts ---- */

CALM_VECTORIZE static void split2(size_t n, const uint8_t *in, uint8_t *exponents, uint8_t *upper)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, in + 2 * i, 2);
        exponents[i] = (uint8_t)(v >> 7);
        upper[i] = (uint8_t)((v >> 8 & 0x80) | (v & 0x7f));
    }
}

CALM_VECTORIZE static void split4(size_t n, const uint8_t *in, uint8_t *exponents, uint8_t *upper, uint8_t *lower)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, in + 4 * i, 4);
        const uint16_t low = (uint16_t)v;
        exponents[i] = (uint8_t)(v >> 23);
        upper[i] = (uint8_t)((v >> 24 & 0x80) | (v >> 16 & 0x7f));
        memcpy(lower + 2 * i, &low, 2);
    }
}

CALM_VECTORIZE static void join2(size_t n, const uint8_t *exponents, const uint8_t *upper, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t v = (uint16_t)((upper[i] & 0x80) << 8 | exponents[i] << 7 | (upper[i] & 0x7f));
        memcpy(out + 2 * i, &v, 2);
    }
}

CALM_VECTORIZE static void join4(size_t n, const uint8_t *exponents, const uint8_t *upper, const uint8_t *lower,
                                 uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t low;
        memcpy(&low, lower + 2 * i, 2);
        const uint32_t v = (uint32_t)(upper[i] & 0x80) << 24 | (uint32_t)exponents[i] << 23 |
                           (uint32_t)(upper[i] & 0x7f) << 16 | low;
        memcpy(out + 4 * i, &v, 4);
    }
}

CALM_VECTORIZE static size_t count_escapes(size_t n, const uint8_t *exponents, uint8_t top)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (uint8_t)(top - exponents[i]) >= ESCAPE;
    return sum;
}

/* Returns the words of quarter q of a block of n words. */
static size_t quarter(size_t n, size_t q)
{
    const size_t each = (n + STREAMS - 1) / STREAMS, begin = calm_size_min(n, q * each);
    return calm_size_min(each, n - begin);
}

/* ---- the code ---- */

/* Computes canonical code words, lowest bit first: shorter ones first, equal ones by symbol.  Returns false if the
 * lengths are no complete code. */
static bool code_words(uint64_t lengths, uint16_t code[SYMBOLS], uint8_t length[SYMBOLS])
{
    unsigned next = 0, sum = 0;
    for (int s = 0; s < SYMBOLS; s++) {
        length[s] = (uint8_t)(lengths >> 4 * s & 15);
        if (length[s] < 1 || length[s] > BITS)
            return false;
        sum += 1u << (BITS - length[s]);
    }
    for (unsigned bits = 1; bits <= BITS && sum == WINDOW; bits++, next <<= 1)
        for (int s = 0; s < SYMBOLS; s++) {
            if (length[s] != bits)
                continue;
            code[s] = 0;
            for (unsigned b = 0; b < bits; b++)
                code[s] = (uint16_t)(code[s] | (next >> b & 1u) << (bits - 1 - b));
            next++;
        }
    return sum == WINDOW;
}

/* Estimates the exponent of symbol 0 and the code of a Gaussian from a sample of the words. */
static uint64_t fit(const words *in, uint8_t *top)
{
    const size_t step = in->n / SAMPLE + 1;
    size_t sum = 0, n = 0;
    for (size_t i = 0; i < in->n; i += step) {
        uint16_t v;
        memcpy(&v, in->at + i * in->width + in->width - 2, 2);
        sum += v & 0x7fff;
        n += (v & 0x7fff) != 0;
    }
    /* log2 of the standard deviation + 127, in 128ths and in eighths. */
    const size_t log2 = (n ? sum / n : 0) + CENTRE, eighths = (log2 + 8) / 16;
    *top = (uint8_t)(eighths / 8 + ABOVE);
    return gaussian[eighths % 8];
}

/* ---- encoding ---- */

typedef struct encoder {
    uint8_t top;
    uint32_t of[256];    /* by exponent: code word | length << 16 */
    uint8_t exponents[BLOCK];
    uint8_t upper[BLOCK], lower[2 * BLOCK];
    uint8_t stream[STREAMS][STREAM_MOST];
    size_t bytes[STREAMS];
} encoder;

static void new_encoder(uint64_t lengths, uint8_t top, encoder *e)
{
    uint16_t code[SYMBOLS];
    uint8_t length[SYMBOLS];
    code_words(lengths, code, length);
    e->top = top;
    for (int x = 0; x < 256; x++) {
        const uint8_t s = (uint8_t)calm_size_min((uint8_t)(top - x), ESCAPE);
        e->of[x] = code[s] | (uint32_t)length[s] << 16;
    }
}

/* Bits that are not stored yet. */
typedef struct bits {
    uint64_t value;
    unsigned n;
    uint8_t *at;
} bits;

static inline void put(bits *b, uint32_t word)
{
    b->value |= (uint64_t)(word & 0xffff) << b->n;
    b->n += word >> 16;
}

/* Stores the whole bytes; at most 7 bits remain, so these and four code words are below 64 bits. */
static inline void flush(bits *b)
{
    memcpy(b->at, &b->value, 8);
    b->at += b->n >> 3;
    b->value >>= b->n & ~7u;
    b->n &= 7;
}

static void encode_streams(encoder *e, size_t n)
{
    const size_t each = quarter(n, 0), least = quarter(n, STREAMS - 1);
    bits b[STREAMS];
    size_t i = 0;
    for (int q = 0; q < STREAMS; q++)
        b[q] = (bits){0, 0, e->stream[q]};
    for (; i + AT_ONCE <= least; i += AT_ONCE) {
#pragma GCC unroll 4
        for (int q = 0; q < STREAMS; q++) {
            const uint8_t *x = e->exponents + (size_t)q * each + i;
#pragma GCC unroll 4
            for (int k = 0; k < AT_ONCE; k++)
                put(&b[q], e->of[x[k]]);
            flush(&b[q]);
        }
    }
    for (int q = 0; q < STREAMS; q++) {
        for (size_t k = i; k < quarter(n, (size_t)q); k++) {
            put(&b[q], e->of[e->exponents[(size_t)q * each + k]]);
            flush(&b[q]);
        }
        memcpy(b[q].at, &b[q].value, 8);
        e->bytes[q] = (size_t)(b[q].at - e->stream[q]) + (b[q].n > 0);
    }
}

/* Writes the positions and values of the exponents without a symbol. */
static void put_escapes(const encoder *e, size_t n, size_t n_escapes, uint8_t *out)
{
    size_t found = 0;
    for (uint16_t i = 0; found < n_escapes && i < n; i++) {
        if ((uint8_t)(e->top - e->exponents[i]) < ESCAPE)
            continue;
        memcpy(out + 2 * found, &i, 2);
        out[2 * n_escapes + found++] = e->exponents[i];
    }
}

/* Encodes a block of n words into out of `room` bytes; returns its bytes, or 0 if they do not fit. */
static size_t encode_block(encoder *e, const uint8_t *in, size_t n, size_t width, uint8_t *out, size_t room)
{
    if (width == 2)
        split2(n, in, e->exponents, e->upper);
    else
        split4(n, in, e->exponents, e->upper, e->lower);
    const size_t n_escapes = count_escapes(n, e->exponents, e->top);
    size_t all = BLOCK_HEADER + n * (width - 1) + 3 * n_escapes;
    encode_streams(e, n);
    for (int q = 0; q < STREAMS; q++)
        all += e->bytes[q];
    if (all > room)
        return 0;
    for (int q = 0; q <= STREAMS; q++) {
        const uint16_t value = (uint16_t)(q < STREAMS ? e->bytes[q] : n_escapes);
        memcpy(out + 2 * q, &value, 2);
    }
    uint8_t *at = out + BLOCK_HEADER;
    memcpy(at, e->upper, n);
    if (width == 4)
        memcpy(at + n, e->lower, 2 * n);
    at += n * (width - 1);
    put_escapes(e, n, n_escapes, at);
    at += 3 * n_escapes;
    for (int q = 0; q < STREAMS; at += e->bytes[q++])
        memcpy(at, e->stream[q], e->bytes[q]);
    return all;
}

/* Encodes all blocks; returns their bytes, or 0 if they are not shorter than the words. */
static size_t encode_blocks(const words *in, uint8_t *top, uint64_t *lengths, uint8_t *out)
{
    const size_t room = in->n * in->width;
    encoder e;
    size_t all = 0;
    *lengths = fit(in, top);
    new_encoder(*lengths, *top, &e);
    for (size_t i = 0, more; i < in->n; i += BLOCK, all += more) {
        more = encode_block(&e, in->at + i * in->width, calm_size_min(BLOCK, in->n - i), in->width, out + all,
                            room - all);
        if (!more)
            return 0;
    }
    return all < room ? all : 0;
}

size_t calm_exponent_code_most(size_t n, size_t word_bytes)
{
    return HEADER + n * word_bytes + END;
}

size_t calm_exponent_encode(const void *values, size_t n, size_t word_bytes, bool plain, void *out)
{
    const words in = {values, n, word_bytes};
    uint8_t *bytes = out, top = 0;
    uint64_t lengths = 0;
    size_t payload = plain ? 0 : encode_blocks(&in, &top, &lengths, bytes + HEADER);
    const bool coded = payload > 0;
    if (!coded) {
        payload = n * word_bytes;
        if (payload)
            memcpy(bytes + HEADER, values, payload);
    }
    const uint64_t numbers[3] = {n, HEADER + payload + END, coded ? lengths : 0};
    const uint8_t small[8] = {coded, (uint8_t)word_bytes, coded ? top : 0};
    memcpy(bytes, MAGIC, 8);
    memcpy(bytes + 8, small, sizeof small);
    memcpy(bytes + 16, numbers, sizeof numbers);
    memset(bytes + HEADER + payload, 0, END);
    return HEADER + payload + END;
}

/* ---- decoding ---- */

typedef struct decoder {
    uint64_t many[WINDOW];    /* up to four exponents | their number << 32 | their bits << 40 */
    uint16_t one[WINDOW];     /* exponent | bits << 8                                        */
    uint8_t exponents[BLOCK];
} decoder;

/* Builds the tables of a complete code, in which every window begins with a code word. */
static bool new_decoder(uint64_t lengths, uint8_t top, decoder *d)
{
    uint16_t code[SYMBOLS];
    uint8_t length[SYMBOLS];
    if (!code_words(lengths, code, length))
        return false;
    for (size_t s = 0; s < SYMBOLS; s++)
        for (size_t w = code[s]; w < WINDOW; w += (size_t)1 << length[s])
            d->one[w] = (uint16_t)((uint8_t)(top - s) | length[s] << 8);
    for (size_t w = 0; w < WINDOW; w++) {
        uint64_t entry = 0;
        unsigned at = 0, n = 0;
        for (; n < AT_ONCE; n++) {
            const uint16_t one = d->one[w >> at];
            if (at + (one >> 8) > BITS)
                break;
            entry |= (uint64_t)(one & 0xff) << 8 * n;
            at += one >> 8;
        }
        d->many[w] = entry | (uint64_t)n << 32 | (uint64_t)at << 40;
    }
    return true;
}

/* State of reading a stream. */
typedef struct reading {
    const uint8_t *bytes;
    size_t at, end;             /* positions in bits  */
    uint8_t *out, *out_end;
} reading;

static inline uint64_t bits_at(const reading *r)
{
    uint64_t value;
    memcpy(&value, r->bytes + (r->at >> 3), 8);
    return value >> (r->at & 7);
}

/* Returns whether LOOKUPS look-ups fit into the stream and its output, whatever they decode. */
static inline bool has_more(const reading *r)
{
    return r->at + LOOKUPS * BITS <= r->end && r->out_end - r->out >= LOOKUPS * AT_ONCE;
}

static inline void look_up(const decoder *d, reading *r)
{
    uint64_t value = bits_at(r);
    unsigned used = 0;
#pragma GCC unroll 5
    for (int k = 0; k < LOOKUPS; k++) {
        const uint64_t entry = d->many[value & (WINDOW - 1)];
        const uint32_t found = (uint32_t)entry;
        const unsigned n = (unsigned)(entry >> 40);
        memcpy(r->out, &found, 4);
        r->out += entry >> 32 & 0xff;
        value >>= n;
        used += n;
    }
    r->at += used;
}

/* Decodes the rest of a stream; returns whether the stream ends in its last byte. */
static bool finish(const decoder *d, reading *r)
{
    while (has_more(r))
        look_up(d, r);
    while (r->out < r->out_end && r->at <= r->end) {
        const uint16_t one = d->one[bits_at(r) & (WINDOW - 1)];
        *r->out++ = (uint8_t)one;
        r->at += one >> 8;
    }
    return r->out == r->out_end && r->at <= r->end && r->end - r->at < 8;
}

/* Decodes the exponents of a block's n words from streams of these bytes, followed by at least 8 more bytes. */
static bool decode_streams(decoder *d, const uint8_t *at, const uint16_t bytes[STREAMS], size_t n)
{
    reading r[STREAMS];
    bool good = true;
    uint8_t *out = d->exponents;
    for (size_t q = 0; q < STREAMS; q++) {
        r[q] = (reading){at, 0, 8 * (size_t)bytes[q], out, out + quarter(n, q)};
        at += bytes[q];
        out = r[q].out_end;
    }
    while (has_more(&r[0]) && has_more(&r[1]) && has_more(&r[2]) && has_more(&r[3])) {
        look_up(d, &r[0]);
        look_up(d, &r[1]);
        look_up(d, &r[2]);
        look_up(d, &r[3]);
    }
    for (size_t q = 0; q < STREAMS; q++)
        good = finish(d, &r[q]) && good;
    return good;
}

/* Decodes a block of n words from `at`, with `left` bytes before the end; returns the bytes it read, or 0 if the
 * block is damaged. */
static size_t decode_block(decoder *d, const uint8_t *at, size_t left, size_t n, size_t width, uint8_t *out)
{
    uint16_t counts[STREAMS + 1];
    const uint8_t *upper = at + BLOCK_HEADER, *escapes = upper + n * (width - 1);
    if (left < BLOCK_HEADER)
        return 0;
    memcpy(counts, at, sizeof counts);
    const size_t n_escapes = counts[STREAMS];
    size_t all = BLOCK_HEADER + n * (width - 1) + 3 * n_escapes;
    const size_t streams = all;
    for (int q = 0; q < STREAMS; q++)
        all += counts[q];
    if (all > left || n_escapes > n || !decode_streams(d, at + streams, counts, n))
        return 0;
    for (size_t i = 0; i < n_escapes; i++) {
        uint16_t place;
        memcpy(&place, escapes + 2 * i, 2);
        if (place >= n)
            return 0;
        d->exponents[place] = escapes[2 * n_escapes + i];
    }
    if (width == 2)
        join2(n, d->exponents, upper, out);
    else
        join4(n, d->exponents, upper, upper + n, out);
    return all;
}

static bool decode_blocks(const uint8_t *at, size_t left, uint64_t lengths, uint8_t top, const words *of, uint8_t *out)
{
    decoder d;
    if (!new_decoder(lengths, top, &d))
        return false;
    for (size_t i = 0; i < of->n; i += BLOCK) {
        const size_t took = decode_block(&d, at, left, calm_size_min(BLOCK, of->n - i), of->width,
                                         out + i * of->width);
        if (!took)
            return false;
        at += took;
        left -= took;
    }
    return left == 0;
}

calm_status calm_exponent_decode(calm_ctx *ctx, const char *name, const void *bytes, size_t n_bytes, size_t n,
                                 size_t word_bytes, void *values)
{
    const uint8_t *at = bytes;
    uint64_t numbers[3];
    const words of = {NULL, n, word_bytes};
    if (n_bytes < HEADER + END || memcmp(at, MAGIC, 8) != 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: not an exponent code, expected \"%s\" and %zu bytes or more", name,
                         MAGIC, HEADER + END);
    memcpy(numbers, at + 16, sizeof numbers);
    if (numbers[0] != n || at[9] != word_bytes)
        return calm_fail(ctx, CALM_EFORMAT, "%s: has %llu words of %u bytes, expected %zu of %zu", name,
                         (unsigned long long)numbers[0], at[9], n, word_bytes);
    if (numbers[1] < HEADER + END || numbers[1] > n_bytes)
        return calm_fail(ctx, CALM_EFORMAT, "%s: its head says %llu bytes, but it has %zu", name,
                         (unsigned long long)numbers[1], n_bytes);
    const size_t payload = (size_t)numbers[1] - HEADER - END;
    if (at[8] > 1 || (!at[8] && payload != n * word_bytes))
        return calm_fail(ctx, CALM_EFORMAT, "%s: kind %u with %zu bytes of words, expected kind 0 with %zu, or kind 1",
                         name, at[8], payload, n * word_bytes);
    if (at[8])
        return decode_blocks(at + HEADER, payload, numbers[2], at[10], &of, values)
                   ? CALM_OK
                   : calm_fail(ctx, CALM_EFORMAT, "%s: the exponent code is damaged", name);
    if (payload)
        memcpy(values, at + HEADER, payload);
    return CALM_OK;
}
