/* Reading of task files, line by line. */
#include "ptq/data/task_file.h"

#include <string.h>

#include "ptq/text/unicode.h"

/* A line of a task file and the tokens of its context. */
typedef struct line {
    const calm_task_reader *reader;
    const char *where;                /* file and line number                                */
    const char *text;                 /* [n_context] context                                 */
    size_t n_context, n_stripped;     /* bytes of the context, with and without trailing white space */
    uint32_t *context;                /* [n_context_ids] tokens of the context without trailing white space */
    size_t n_context_ids;             /* 0: the prefix token replaces the context            */
} line;

calm_status calm_task_reader_open(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                  const calm_task_options *options, calm_task_reader *out)
{
    *out = (calm_task_reader){.tokenizer = tokenizer, .path = path, .options = *options};
    return calm_texts_open_json(ctx, path, SIZE_MAX, &out->texts);
}

void calm_task_reader_close(calm_task_reader *reader)
{
    calm_texts_close(&reader->texts);
}

/* ---- text ---- */

/* Returns whether Python's str.rstrip() removes the character: white space and the four information separators. */
static bool is_space(uint32_t character)
{
    return calm_unicode_is_space(character) || (character >= 0x1c && character <= 0x1f);
}

/* Returns the bytes of well-formed `text` [n] without its trailing white space. */
static size_t stripped(const char *text, size_t n)
{
    while (n) {
        const size_t begin = calm_utf8_step_back(text, n);
        uint32_t character;
        calm_utf8_decode(text + begin, &character);
        if (!is_space(character))
            break;
        n = begin;
    }
    return n;
}

/* ---- tokens ---- */

/* Tokenizes a text and checks its ids, which are in `arena`. */
static calm_status encode(calm_ctx *ctx, calm_arena *arena, const line *l, const char *text, size_t n_bytes,
                          bool special, uint32_t **ids, size_t *n)
{
    CALM_TRY(calm_texts_encode(ctx, arena, l->reader->tokenizer, l->where, text, n_bytes, special, ids, n));
    return calm_texts_check_ids(ctx, l->where, *ids, *n, l->reader->options.vocab);
}

/* Tokenizes context and choice: ids [*n] in `arena`, of which the last *own belong to the choice. */
static calm_status encode_pair(calm_ctx *ctx, calm_arena *arena, const line *l, const char *choice, size_t n_choice,
                               uint32_t **ids, size_t *n, size_t *own)
{
    const size_t n_bytes = l->n_context + n_choice;
    const bool special = l->reader->options.special;
    uint32_t *whole;
    char *text;
    size_t n_whole;
    CALM_TRY(CALM_NEW_RAW(ctx, arena, text, n_bytes));
    memcpy(text, l->text, l->n_context);
    memcpy(text + l->n_context, choice, n_choice);
    CALM_TRY(encode(ctx, arena, l, text, n_bytes, special && l->n_stripped, &whole, &n_whole));
    if (l->n_stripped) {
        *ids = whole;
        *n = n_whole;
        *own = n_whole > l->n_context_ids ? n_whole - l->n_context_ids : 0;
        memcpy(whole, l->context, (n_whole - *own) * sizeof *whole);
        return CALM_OK;
    }
    const long long prefix = l->reader->options.prefix;
    const bool begins = n_whole && prefix >= 0 && whole[0] == (uint32_t)prefix;
    if (prefix < 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"context\" is empty, and the model names no token that could stand "
                                            "in its place (bos_token or eos_token)", l->where);
    *n = n_whole + !begins;
    *own = *n ? *n - 1 : 0;
    CALM_TRY(CALM_NEW_RAW(ctx, arena, *ids, *n));
    (*ids)[0] = (uint32_t)prefix;
    memcpy(*ids + !begins, whole, n_whole * sizeof **ids);
    return CALM_OK;
}

/* ---- a line ---- */

