/* A checkpoint's tokenizer as keys of a GGUF file. */
#include "ptq/export/gguf_tokenizer.h"

#include <string.h>

#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/export/gguf_templates.h"
#include "ptq/export/gguf_tokenizer_impl.h"
#include "ptq/tokenizer/vocab.h"

#define FILE_MAX ((size_t)64 * 1024 * 1024)
#define SPACE "\xe2\x96\x81"    /* U+2581, which represents a space in SentencePiece's vocabularies */

#define SPELLED_SPACE "\xc4\xa0" /* U+0120, which represents a space in byte-level vocabularies */

/* Score of a token that no merge produces, so that it is merged last. */
#define NO_SCORE (-1e9f)

typedef calm_gguf_written_token token;
typedef calm_gguf_vocab_reader reader;

static calm_status malformed(calm_ctx *ctx, const reader *in, const char *what)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: %s", in->path, what);
}

/* ---- tokens ---- */

static void set_token(reader *in, int64_t id, const char *text, size_t n, calm_gguf_piece_kind type, float score)
{
    if (id < 0 || (uint64_t)id >= in->n)
        in->n_left_out++;
    else
        in->tokens[id] = (token){text, n, score, type};
}

/* Parses "<0x0A>", SentencePiece's name of a byte. */
static bool is_byte(const char *text, size_t n)
{
    return n == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>' && strspn(text + 3, "0123456789ABCDEF") == 2;
}

static calm_status read_vocab(calm_ctx *ctx, reader *in)
{
    const calm_json *vocab = calm_json_get(in->model, "vocab"), *value;
    const char *text;
    void *iter = NULL;
    if (calm_json_typeof(vocab) != CALM_JSON_OBJECT)
        return malformed(ctx, in, "model.vocab: expected an object");
    while (calm_json_next(vocab, &iter, &text, &value)) {
        const int64_t id = calm_json_int(value, -1);
        if (id < 0)
            return malformed(ctx, in, "model.vocab: an id is not a whole number from 0 on");
        set_token(in, id, text, strlen(text), CALM_GGUF_PIECE_NORMAL, 0);
    }
    return CALM_OK;
}

static calm_status read_pieces(calm_ctx *ctx, reader *in)
{
    const calm_json *vocab = calm_json_get(in->model, "vocab");
    if (calm_json_typeof(vocab) != CALM_JSON_ARRAY)
        return malformed(ctx, in, "model.vocab: expected an array of [piece, score]");
    for (size_t i = 0; i < calm_json_size(vocab); i++) {
        const calm_json *piece = calm_json_at(calm_json_at(vocab, i), 0);
        const char *text = calm_json_string(piece, NULL);
        if (!text)
            return malformed(ctx, in, "model.vocab: a piece is not a string");
        set_token(in, (int64_t)i, text, calm_json_string_length(piece), CALM_GGUF_PIECE_NORMAL,
                  (float)calm_json_number(calm_json_at(calm_json_at(vocab, i), 1), 0));
    }
    return CALM_OK;
}

/* Returns the text with a space for each U+2581, in ctx->out, because llama.cpp searches user-defined tokens before it
 * replaces spaces. */
static calm_status with_spaces(calm_ctx *ctx, const char *text, const char **out)
{
    char *copy;
    size_t n = 0;
    CALM_TRY(calm_strf(ctx, ctx->out, &copy, "%s", text));
    for (const char *at = text; *at; at++)
        if (strncmp(at, SPACE, 3) == 0) {
            copy[n++] = ' ';
            at += 2;
        } else
            copy[n++] = *at;
    copy[n] = '\0';
    *out = copy;
    return CALM_OK;
}

static calm_status read_added(calm_ctx *ctx, reader *in, bool sentencepiece)
{
    const calm_json *added = calm_json_get(in->root, "added_tokens");
    for (size_t i = 0; i < calm_json_size(added); i++) {
        const calm_json *entry = calm_json_at(added, i);
        const char *text = calm_json_string(calm_json_get(entry, "content"), NULL);
        const int64_t id = calm_json_int(calm_json_get(entry, "id"), -1);
        const bool special = calm_json_bool(calm_json_get(entry, "special"), false);
        if (!text || id < 0)
            return malformed(ctx, in, "added_tokens: an entry lacks its id or content");
        if (sentencepiece && !special)
            CALM_TRY(with_spaces(ctx, text, &text));
        set_token(in, id, text, strlen(text), special ? CALM_GGUF_PIECE_CONTROL : CALM_GGUF_PIECE_USER_DEFINED,
                  sentencepiece ? -1000 : 0);
    }
    return CALM_OK;
}

