/* Converts the tokenizer of a GGUF file to a tokenizer.json. */
#include "ptq/tokenizer/gguf_vocab.h"

#include <string.h>

#include "ptq/base/base64.h"
#include "ptq/base/file.h"
#include "ptq/io/folder.h"
#include "ptq/io/gguf_split.h"
#include "ptq/text/unicode.h"
#include "ptq/tokenizer/gguf_pieces.h"
#include "ptq/tokenizer/gguf_pre.h"

#define SPACE "\xe2\x96\x81"    /* U+2581, the space in SentencePiece vocabularies */

/* Default id of the unknown token in BERT vocabularies; those of [CLS] and [SEP] follow. */
#define FIRST_OF_BERT 100

/* A part of tokenizer.json with this type and further members. */
#define PART(type, ...) CALM_OBJECT(CALM_KV("type", type), __VA_ARGS__)

typedef struct writer {
    const calm_gguf *file;
    calm_gguf_pieces pieces;
    calm_json *root;
    bool sentencepiece, wordpiece;
} writer;

/* ---- keys ---- */

static const calm_gguf_key *find(const calm_gguf *file, const char *name)
{
    char key[64] = "tokenizer.ggml.";
    strncat(key, name, sizeof key - 1 - strlen(key));
    return calm_gguf_find_key(file, key);
}

static bool truth(const calm_gguf *file, const char *name, bool fallback)
{
    const calm_gguf_key *key = find(file, name);
    return key && key->kind == CALM_GGUF_BOOL && !key->array ? key->data[0] != 0 : fallback;
}

/* Returns whether the bytes can become a JSON string. */
static bool is_text(const char *text, size_t n)
{
    return n <= INT32_MAX && calm_utf8_invalid_at(text, n) == n && (!n || !memchr(text, 0, n));
}

/* Copies a string value to ctx->out; NULL if the key is missing, not a string or not UTF-8. */
static calm_status string_of(calm_ctx *ctx, const calm_gguf_key *key, char **out)
{
    const char *text;
    size_t at = 0, n;
    *out = NULL;
    if (!key || key->array || !calm_gguf_next_string(key, &at, &text, &n) || !is_text(text, n))
        return CALM_OK;
    return calm_strf(ctx, ctx->out, out, "%.*s", (int)n, text);
}

/* Returns the text of a special token such as "bos", NULL: none.  If the file lacks its id, SentencePiece
 * vocabularies have the default ids 0, 1, 2, and BERT's 100, 101, 102. */
static const char *special(const writer *w, const char *which)
{
    static const char *const names[2][3] = {{"unknown", "bos", "eos"}, {"unknown", "bos", "seperator"}};
    const char *const *usual = names[w->wordpiece];
    char name[32] = "";
    int64_t id = -1;
    strncat(strncat(name, which, 16), "_token_id", 10);
    if (!calm_gguf_int(find(w->file, name), 0, &id))
        for (int64_t i = 0; (w->sentencepiece || w->wordpiece) && i < 3; i++)
            id = strcmp(which, usual[i]) == 0 ? i + (w->wordpiece ? FIRST_OF_BERT : 0) : id;
    return id >= 0 && (uint64_t)id < w->pieces.n ? w->pieces.of[id].text : NULL;
}

/* ---- members ---- */

static calm_json *replace(const char *from, const char *to)
{
    return PART("Replace", CALM_KV("pattern", CALM_OBJECT(CALM_KV("String", from))), CALM_KV("content", to));
}

static calm_json *sequence(const char *list, size_t n, calm_json *const parts[])
{
    calm_json *all = calm_json_new_array();
    for (size_t i = 0; i < n; i++)
        if (parts[i])
            calm_json_add(all, parts[i]);
    return PART("Sequence", CALM_KV(list, all));
}

static calm_json *only(const char *type)
{
    calm_json *part = calm_json_new_object();
    calm_json_set_string(part, "type", type);
    return part;
}

static void add_special_piece(const writer *w, calm_json *single, calm_json *tokens, const char *text)
{
    const int64_t id = (int64_t)calm_vocab_find(&w->pieces.ids, text, strlen(text));
    calm_json *ids = calm_json_new_array(), *texts = calm_json_new_array();
    calm_json_add(ids, calm_json_of_int(id));
    calm_json_add_string(texts, text);
    calm_json_add(single, CALM_OBJECT(CALM_KV("SpecialToken", CALM_OBJECT(CALM_KV("id", text),
                                                                        CALM_KV("type_id", (size_t)0)))));
    calm_json_set(tokens, text, CALM_OBJECT(CALM_KV("id", text), CALM_KV("ids", ids), CALM_KV("tokens", texts)));
}

