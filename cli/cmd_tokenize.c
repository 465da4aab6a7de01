/* calm tokenize: converts text to token ids and back, one JSON line each. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "cli/pull.h"
#include "ptq/base/file.h"
#include "ptq/base/message.h"
#include "ptq/data/chat.h"
#include "ptq/io/json.h"
#include "ptq/text/lines.h"
#include "ptq/tokenizer/gguf_vocab.h"
#include "ptq/tokenizer/tokenizer.h"

typedef struct options {
    calm_common common;
    const char *model, *tokenizer;
    bool json, no_special, decode;
} options;

static const calm_option table[] = {
    CALM_OPT("model", model, STRING, "directory of a model with its tokenizer.json, or a known name", .metavar = "DIR",
             .key = 'm'),
    CALM_OPT("tokenizer", tokenizer, STRING, "a tokenizer.json, instead of --model", .metavar = "FILE"),
    CALM_OPT("json", json, BOOL, "the input is JSON lines {\"text\": ...}, one document each; with --model also chats"),
    CALM_OPT("no-special", no_special, BOOL, "do not add the special tokens of the template; with --decode: leave "
             "out special tokens"),
    CALM_OPT("decode", decode, BOOL, "the input is JSON lines {\"ids\": [...]}; print {\"text\": ...} lines"),
    CALM_OPT_COMMON,
    {0},
};

/* ---- input ---- */

/* The bytes of a mapped file or of standard input. */
typedef struct input {
    const char *name, *text;
    size_t n;
    calm_mapping map;
    calm_text read;
} input;

static calm_status read_standard_input(calm_ctx *ctx, input *in)
{
    char block[65536];
    size_t n;
    in->name = "standard input";
    while ((n = fread(block, 1, sizeof block, stdin)) > 0)
        calm_text_append(&in->read, block, n);
    if (ferror(stdin))
        return calm_fail(ctx, CALM_EIO, "standard input: cannot read");
    CALM_TRY(calm_text_check(ctx, &in->read));
    in->text = in->read.data ? in->read.data : "";
    in->n = in->read.length;
    return CALM_OK;
}

static calm_status open_input(calm_ctx *ctx, const char *path, input *in)
{
    in->name = path;
    if (!path || strcmp(path, "-") == 0)
        return read_standard_input(ctx, in);
    if (!calm_path_exists(path))
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no such file; a text itself is given on standard input, as in: echo "
                                              "'Hello world' | calm tokenize --model qwen", path);
    CALM_TRY(calm_map_file(ctx, path, &in->map));
    in->text = in->map.data ? (const char *)in->map.data : "";
    in->n = in->map.bytes;
    return CALM_OK;
}

static void close_input(input *in)
{
    calm_unmap_file(&in->map);
    calm_text_clear(&in->read);
}

/* ---- one document ---- */

static calm_status encode(calm_ctx *ctx, const calm_tokenizer *tok, bool special, const char *where, const char *text,
                          size_t n)
{
    uint32_t *ids;
    size_t n_ids;
    /* The tokenizer's message does not name the text. */
    if (calm_tokenizer_encode(ctx, tok, text, n, special, &ids, &n_ids) != CALM_OK)
        return calm_fail_prefix(ctx, "%s", where);
    fputs("{\"ids\": [", stdout);
    for (size_t i = 0; i < n_ids; i++)
        printf("%s%" PRIu32, i ? ", " : "", ids[i]);
    fputs("]}\n", stdout);
    return CALM_OK;
}

static calm_status print_text(calm_ctx *ctx, const char *text, size_t n)
{
    CALM_SCOPED_JSON(object);
    CALM_SCOPED_TEXT(line);
    object = calm_json_new_object();
    calm_json_set_bytes(object, "text", text, n);
    CALM_TRY(calm_json_write(ctx, object, 0, &line));
    printf("%s\n", line.data);
    return CALM_OK;
}

static calm_status decode(calm_ctx *ctx, const options *o, const calm_tokenizer *tok, const char *where,
                          const calm_json *list)
{
    uint32_t *ids;
    size_t n = calm_json_size(list), n_bytes;
    char *text;
    if (calm_json_typeof(list) != CALM_JSON_ARRAY)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected {\"ids\": [...]}", where);
    CALM_TRY(CALM_NEW(ctx, ctx->out, ids, n));
    for (size_t i = 0; i < n; i++) {
        const int64_t id = calm_json_int(calm_json_at(list, i), -1);
        if (id < 0 || (uint64_t)id >= calm_tokenizer_size(tok))
            return calm_fail(ctx, CALM_EFORMAT, "%s: ids[%zu]: expected a whole number below %zu", where, i,
                             calm_tokenizer_size(tok));
        ids[i] = (uint32_t)id;
    }
    if (calm_tokenizer_decode(ctx, tok, ids, n, !o->no_special, &text, &n_bytes) != CALM_OK)
        return calm_fail_prefix(ctx, "%s", where);
    return print_text(ctx, text, n_bytes);
}