/* Refuses two tokens with the same text, at which llama.cpp would stop. */
static calm_status check_unique(calm_ctx *ctx, const reader *in)
{
    CALM_SCOPED_SCRATCH(ctx);
    calm_vocab vocab;
    CALM_TRY(calm_vocab_init(ctx, ctx->scratch, &vocab, in->n));
    for (size_t i = 0; i < in->n; i++)
        if (!calm_vocab_add(&vocab, in->tokens[i].text, (uint32_t)in->tokens[i].n, (uint32_t)i))
            return calm_fail(ctx, CALM_EUNSUPPORTED,
                             "%s: tokens %u and %zu are both \"%.60s\", which llama.cpp does not read", in->path,
                             (unsigned)calm_vocab_find(&vocab, in->tokens[i].text, in->tokens[i].n), i,
                             in->tokens[i].text);
    return CALM_OK;
}

static calm_status fill_gaps(calm_ctx *ctx, reader *in)
{
    for (size_t i = 0; i < in->n; i++) {
        char *name;
        if (in->tokens[i].text)
            continue;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "[PAD%zu]", i));
        in->tokens[i] = (token){name, strlen(name), NO_SCORE, CALM_GGUF_PIECE_UNUSED};
    }
    CALM_TRY(check_unique(ctx, in));
    if (in->n_left_out)
        calm_log(ctx, CALM_LOG_WARNING, "%s: %zu tokens have ids beyond the %zu rows of the embedding and are left out",
                 in->path, in->n_left_out, in->n);
    return CALM_OK;
}

/* Adds llama.cpp's name of the kind of vocabulary, and the tokens; byte-level vocabularies have no scores. */
static calm_status add_tokens(calm_ctx *ctx, reader *in, const char *model, const char *pre, calm_gguf_keys *keys)
{
    CALM_TRY(fill_gaps(ctx, in));
    calm_gguf_add_string(keys, "tokenizer.ggml.model", model);
    calm_gguf_add_string(keys, "tokenizer.ggml.pre", pre);
    calm_gguf_add_array(keys, "tokenizer.ggml.tokens", CALM_GGUF_STRING, in->n);
    for (size_t i = 0; i < in->n; i++)
        calm_gguf_element_string(keys, in->tokens[i].text, in->tokens[i].n);
    if (strcmp(model, "gpt2") != 0) {
        calm_gguf_add_array(keys, "tokenizer.ggml.scores", CALM_GGUF_F32, in->n);
        for (size_t i = 0; i < in->n; i++)
            calm_gguf_element_f32(keys, in->tokens[i].score);
    }
    calm_gguf_add_array(keys, "tokenizer.ggml.token_type", CALM_GGUF_I32, in->n);
    for (size_t i = 0; i < in->n; i++)
        calm_gguf_element_i32(keys, (int32_t)in->tokens[i].type);
    return CALM_OK;
}

/* ---- merges ---- */

/* Splits merge `i`, "left right" or ["left", "right"], into left and right. */
static calm_status merge_at(calm_ctx *ctx, const reader *in, size_t i, const char *part[2], size_t n[2])
{
    const calm_json *merge = calm_json_at(calm_json_get(in->model, "merges"), i);
    if (calm_json_typeof(merge) == CALM_JSON_ARRAY) {
        for (size_t k = 0; k < 2; k++) {
            part[k] = calm_json_string(calm_json_at(merge, k), NULL);
            n[k] = calm_json_string_length(calm_json_at(merge, k));
        }
        return part[0] && part[1] ? CALM_OK : malformed(ctx, in, "model.merges: expected pairs of strings");
    }
    const char *text = calm_json_string(merge, ""), *space = strchr(text, ' ');
    if (!space)
        return malformed(ctx, in, "model.merges: expected two tokens with a space between");
    part[0] = text, n[0] = (size_t)(space - text);
    part[1] = space + 1, n[1] = strlen(space + 1);
    return CALM_OK;
}