static void add_sequence(calm_json *list, const char *id, size_t type)
{
    calm_json_add(list, CALM_OBJECT(CALM_KV("Sequence", CALM_OBJECT(CALM_KV("id", id), CALM_KV("type_id", type)))));
}

/* Sets the post-processor that adds special tokens before and after a text. */
static void set_template(writer *w, bool begins)
{
    const char *bos = special(w, "bos"), *eos = special(w, w->wordpiece ? "seperator" : "eos");
    calm_json *single, *pair, *tokens;
    /* llama.cpp always adds both to WordPiece texts. */
    if (!w->wordpiece && !truth(w->file, "add_bos_token", begins))
        bos = NULL;
    if (!w->wordpiece && !truth(w->file, "add_eos_token", false))
        eos = NULL;
    if (!bos && !eos)
        return;
    single = calm_json_new_array();
    tokens = calm_json_new_object();
    if (bos)
        add_special_piece(w, single, tokens, bos);
    add_sequence(single, "A", 0);
    if (eos)
        add_special_piece(w, single, tokens, eos);
    pair = calm_json_copy(single);
    add_sequence(pair, "B", 1);
    calm_json_set(w->root, "post_processor",
                  PART("TemplateProcessing", CALM_KV("single", single), CALM_KV("pair", pair),
                       CALM_KV("special_tokens", tokens)));
}

/* ---- tokenizer models ---- */

static calm_status add_merge_strings(calm_ctx *ctx, const writer *w, calm_json *model)
{
    const calm_gguf_key *key = find(w->file, "merges");
    calm_json *merges = calm_json_new_array();
    const char *text;
    size_t at = 0, n;
    calm_json_set(model, "merges", merges);
    if (!key || !key->array || key->kind != CALM_GGUF_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: key tokenizer.ggml.merges: expected an array of strings",
                         calm_gguf_path(w->file));
    while (calm_gguf_next_string(key, &at, &text, &n)) {
        CALM_SCOPED_SCRATCH(ctx);
        char *copy;
        if (!is_text(text, n))
            return calm_fail(ctx, CALM_EFORMAT, "%s: tokenizer.ggml.merges: one is not UTF-8", calm_gguf_path(w->file));
        CALM_TRY(calm_strf(ctx, ctx->scratch, &copy, "%.*s", (int)n, text));
        calm_json_add_string(merges, copy);
    }
    return CALM_OK;
}

static calm_status set_byte_level(calm_ctx *ctx, writer *w)
{
    bool whole = false;
    char *name;
    CALM_TRY(string_of(ctx, find(w->file, "pre"), &name));
    const char *pattern = name ? calm_gguf_pre_of(name, &whole) : NULL;
    if (!pattern)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: tokenizer.ggml.pre: the pre-tokenizer \"%.60s\" is not known; "
                         "put the tokenizer.json of the float model next to the file", calm_gguf_path(w->file),
                         name ? name : "");
    CALM_TRY(calm_gguf_pieces_read(ctx, w->file, false, &w->pieces));
    calm_json *model = PART("BPE", CALM_KV("fuse_unk", (bool)false), CALM_KV("byte_fallback", (bool)false),
                            CALM_KV("ignore_merges", whole), CALM_KV("vocab", calm_gguf_pieces_vocab(&w->pieces)));
    calm_json_set(w->root, "model", model);
    calm_json_set(w->root, "pre_tokenizer", calm_gguf_pre_json(pattern));
    calm_json_set(w->root, "decoder", PART("ByteLevel", CALM_KV("add_prefix_space", (bool)true),
                                           CALM_KV("trim_offsets", (bool)true), CALM_KV("use_regex", (bool)true)));
    set_template(w, whole && strncmp(name, "minicpm", 7) != 0);
    return add_merge_strings(ctx, w, model);
}

/* Replaces spaces by U+2581 and back; with `prefix`, adds one in front of the text. */
static void set_spaces(writer *w, bool prefix)
{
    calm_json *const before[] = {PART("Prepend", CALM_KV("prepend", SPACE)), replace(" ", SPACE)};
    calm_json *const behind[] = {replace(SPACE, " "), only("ByteFallback"), only("Fuse"),
                                 prefix ? PART("Strip", CALM_KV("content", " "), CALM_KV("start", (size_t)1),
                                               CALM_KV("stop", (size_t)0)) : NULL};
    if (!prefix)
        calm_json_free(before[0]);
    calm_json_set(w->root, "normalizer", prefix ? sequence("normalizers", 2, before) : before[1]);
    calm_json_set(w->root, "decoder", sequence("decoders", 4, behind));
}