/* Tokenizes a choice and its context, without the first tokens beyond the model's maximum length, in ctx->out. */
static calm_status tokenize(calm_ctx *ctx, const line *l, const char *text, size_t n_bytes, size_t c,
                            calm_task_choice *out)
{
    const size_t most = l->reader->options.max_length;
    CALM_SCOPED_ARENA(uncut);
    uint32_t *ids = NULL;
    size_t n = 0;
    CALM_TRY(encode_pair(ctx, &uncut, l, text, n_bytes, &ids, &n, &out->own));
    if (out->own == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: choices[%zu]: expected at least 1 token beyond those of the context, "
                         "found none", l->where, c);
    if (out->own > most)
        return calm_fail(ctx, CALM_EFORMAT, "%s: choices[%zu]: expected at most %zu tokens, which the model reads, "
                                            "found %zu", l->where, c, most, out->own);
    out->n = n > most + 1 ? most + 1 : n;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->out, out->ids, out->n));
    memcpy(out->ids, ids + n - out->n, out->n * sizeof *ids);
    return CALM_OK;
}

static calm_status read_choice(calm_ctx *ctx, const line *l, const calm_json *choice, size_t c, calm_task_choice *out)
{
    const char *text = calm_json_string(choice, "");
    const size_t n_bytes = calm_json_string_length(choice);
    if (calm_json_typeof(choice) != CALM_JSON_STRING || n_bytes == 0)
        return calm_fail(ctx, CALM_EFORMAT, "%s: choices[%zu]: expected a string that is not empty, found %s", l->where,
                         c,
                         calm_json_typeof(choice) == CALM_JSON_STRING ? "an empty one"
                                                                      : calm_json_type_name(calm_json_typeof(choice)));
    out->length = calm_utf8_count(text, n_bytes);
    return tokenize(ctx, l, text, n_bytes, c, out);
}

static calm_status read_task(calm_ctx *ctx, line *l, const calm_json *json, calm_task *out)
{
    const calm_json *context = calm_json_get(json, "context"), *choices = calm_json_get(json, "choices");
    int64_t answer;
    if (calm_json_typeof(json) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT,
                         "%s: expected an object with \"context\", \"choices\" and \"answer\", found %s", l->where,
                         calm_json_type_name(calm_json_typeof(json)));
    if (calm_json_typeof(context) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"context\": expected a string, found %s", l->where,
                         context ? calm_json_type_name(calm_json_typeof(context)) : "nothing");
    out->n = calm_json_size(choices);
    if (calm_json_typeof(choices) != CALM_JSON_ARRAY || out->n == 0 || out->n > CALM_TASK_CHOICES_MAX)
        return calm_fail(ctx, CALM_EFORMAT, "%s: \"choices\": expected an array of 1 to %zu strings, found %s of %zu",
                         l->where, CALM_TASK_CHOICES_MAX,
                         choices ? calm_json_type_name(calm_json_typeof(choices)) : "nothing", out->n);
    CALM_TRY(calm_json_need_int(ctx, l->where, json, "answer", NULL, 0, (int64_t)out->n - 1, &answer));
    out->answer = (size_t)answer;
    l->text = calm_json_string(context, "");
    l->n_context = calm_json_string_length(context);
    l->n_stripped = stripped(l->text, l->n_context);
    if (l->n_stripped)
        CALM_TRY(encode(ctx, ctx->out, l, l->text, l->n_stripped, l->reader->options.special, &l->context,
                        &l->n_context_ids));
    if (l->n_context_ids == 0)
        l->n_stripped = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->choices, out->n));
    for (size_t c = 0; c < out->n; c++)
        CALM_TRY(read_choice(ctx, l, calm_json_at(choices, c), c, &out->choices[c]));
    return CALM_OK;
}

calm_status calm_task_reader_next(calm_ctx *ctx, calm_task_reader *reader, calm_task *out, bool *found)
{
    const bool enough = reader->options.samples && reader->n == reader->options.samples;
    const calm_json *json = NULL;
    *found = false;
    if (!enough)
        CALM_TRY(calm_texts_next_json(ctx, &reader->texts, CALM_TASK_LINE_MAX, &json));
    if (!json)
        return reader->n ? CALM_OK : calm_fail(ctx, CALM_EARG, "%s: no task in it", reader->path);
    if (reader->n == CALM_TASKS_MAX)
        return calm_fail(ctx, CALM_EARG, "%s: expected at most %zu tasks, found more", reader->texts.where,
                         CALM_TASKS_MAX);
    reader->n++;
    *found = true;
    line l = {.reader = reader, .where = reader->texts.where};
    *out = (calm_task){.line = reader->texts.lines.number};
    return read_task(ctx, &l, json, out);
}