static size_t n_merges(const reader *in)
{
    return calm_json_size(calm_json_get(in->model, "merges"));
}

/* Prints both sides of merge `i` with `between` them, in *text.  If `between` is a space, spaces within a token are
 * written as in byte-level vocabularies, because the space separates the sides. */
static calm_status print_merge(calm_ctx *ctx, const reader *in, size_t i, const char *between, calm_text *text)
{
    const char *part[2];
    size_t n[2];
    CALM_TRY(merge_at(ctx, in, i, part, n));
    text->length = 0;
    for (int side = 0; side < 2; side++) {
        for (size_t k = 0; k < n[side]; k++) {
            const bool spelled = *between && part[side][k] == ' ';
            calm_text_append(text, spelled ? SPELLED_SPACE : part[side] + k, spelled ? strlen(SPELLED_SPACE) : 1);
        }
        calm_text_append(text, between, side ? 0 : strlen(between));
    }
    return calm_text_check(ctx, text);
}

static calm_status add_merges(calm_ctx *ctx, const reader *in, calm_gguf_keys *keys)
{
    CALM_SCOPED_TEXT(text);
    calm_gguf_add_array(keys, "tokenizer.ggml.merges", CALM_GGUF_STRING, n_merges(in));
    for (size_t i = 0; i < n_merges(in); i++) {
        CALM_TRY(print_merge(ctx, in, i, " ", &text));
        calm_gguf_element_string(keys, text.data, text.length);
    }
    return CALM_OK;
}

/* Sets a token's score to minus the number of the first merge that produces it, so that llama.cpp merges in order. */
static calm_status score_merges(calm_ctx *ctx, reader *in)
{
    CALM_SCOPED_TEXT(text);
    calm_vocab vocab;
    CALM_TRY(calm_vocab_init(ctx, ctx->scratch, &vocab, in->n));
    for (size_t i = 0; i < in->n; i++)
        if (in->tokens[i].text && in->tokens[i].type == CALM_GGUF_PIECE_NORMAL) {
            calm_vocab_add(&vocab, in->tokens[i].text, (uint32_t)in->tokens[i].n, (uint32_t)i);
            in->tokens[i].score = NO_SCORE;
        }
    for (size_t i = 0; i < n_merges(in); i++) {
        CALM_TRY(print_merge(ctx, in, i, "", &text));
        const uint32_t id = calm_vocab_find(&vocab, text.data, text.length);
        if (id != CALM_NO_TOKEN && in->tokens[id].score == NO_SCORE)
            in->tokens[id].score = -(float)i;
    }
    return CALM_OK;
}

/* ---- kinds of tokenizers ---- */

/* Does a part of this type occur under `list` (of a Sequence, which may stand in another) or as the part itself? */
static const calm_json *find_part(const calm_json *part, const char *list, const char *type)
{
    const calm_json *parts = calm_json_get(part, list);
    if (strcmp(calm_json_string(calm_json_get(part, "type"), ""), type) == 0)
        return part;
    for (size_t i = 0; i < calm_json_size(parts); i++) {
        const calm_json *found = find_part(calm_json_at(parts, i), list, type);
        if (found)
            return found;
    }
    return NULL;
}

/* Unicode's forms are applied by llama.cpp where a character map has them, and others not at all (llm_tokenizer_ugm,
 * llm_tokenizer_spm, llm_tokenizer_bpe).  `maps`: may this kind of tokenizer have a map? */
static void note_forms(calm_ctx *ctx, const reader *in, bool maps)
{
    static const struct {
        const char *type;
        bool mapped;    /* SentencePiece's maps have it */
    } forms[] = {{"NFC", true},   {"NFKC", true},       {"NFD", false},         {"NFKD", false},
                 {"Nmt", true},   {"Lowercase", false}, {"StripAccents", false}};
    const calm_json *normalizer = calm_json_get(in->root, "normalizer"),
                    *found = find_part(normalizer, "normalizers", "Precompiled");
    const bool map = maps && calm_json_string_length(calm_json_get(found, "precompiled_charsmap")) > 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (find_part(normalizer, "normalizers", forms[i].type) && !(map && forms[i].mapped))
            calm_log(ctx, CALM_LOG_WARNING, "%s: it normalizes texts by %s%s; llama.cpp does not, so texts that this "
                     "changes get other tokens there", in->path, forms[i].type,
                     maps && forms[i].mapped ? " without a character map" : "");
}