static calm_status set_sentencepiece(calm_ctx *ctx, writer *w)
{
    calm_json *merges = NULL;
    w->sentencepiece = true;
    CALM_TRY(calm_gguf_pieces_read(ctx, w->file, true, &w->pieces));
    CALM_TRY(calm_gguf_pieces_merges(ctx, &w->pieces, &merges));
    calm_json_set(w->root, "model",
                  PART("BPE", CALM_KV("unk_token", special(w, "unknown")), CALM_KV("fuse_unk", (bool)true),
                       CALM_KV("byte_fallback", (bool)true), CALM_KV("ignore_merges", (bool)false),
                       CALM_KV("vocab", calm_gguf_pieces_vocab(&w->pieces)), CALM_KV("merges", merges)));
    set_spaces(w, truth(w->file, "add_space_prefix", true));
    set_template(w, true);
    return CALM_OK;
}

/* Sets SentencePiece's character map, in base64. */
static calm_status set_charsmap(calm_ctx *ctx, writer *w)
{
    const calm_gguf_key *key = find(w->file, "precompiled_charsmap");
    CALM_SCOPED_TEXT(text);
    if (!key)
        return CALM_OK;
    if (!key->array || (key->kind != CALM_GGUF_U8 && key->kind != CALM_GGUF_I8))
        return calm_fail(ctx, CALM_EFORMAT, "%s: key tokenizer.ggml.precompiled_charsmap: expected an array of bytes",
                         calm_gguf_path(w->file));
    calm_base64_append(&text, key->data, key->n);
    CALM_TRY(calm_text_check(ctx, &text));
    calm_json_set(w->root, "normalizer", PART("Precompiled", CALM_KV("precompiled_charsmap", text.data)));
    return CALM_OK;
}

static calm_status set_unigram(calm_ctx *ctx, writer *w)
{
    const bool prefix = truth(w->file, "add_space_prefix", true);
    calm_json *vocab = calm_json_new_array(), *model = PART("Unigram", CALM_KV("vocab", vocab));
    calm_json *const parts[] = {truth(w->file, "remove_extra_whitespaces", false) ? only("WhitespaceSplit") : NULL,
                                PART("Metaspace", CALM_KV("replacement", SPACE),
                                     CALM_KV("prepend_scheme", prefix ? "always" : "never"),
                                     CALM_KV("split", (bool)true))};
    calm_json_set(w->root, "pre_tokenizer", sequence("pretokenizers", 2, parts));
    calm_json_set(w->root, "decoder", calm_json_copy(parts[1]));
    calm_json_set(w->root, "model", model);
    CALM_TRY(set_charsmap(ctx, w));
    CALM_TRY(calm_gguf_pieces_read(ctx, w->file, true, &w->pieces));
    bool bytes = false;
    for (size_t i = 0; i < w->pieces.n; i++) {
        const calm_gguf_piece *piece = &w->pieces.of[i];
        calm_json *entry = calm_json_new_array();
        calm_json_add_string(entry, piece->text);
        calm_json_add(entry, calm_json_of_number((double)piece->score));
        calm_json_add(vocab, entry);
        bytes = bytes || piece->kind == CALM_GGUF_PIECE_BYTE;
        if (piece->kind == CALM_GGUF_PIECE_UNKNOWN)
            calm_json_set_int(model, "unk_id", (int64_t)i);
    }
    calm_json_set_bool(model, "byte_fallback", bytes);
    set_template(w, false);
    return CALM_OK;
}

/* Converts tokens to WordPiece spelling: "play", and "##ing" for the continuation of a word. */
static calm_status spell_words(calm_ctx *ctx, writer *w)
{
    const size_t mark = strlen(SPACE);
    for (size_t i = 0; i < w->pieces.n; i++) {
        calm_gguf_piece *piece = &w->pieces.of[i];
        char *text;
        if (piece->kind != CALM_GGUF_PIECE_NORMAL)
            continue;
        const bool begins = piece->n > mark && memcmp(piece->text, SPACE, mark) == 0;
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s%s", begins ? "" : "##", piece->text + (begins ? mark : 0)));
        piece->text = text;
        piece->n = (uint32_t)strlen(text);
    }
    return CALM_OK;
}

