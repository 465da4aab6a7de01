/* Windows of tokens: cut from a text or from JSON documents, and chosen. */
#include "ptq/data/windows.h"

#include <string.h>

#include "ptq/base/array.h"
#include "ptq/base/rng.h"
#include "ptq/data/texts.h"

#define TEXT_MAX ((size_t)4 * 1024 * 1024 * 1024)
#define RNG_STREAM_WINDOWS 1

/* Windows found so far, without their heads, as ranges of one growing array of ids. */
typedef struct cutter {
    const uint32_t *head;    /* [n_head] ids at the beginning of each window */
    size_t n_head;
    uint32_t *ids;
    size_t n_ids, ids_capacity;
    size_t *begin, *length;
    bool *bare;              /* whether the window has no head */
    size_t n, capacity;
} cutter;

static calm_status add_window(calm_ctx *ctx, cutter *cut, size_t begin, size_t length, bool bare)
{
    size_t capacity = cut->capacity, bare_capacity = cut->capacity;
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, cut->begin, cut->n, &capacity, cut->n + 1));
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, cut->bare, cut->n, &bare_capacity, cut->n + 1));
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, cut->length, cut->n, &cut->capacity, cut->n + 1));
    cut->bare[cut->n] = bare;
    cut->begin[cut->n] = begin;
    cut->length[cut->n++] = length;
    return CALM_OK;
}

/* Appends a document's ids and cuts them; `rest` keeps a shorter last window, `bare` means windows without a head. */
static calm_status cut_ids(calm_ctx *ctx, const calm_windows_options *options, bool rest, bool bare,
                           const uint32_t *ids, size_t n, cutter *cut)
{
    const size_t n_head = bare ? 0 : cut->n_head;
    CALM_TRY(CALM_GROW(ctx, ctx->scratch, cut->ids, cut->n_ids, &cut->ids_capacity, cut->n_ids + n));
    if (n)
        memcpy(cut->ids + cut->n_ids, ids, n * sizeof *ids);
    /* collect() adds the heads, so a window has this many tokens of the text. */
    const size_t own = options->seqlen - n_head;
    size_t at = 0;
    for (; at + own <= n; at += own)
        CALM_TRY(add_window(ctx, cut, cut->n_ids + at, own, bare));
    if (rest && at < n && n_head + n - at >= 2)
        CALM_TRY(add_window(ctx, cut, cut->n_ids + at, n - at, bare));
    cut->n_ids += n;
    return CALM_OK;
}

/* Finds the ids with which every window of a text begins. */
static calm_status find_head(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                             const calm_windows_options *options, cutter *cut)
{
    cut->n_head = options->special ? calm_tokenizer_head(tokenizer, &cut->head) : 0;
    for (size_t i = 0; options->vocab && i < cut->n_head; i++)
        if (cut->head[i] >= options->vocab)
            return calm_fail(ctx, CALM_EFORMAT,
                             "%s: the tokenizer's template begins with id %u (\"%s\"), but the model's vocabulary has "
                             "%zu: tokenizer and model do not belong together", path, cut->head[i],
                             calm_tokenizer_token(tokenizer, cut->head[i]), options->vocab);
    if (options->seqlen <= cut->n_head)
        return calm_fail(ctx, CALM_EARG,
                         "windows of %zu tokens: expected more than the %zu that the tokenizer's template begins with",
                         options->seqlen, cut->n_head);
    return CALM_OK;
}

/* Tokenizes and cuts a document.  The rendered text of a chat may begin with the head, or has none. */
static calm_status cut_document(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *where, const char *text,
                                size_t n_bytes, const calm_windows_options *options, bool rest, bool chat, cutter *cut)
{
    CALM_SCOPED_ARENA(arena);
    uint32_t *ids;
    size_t n;
    CALM_TRY(calm_texts_encode(ctx, &arena, tokenizer, where, text, n_bytes, false, &ids, &n));
    CALM_TRY(calm_texts_check_ids(ctx, where, ids, n, options->vocab));
    const bool headed = n >= cut->n_head && (!cut->n_head || memcmp(ids, cut->head, cut->n_head * sizeof *ids) == 0);
    const size_t skip = chat && headed ? cut->n_head : 0;
    return cut_ids(ctx, options, rest, chat && !headed, ids + skip, n - skip, cut);
}