static calm_status find_pre(calm_ctx *ctx, const reader *in, const char *wanted, const char **out)
{
    const bool whole = calm_json_bool(calm_json_get(in->model, "ignore_merges"), false);
    char *pattern;
    *out = wanted;
    if (wanted)
        return CALM_OK;
    CALM_TRY(calm_gguf_pattern(ctx, in->root, &pattern));
    *out = calm_gguf_find_pre(pattern, whole);
    if (*out)
        return CALM_OK;
    for (char *at = pattern; *at; at++)
        if (*at == '\n')
            *at = at[1] ? ',' : '\0';
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: llama.cpp's name of its pre-tokenizer is not known (\"%.500s\"); say it with "
                     "`export.gguf_pre` (qwen2, llama-bpe, gpt-2, ...: those of llama.cpp's src/llama-vocab.cpp)",
                     in->path, pattern);
}

static calm_status add_byte_level(calm_ctx *ctx, reader *in, const char *wanted, calm_gguf_keys *keys)
{
    const calm_json *level = find_part(calm_json_get(in->root, "pre_tokenizer"), "pretokenizers", "ByteLevel");
    const char *pre;
    CALM_TRY(find_pre(ctx, in, wanted, &pre));
    if (calm_json_bool(calm_json_get(level, "add_prefix_space"), false))
        calm_log(ctx, CALM_LOG_WARNING, "%s: it puts a space before each text; llama.cpp does not", in->path);
    note_forms(ctx, in, false);
    CALM_TRY(read_vocab(ctx, in));
    CALM_TRY(read_added(ctx, in, false));
    CALM_TRY(add_tokens(ctx, in, "gpt2", pre, keys));
    return add_merges(ctx, in, keys);
}

/* Sets the kinds of the unknown token and of bytes. */
static void mark_kinds(reader *in, const char *unknown, int64_t unknown_id)
{
    for (size_t i = 0; i < in->n; i++) {
        token *t = &in->tokens[i];
        if (t->text && is_byte(t->text, t->n))
            t->type = CALM_GGUF_PIECE_BYTE;
        if ((int64_t)i == unknown_id
            || (t->text && unknown && t->n == strlen(unknown) && memcmp(t->text, unknown, t->n) == 0))
            t->type = CALM_GGUF_PIECE_UNKNOWN;
    }
}

/* Does the tokenizer put a space before the text? */
static bool adds_space(const reader *in)
{
    const calm_json *normalizer = calm_json_get(in->root, "normalizer"),
                    *pre = calm_json_get(in->root, "pre_tokenizer");
    const calm_json *prepend = find_part(normalizer, "normalizers", "Prepend"),
                    *meta = find_part(pre, "pretokenizers", "Metaspace");
    if (prepend)
        return strcmp(calm_json_string(calm_json_get(prepend, "prepend"), ""), SPACE) == 0;
    if (!meta)
        return false;
    const char *scheme = calm_json_string(calm_json_get(meta, "prepend_scheme"), NULL);
    return scheme ? strcmp(scheme, "never") != 0 : calm_json_bool(calm_json_get(meta, "add_prefix_space"), true);
}

static calm_status add_sentencepiece(calm_ctx *ctx, reader *in, calm_gguf_keys *keys)
{
    CALM_TRY(read_vocab(ctx, in));
    CALM_TRY(score_merges(ctx, in));
    CALM_TRY(read_added(ctx, in, true));
    mark_kinds(in, calm_json_string(calm_json_get(in->model, "unk_token"), NULL), -1);
    CALM_TRY(add_tokens(ctx, in, "llama", "default", keys));
    calm_gguf_add_bool(keys, "tokenizer.ggml.add_space_prefix", adds_space(in));
    note_forms(ctx, in, true);
    return CALM_OK;
}

/* A second token with the text of the unknown one, which some files add: llama.cpp stops at it, and a text becomes it
 * only where the text says so. */