static calm_status set_wordpiece(calm_ctx *ctx, writer *w)
{
    const bool lower = truth(w->file, "normalizer.lowercase", true);
    w->wordpiece = true;
    CALM_TRY(calm_gguf_pieces_read(ctx, w->file, false, &w->pieces));
    CALM_TRY(spell_words(ctx, w));
    const char *unknown = special(w, "unknown");
    if (!unknown || !special(w, "bos") || !special(w, "seperator"))
        return calm_fail(ctx, CALM_EFORMAT, "%s: keys tokenizer.ggml.unknown_token_id, bos_token_id and "
                         "seperator_token_id: expected ids of tokens", calm_gguf_path(w->file));
    calm_json_set(w->root, "normalizer",
                  PART("BertNormalizer", CALM_KV("clean_text", (bool)true), CALM_KV("handle_chinese_chars", (bool)true),
                       CALM_KV("strip_accents", truth(w->file, "normalizer.strip_accents", lower)),
                       CALM_KV("lowercase", lower)));
    calm_json_set(w->root, "pre_tokenizer", only("BertPreTokenizer"));
    calm_json_set(w->root, "decoder", PART("WordPiece", CALM_KV("prefix", "##"), CALM_KV("cleanup", (bool)true)));
    /* llama.cpp divides words of any length; 100 characters are the library's default. */
    calm_json_set(w->root, "model",
                  PART("WordPiece", CALM_KV("unk_token", unknown), CALM_KV("continuing_subword_prefix", "##"),
                       CALM_KV("max_input_chars_per_word", (size_t)100),
                       CALM_KV("vocab", calm_gguf_pieces_vocab(&w->pieces))));
    set_template(w, true);
    return CALM_OK;
}

static calm_status set_by_kind(calm_ctx *ctx, writer *w)
{
    static const struct {
        const char *name;
        calm_status (*set)(calm_ctx *ctx, writer *w);
    } kinds[] = {{"gpt2", set_byte_level}, {"llama", set_sentencepiece}, {"t5", set_unigram},
                 {"bert", set_wordpiece}};
    char *name;
    CALM_TRY(string_of(ctx, find(w->file, "model"), &name));
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(name, kinds[i].name) == 0)
            return kinds[i].set(ctx, w);
    return calm_fail(ctx, CALM_EUNSUPPORTED, "%s: tokenizer.ggml.model: \"%.60s\" is not read, known are gpt2, llama, "
                     "t5 and bert; put the tokenizer.json of the float model next to the file", calm_gguf_path(w->file),
                     name ? name : "");
}

/* ---- public functions ---- */

calm_status calm_gguf_tokenizer_json(calm_ctx *ctx, const calm_gguf *file, calm_json **out)
{
    static const char *const members[] = {"truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                          "post_processor", "decoder", "model"};
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_JSON(root);
    root = CALM_OBJECT(CALM_KV("version", "1.0"));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        calm_json_set(root, members[i], calm_json_new_null());
    writer w = {.file = file, .root = root};
    CALM_TRY(set_by_kind(ctx, &w));
    calm_json_set(root, "added_tokens", calm_gguf_pieces_added(&w.pieces));
    *out = root;
    root = NULL;
    return CALM_OK;
}

calm_status calm_gguf_tokenizer_settings(calm_ctx *ctx, const calm_gguf *file, calm_json **out)
{
    static const char *const names[] = {"bos", "eos", "unknown", "padding", "seperator", "cls", "mask"},
                      *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token",
                                       "mask_token"};
    const calm_gguf_key *template = calm_gguf_find_key(file, "tokenizer.chat_template");
    CALM_SCOPED_RESULTS(ctx);
    writer w = {.file = file,
                .sentencepiece = calm_gguf_is(find(file, "model"), "llama"),
                .wordpiece = calm_gguf_is(find(file, "model"), "bert")};
    char *text;
    CALM_TRY(calm_gguf_pieces_read(ctx, file, false, &w.pieces));
    CALM_TRY(string_of(ctx, template, &text));
    *out = CALM_OBJECT(CALM_KV("tokenizer_class", "PreTrainedTokenizerFast"),
                       CALM_KV("clean_up_tokenization_spaces", (bool)false));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (special(&w, names[i]))
            calm_json_set_string(*out, keys[i], special(&w, names[i]));
    if (text)
        calm_json_set_string(*out, "chat_template", text);
    return CALM_OK;
}

calm_status calm_gguf_tokenizer_find(calm_ctx *ctx, const char *model, char **out)
{
    calm_gguf *file;
    CALM_TRY(calm_path_beside(ctx, ctx->out, out, model, "tokenizer.json"));
    if (calm_path_exists(*out) || !calm_is_file(model))
        return CALM_OK;
    CALM_TRY(calm_folder_require_model(ctx, model));
    CALM_TRY(calm_gguf_open_split(ctx, model, &file));
    const bool own = find(file, "tokens") != NULL;
    calm_gguf_close(file);
    return own ? calm_strf(ctx, ctx->out, out, "%s", model) : CALM_OK;
}