static calm_status cut_texts(calm_ctx *ctx, const calm_tokenizer *tokenizer, calm_texts *texts,
                             const calm_windows_options *options, cutter *cut)
{
    const char *text = texts->text;
    size_t n = texts->n;
    if (calm_lines_blank(text, n))
        return calm_fail(ctx, CALM_EARG, "%s: the text is empty", texts->path);
    if (!texts->is_json)
        return cut_document(ctx, tokenizer, texts->where, text, n, options, false, false, cut);
    for (;;) {
        CALM_TRY(calm_texts_next(ctx, texts, &text, &n));
        if (!text)
            return CALM_OK;
        CALM_TRY(cut_document(ctx, tokenizer, texts->where, text, n, options, true, texts->is_chat, cut));
    }
}

/* Returns the index, among `available`, of the i-th of n windows, n <= available.  The last n_spread are spread over
 * the windows that the others, the first of the text, leave: each is in the middle of one of n_spread equal parts.
 * The result increases with i. */
static size_t place(size_t i, size_t n, size_t n_spread, size_t available)
{
    const size_t n_first = n - calm_size_min(n, n_spread), rest = available - n_first;
    /* Adjacent windows are from one article and would count less than their number. */
    return i < n_first ? i : n_first + (2 * (i - n_first) + 1) * rest / (2 * (n - n_first));
}

/* Chooses `add` more of `available` windows, behind chosen [n], spread over the remaining windows and far from the
 * chosen ones: the `first` additional windows at the boundaries of the parts whose middle is chosen, later ones
 * between two of those. */
static calm_status spread_more(calm_ctx *ctx, size_t n, size_t add, bool first, size_t available, size_t *chosen)
{
    CALM_SCOPED_SCRATCH(ctx);
    bool *taken;
    size_t *left, n_left = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, taken, available));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, left, available));
    for (size_t i = 0; i < n; i++)
        taken[chosen[i]] = true;
    for (size_t w = 0; w < available; w++)
        if (!taken[w])
            left[n_left++] = w;
    for (size_t i = 0; i < add; i++)
        chosen[n + i] = left[(2 * i + !first) * n_left / (2 * add)];
    return CALM_OK;
}

calm_status calm_windows_choose(calm_ctx *ctx, const calm_windows_options *options, size_t available, size_t *n,
                                size_t **chosen)
{
    const size_t asked = options->n_windows && options->n_windows < available ? options->n_windows : available;
    const size_t spread = options->n_spread, more = spread * (((size_t)1 << options->doublings) - 1);
    *n = asked + calm_size_min(more, available - asked);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *chosen, *n ? *n : 1));
    for (size_t i = 0; i < asked; i++)
        (*chosen)[i] = place(i, asked, spread, available);
    for (size_t at = asked, add = spread; at < *n; at += add, add *= 2)
        CALM_TRY(spread_more(ctx, at, calm_size_min(add, *n - at), at == asked, available, *chosen));
    if (options->seed >= 0 &&
        !calm_rng_choose((uint64_t)options->seed, RNG_STREAM_WINDOWS, available, *n, *chosen))
        return calm_fail(ctx, CALM_ENOMEM, "out of memory drawing %zu windows", *n);
    return CALM_OK;
}

static calm_status digest(calm_ctx *ctx, calm_windows *windows)
{
    calm_sha256 sha;
    calm_sha256_init(&sha);
    for (size_t w = 0; w < windows->n; w++) {
        const uint64_t length = windows->begin[w + 1] - windows->begin[w];
        calm_sha256_update(&sha, &length, sizeof length);
    }
    calm_sha256_update(&sha, windows->ids, windows->begin[windows->n] * sizeof *windows->ids);
    if (windows->positions)
        calm_sha256_update(&sha, windows->positions, windows->begin[windows->n] * sizeof *windows->positions);
    if (windows->types)
        calm_sha256_update(&sha, windows->types, windows->begin[windows->n]);
    return calm_sha256_finish(ctx, &sha, windows->sha256);
}