static void drop_second_unknown(calm_ctx *ctx, reader *in, int64_t unknown)
{
    const token *first = unknown >= 0 && (uint64_t)unknown < in->n ? &in->tokens[unknown] : NULL;
    for (size_t i = 0; first && first->text && i < in->n; i++) {
        token *t = &in->tokens[i];
        if (t == first || !t->text || t->n != first->n || memcmp(t->text, first->text, t->n) != 0)
            continue;
        calm_log(ctx, CALM_LOG_WARNING, "%s: token %zu is \"%.60s\" as token %lld is, the unknown one; it is left out",
                 in->path, i, t->text, (long long)unknown);
        *t = (token){0};
    }
}

/* Does the tokenizer reduce runs of spaces to one, and remove spaces at the ends? */
static bool merges_spaces(const reader *in)
{
    const calm_json *normalizer = calm_json_get(in->root, "normalizer"),
                    *replace = find_part(normalizer, "normalizers", "Replace"),
                    *pattern = calm_json_get(replace, "pattern");
    return find_part(calm_json_get(in->root, "pre_tokenizer"), "pretokenizers", "WhitespaceSplit")
           || strcmp(calm_json_string(calm_json_get(pattern, "Regex"), ""), " {2,}") == 0;
}

/* Adds the bytes of SentencePiece's character map. */
static calm_status add_charsmap(calm_ctx *ctx, const reader *in, calm_gguf_keys *keys)
{
    const calm_json *part = find_part(calm_json_get(in->root, "normalizer"), "normalizers", "Precompiled"),
                    *map = calm_json_get(part, "precompiled_charsmap");
    const size_t n_letters = calm_json_string_length(map);
    unsigned char *bytes;
    size_t n;
    CALM_SCOPED_SCRATCH(ctx);
    if (!part || !n_letters)
        return CALM_OK;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, bytes, n_letters));
    if (!calm_base64_decode(calm_json_string(map, ""), n_letters, bytes, &n))
        return malformed(ctx, in, "normalizer.precompiled_charsmap: expected base64");
    calm_gguf_add_bytes(keys, "tokenizer.ggml.precompiled_charsmap", bytes, n);
    return CALM_OK;
}

static calm_status add_unigram(calm_ctx *ctx, reader *in, calm_gguf_keys *keys)
{
    CALM_TRY(read_pieces(ctx, in));
    CALM_TRY(read_added(ctx, in, true));
    const int64_t unknown = calm_json_int(calm_json_get(in->model, "unk_id"), -1);
    mark_kinds(in, NULL, unknown);
    drop_second_unknown(ctx, in, unknown);
    CALM_TRY(add_tokens(ctx, in, "t5", "default", keys));
    calm_gguf_add_bool(keys, "tokenizer.ggml.add_space_prefix", adds_space(in));
    calm_gguf_add_bool(keys, "tokenizer.ggml.remove_extra_whitespaces", merges_spaces(in));
    note_forms(ctx, in, true);
    return add_charsmap(ctx, in, keys);
}

/* ---- WordPiece ---- */

/* Converts tokens to llama.cpp's form: "##ing" becomes "ing", "play" gets a leading U+2581; added tokens do not change.
 * */
static calm_status mark_words(calm_ctx *ctx, reader *in, const char *prefix)
{
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < in->n; i++) {
        token *t = &in->tokens[i];
        char *text;
        if (!t->text || t->type != CALM_GGUF_PIECE_NORMAL)
            continue;
        if (length && t->n > length && memcmp(t->text, prefix, length) == 0) {
            t->text += length;
            t->n -= length;
            continue;
        }
        CALM_TRY(calm_strf(ctx, ctx->out, &text, SPACE "%s", t->text));
        t->text = text;
        t->n += strlen(SPACE);
    }
    return CALM_OK;
}

/* Adds the normalisation; by default accents are removed if text is converted to lower case. */
static void add_bert_normalizer(calm_ctx *ctx, const reader *in, calm_gguf_keys *keys)
{
    const calm_json *part = find_part(calm_json_get(in->root, "normalizer"), "normalizers", "BertNormalizer");
    const bool lower = calm_json_bool(calm_json_get(part, "lowercase"), true);
    if (!calm_json_bool(calm_json_get(part, "clean_text"), true)
        || !calm_json_bool(calm_json_get(part, "handle_chinese_chars"), true))
        calm_log(ctx, CALM_LOG_WARNING, "%s: clean_text or handle_chinese_chars is switched off; llama.cpp does both",
                 in->path);
    calm_gguf_add_bool(keys, "tokenizer.ggml.normalizer.lowercase", lower);
    calm_gguf_add_bool(keys, "tokenizer.ggml.normalizer.strip_accents",
                       calm_json_bool(calm_json_get(part, "strip_accents"), lower));
}