/* Encodes a chat through the model's chat template, which writes the special tokens. */
static calm_status encode_chat(calm_ctx *ctx, calm_chat *chat, const calm_tokenizer *tok, const char *where,
                               const calm_json *json)
{
    CALM_SCOPED_TEXT(text);
    CALM_TRY(calm_chat_render(ctx, chat, where, json, &text));
    return encode(ctx, tok, false, where, text.data ? text.data : "", text.length);
}

static calm_status run_line(calm_ctx *ctx, const options *o, const calm_tokenizer *tok, calm_chat *chat,
                            const char *where, const char *line, size_t n)
{
    CALM_SCOPED_JSON(json);
    CALM_TRY(calm_json_parse(ctx, where, line, n, &json));
    const calm_json *text = calm_json_get(json, "text");
    if (o->decode)
        return decode(ctx, o, tok, where, calm_json_get(json, "ids"));
    if (chat->model && calm_json_typeof(text) == CALM_JSON_NULL && calm_chat_is(json))
        return encode_chat(ctx, chat, tok, where, json);
    if (calm_json_typeof(text) != CALM_JSON_STRING)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected {\"text\": \"...\"}", where);
    return encode(ctx, tok, !o->no_special, where, calm_json_string(text, ""), calm_json_string_length(text));
}

/* ---- the command ---- */

static calm_status run_input(calm_ctx *ctx, const options *o, const calm_tokenizer *tok, calm_chat *chat,
                             const input *in)
{
    calm_lines lines = {.text = in->text, .n = in->n};
    const char *line;
    size_t n;
    if (!o->json && !o->decode)
        return encode(ctx, tok, !o->no_special, in->name, in->text, in->n);
    while (calm_lines_next(&lines, &line, &n)) {
        const calm_arena_mark out = calm_arena_save(ctx->out), scratch = calm_arena_save(ctx->scratch);
        char *where;
        CALM_TRY(calm_strf(ctx, ctx->scratch, &where, "%s: line %zu", in->name, lines.number));
        CALM_TRY(run_line(ctx, o, tok, chat, where, line, n));
        calm_arena_rewind(ctx->out, out);
        calm_arena_rewind(ctx->scratch, scratch);
    }
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    calm_named_model named;
    CALM_SCOPED_TOKENIZER(tok);
    CALM_SCOPED(input, close_input) in = {0};
    CALM_SCOPED(calm_chat, calm_chat_close) chat = {0};
    const char *path = o->tokenizer;
    char *found;
    if (!o->model == !o->tokenizer)
        return calm_fail(ctx, CALM_EARG, "calm tokenize: expected either --model or --tokenizer; try: "
                         "calm tokenize --model qwen");
    if (!path) {
        CALM_TRY(calm_find_shown(ctx, o->model, o->common.quiet, &named));
        CALM_TRY(calm_gguf_tokenizer_find(ctx, named.dir, &found));
        path = found;
        chat.model = named.dir;
    }
    CALM_TRY(calm_tokenizer_open(ctx, path, &tok));
    CALM_TRY(open_input(ctx, o->common.args.n ? o->common.args.of[0] : NULL, &in));
    return run_input(ctx, o, tok, &chat, &in);
}

const calm_command calm_cmd_tokenize = {
    .name = "tokenize",
    .summary = "token ids of a text, or of each line of JSON lines",
    .arguments = "[FILE]",
    .description =
        "Reads FILE, or standard input, and prints {\"ids\": [...]}: one line for the whole text, or with --json "
        "one line for each input line.  The ids are those of the Hugging Face tokenizers library.",
    .examples = "  echo 'Hello world' | calm tokenize --model qwen\n"
                "  calm tokenize --tokenizer tokenizer.json --json --no-special texts.jsonl > ids.jsonl\n"
                "  calm tokenize --model qwen --decode ids.jsonl\n",
    .max_args = 1,
    CALM_COMMAND_PARTS,
};