static calm_status collect(calm_ctx *ctx, const char *path, const calm_windows_options *options, const cutter *cut,
                           calm_windows *out)
{
    size_t *chosen, total = 0;
    if (cut->n == 0 && cut->n_head)
        return calm_fail(ctx, CALM_EARG,
                         "%s: %zu tokens, expected at least %zu for a window of %zu with what the tokenizer's template "
                         "begins with", path, cut->n_ids, options->seqlen - cut->n_head, options->seqlen);
    if (cut->n == 0)
        return calm_fail(ctx, CALM_EARG, "%s: %zu tokens, expected at least one window of %zu", path, cut->n_ids,
                         options->seqlen);
    *out = (calm_windows){.n_tokens = cut->n_ids, .n_available = cut->n};
    CALM_TRY(calm_windows_choose(ctx, options, cut->n, &out->n, &chosen));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, out->n + 1));
    for (size_t w = 0; w < out->n; w++)
        total += (cut->bare[chosen[w]] ? 0 : cut->n_head) + cut->length[chosen[w]];
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, total));
    for (size_t w = 0; w < out->n; w++) {
        const size_t own = cut->length[chosen[w]], n_head = cut->bare[chosen[w]] ? 0 : cut->n_head;
        const size_t length = n_head + own;
        uint32_t *ids = out->ids + out->begin[w];
        if (n_head)
            memcpy(ids, cut->head, n_head * sizeof *ids);
        memcpy(ids + n_head, cut->ids + cut->begin[chosen[w]], own * sizeof *ids);
        out->begin[w + 1] = out->begin[w] + length;
        out->longest = calm_size_max(out->longest, length);
    }
    return digest(ctx, out);
}

calm_status calm_windows_read(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                              const calm_windows_options *options, calm_windows *out)
{
    cutter cut = {0};
    if (options->seqlen < 2)
        return calm_fail(ctx, CALM_EARG, "windows of %zu tokens: expected at least 2", options->seqlen);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(find_head(ctx, tokenizer, path, options, &cut));
    CALM_SCOPED(calm_texts, calm_texts_close) texts = {0};
    CALM_TRY(calm_texts_open(ctx, path, TEXT_MAX, &texts));
    texts.chat = options->chat;
    CALM_TRY(cut_texts(ctx, tokenizer, &texts, options, &cut));
    return collect(ctx, path, options, &cut, out);
}

/* Copies the ids of sequence s without padding to kept [n]; returns their number. */
static size_t drop_padding(const calm_token_file *file, size_t s, uint32_t *kept)
{
    size_t n = 0;
    for (size_t i = file->begin[s]; i < file->begin[s + 1]; i++)
        if (!file->mask || file->mask[i])
            kept[n++] = file->ids[i];
    return n;
}

calm_status calm_windows_from_tokens(calm_ctx *ctx, const calm_token_file *file, const calm_windows_options *options,
                                     calm_windows *out)
{
    cutter cut = {0};
    uint32_t *kept;
    if (options->seqlen < 2)
        return calm_fail(ctx, CALM_EARG, "windows of %zu tokens: expected at least 2", options->seqlen);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, kept, file->longest));
    for (size_t s = 0; s < file->n; s++)
        CALM_TRY(cut_ids(ctx, options, true, false, kept, drop_padding(file, s, kept), &cut));
    return collect(ctx, file->path, options, &cut, out);
}

calm_status calm_windows_from_sequences(calm_ctx *ctx, const calm_token_file *file, calm_windows *out)
{
    const size_t total = file->begin[file->n];
    size_t n = 0;
    *out = (calm_windows){.n = file->n, .n_available = file->n};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, file->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, total));
    if (file->mask)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->positions, total));
    if (file->types)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->types, total));
    for (size_t s = 0; s < file->n; s++) {
        for (size_t i = file->begin[s]; i < file->begin[s + 1]; i++) {
            if (file->mask && !file->mask[i])
                continue;
            out->ids[n] = file->ids[i];
            if (out->positions)
                out->positions[n] = (uint32_t)(i - file->begin[s]);
            if (out->types)
                out->types[n] = file->types[i];
            n++;
        }
        out->begin[s + 1] = n;
        out->longest = n - out->begin[s] > out->longest ? n - out->begin[s] : out->longest;
    }
    out->n_tokens = n;
    return digest(ctx, out);
}

calm_status calm_windows_join(calm_ctx *ctx, const calm_windows *texts, size_t n, calm_windows *out)
{
    size_t tokens = 0, most = 0;
    *out = (calm_windows){.n_texts = n};
    for (size_t t = 0; t < n; t++) {
        out->n_tokens += texts[t].n_tokens;
        out->n_available += texts[t].n_available;
        out->longest = calm_size_max(out->longest, texts[t].longest);
        tokens += texts[t].begin[texts[t].n];
        out->n += texts[t].n;
        most = calm_size_max(most, texts[t].n);
    }
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, tokens));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, out->n + 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->text, out->n));
    size_t w = 0;
    for (size_t turn = 0; turn < most; turn++)
        for (size_t t = 0; t < n; t++) {
            if (turn >= texts[t].n)
                continue;
            const size_t from = texts[t].begin[turn], length = texts[t].begin[turn + 1] - from;
            memcpy(out->ids + out->begin[w], texts[t].ids + from, length * sizeof *out->ids);
            out->text[w] = (uint8_t)t;
            out->begin[w + 1] = out->begin[w] + length;
            w++;
        }
    return digest(ctx, out);
}