static calm_status add_wordpiece(calm_ctx *ctx, reader *in, calm_gguf_keys *keys)
{
    const calm_json *normalizer = calm_json_get(in->root, "normalizer"),
                    *pre = calm_json_get(in->root, "pre_tokenizer");
    if (!find_part(normalizer, "normalizers", "BertNormalizer") || !find_part(pre, "pretokenizers", "BertPreTokenizer"))
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: a WordPiece without BertNormalizer and BertPreTokenizer, which "
                         "llama.cpp has in its code; take another --format", in->path);
    CALM_TRY(read_vocab(ctx, in));
    CALM_TRY(read_added(ctx, in, false));
    CALM_TRY(mark_words(ctx, in, calm_json_string(calm_json_get(in->model, "continuing_subword_prefix"), "##")));
    CALM_TRY(add_tokens(ctx, in, "bert", "default", keys));
    in->embeds = true;    /* for every model, because llama.cpp needs the ids */
    add_bert_normalizer(ctx, in, keys);
    note_forms(ctx, in, false);
    return CALM_OK;
}

static calm_status add_by_kind(calm_ctx *ctx, reader *in, const char *pre, calm_gguf_keys *keys)
{
    const char *assumed = calm_json_get(in->model, "merges") ? "BPE" : "none";
    const char *type = calm_json_string(calm_json_get(in->model, "type"), assumed);
    if (strcmp(type, "Unigram") == 0)
        return add_unigram(ctx, in, keys);
    if (strcmp(type, "WordPiece") == 0)
        return add_wordpiece(ctx, in, keys);
    if (strcmp(type, "BPE") != 0)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: a model of type %s; calm writes BPE, Unigram and WordPiece to "
                         "GGUF", in->path, type);
    if (find_part(calm_json_get(in->root, "pre_tokenizer"), "pretokenizers", "ByteLevel"))
        return add_byte_level(ctx, in, pre, keys);
    if (calm_json_bool(calm_json_get(in->model, "byte_fallback"), false))
        return add_sentencepiece(ctx, in, keys);
    return calm_fail(ctx, CALM_EUNSUPPORTED,
                     "%s: a BPE model that is neither byte-level nor has bytes to fall back to; llama.cpp "
                     "has none of this kind",
                     in->path);
}

calm_status calm_gguf_add_tokenizer(calm_ctx *ctx, const char *dir, const calm_json *config, size_t n_tokens,
                                    bool embeds, const char *pre, calm_gguf_keys *keys)
{
    reader in = {.config = config, .n = n_tokens, .embeds = embeds};
    CALM_SCOPED_JSON(root);
    CALM_SCOPED_JSON(settings);
    char *path, *settings_path;
    CALM_TRY(calm_path_beside(ctx, ctx->out, &path, dir, "tokenizer.json"));
    CALM_TRY(calm_path_beside(ctx, ctx->scratch, &settings_path, dir, "tokenizer_config.json"));
    if (!calm_path_exists(path)) {
        calm_log(ctx, CALM_LOG_WARNING, "%s: no such file; llama.cpp will take ids alone", path);
        calm_gguf_add_string(keys, "tokenizer.ggml.model", "none");
        return CALM_OK;
    }
    in.path = path;
    CALM_TRY(calm_json_read(ctx, path, FILE_MAX, &root));
    if (calm_path_exists(settings_path))
        CALM_TRY(calm_json_read(ctx, settings_path, FILE_MAX, &settings));
    in.root = root;
    in.model = calm_json_get(root, "model");
    in.settings = settings;
    CALM_TRY(CALM_NEW(ctx, ctx->out, in.tokens, in.n));
    CALM_TRY(add_by_kind(ctx, &in, pre, keys));
    calm_gguf_add_special(&in, keys);
    return calm_gguf_add_templates(ctx, dir, settings, keys);
}