size_t calm_windows_text_tokens(const calm_windows *windows, size_t text)
{
    size_t tokens = 0;
    for (size_t w = 0; w < windows->n; w++)
        if (!windows->text || windows->text[w] == text)
            tokens += windows->begin[w + 1] - windows->begin[w];
    return tokens;
}

calm_status calm_windows_slice(calm_ctx *ctx, const calm_windows *from, size_t w0, size_t n, calm_windows *out)
{
    *out = *from;
    out->n = n;
    out->longest = 0;
    out->ids = from->ids + from->begin[w0];
    out->positions = from->positions ? from->positions + from->begin[w0] : NULL;
    out->types = from->types ? from->types + from->begin[w0] : NULL;
    out->text = from->text ? from->text + w0 : NULL;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, n + 1));
    for (size_t w = 0; w < n; w++) {
        const size_t length = from->begin[w0 + w + 1] - from->begin[w0 + w];
        out->begin[w + 1] = out->begin[w] + length;
        out->longest = calm_size_max(out->longest, length);
    }
    return digest(ctx, out);
}

calm_status calm_windows_cut(calm_ctx *ctx, const calm_windows *from, size_t n, size_t tokens, calm_windows *out)
{
    *out = (calm_windows){.n = n, .n_tokens = from->n_tokens, .n_available = from->n_available};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->begin, n + 1));
    for (size_t w = 0; w < n; w++) {
        const size_t length = calm_size_min(from->begin[w + 1] - from->begin[w], tokens);
        out->begin[w + 1] = out->begin[w] + length;
        out->longest = calm_size_max(out->longest, length);
    }
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->ids, out->begin[n]));
    if (from->positions)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->positions, out->begin[n]));
    if (from->types)
        CALM_TRY(CALM_NEW(ctx, ctx->out, out->types, out->begin[n]));
    for (size_t w = 0; w < n; w++) {
        const size_t at = out->begin[w], length = out->begin[w + 1] - at;
        memcpy(out->ids + at, from->ids + from->begin[w], length * sizeof *out->ids);
        if (out->positions)
            memcpy(out->positions + at, from->positions + from->begin[w], length * sizeof *out->positions);
        if (out->types)
            memcpy(out->types + at, from->types + from->begin[w], length * sizeof *out->types);
    }
    return digest(ctx, out);
}

size_t calm_windows_before(size_t n, size_t batch, size_t part, size_t n_parts)
{
    const size_t n_batches = batch ? (n + batch - 1) / batch : 0;
    return calm_size_min(n_batches * part / n_parts * batch, n);
}

calm_status calm_windows_part(calm_ctx *ctx, const calm_windows *from, size_t batch, size_t part, size_t n_parts,
                              calm_windows *out, size_t *first)
{
    *first = calm_windows_before(from->n, batch, part, n_parts);
    const size_t end = calm_windows_before(from->n, batch, part + 1, n_parts);
    CALM_TRY(calm_windows_slice(ctx, from, *first, end - *first, out));
    out->longest = from->longest;
    return CALM_OK;
}

size_t calm_windows_reach(const calm_windows *windows)
{
    size_t reach = windows->longest;
    for (size_t w = 0; windows->positions && w < windows->n; w++)
        if (windows->begin[w + 1] > windows->begin[w] && windows->positions[windows->begin[w + 1] - 1] >= reach)
            reach = windows->positions[windows->begin[w + 1] - 1] + 1;
    return reach;
}

void calm_windows_warn_positions(calm_ctx *ctx, const calm_windows *windows, size_t positions, const char *dir,
                                 const char *name)
{
    const size_t reach = calm_windows_reach(windows);
    if (reach > positions)
        calm_log(ctx, CALM_LOG_WARNING, "%s: windows of %zu tokens are longer than the %zu positions of %s "
                 "(max_position_embeddings)", name, reach, positions, dir);
}

size_t calm_windows_range_end(const calm_windows *windows, size_t first, size_t end, size_t tokens)
{
    size_t next = first + 1;
    while (next < end && windows->begin[next] - windows->begin[first] < tokens)
        next++;
    return next;
}
