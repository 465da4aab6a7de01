/* llama.cpp's names of pre-tokenizers, identified by their patterns.
 *
 * The patterns are those that llama.cpp's src/llama-vocab.cpp implements or cites ("original regex from
 * tokenizer.json"), and those of common tokenizer.json files.  Of several names with the same pattern, the oldest
 * is used. */
#include "ptq/tokenizer/gguf_pre.h"

#include <string.h>

#include "ptq/base/text.h"

#define ENGLISH "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define OTHERS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(end) BEFORE UPPER "*" LOWER "+" end "|" BEFORE UPPER "+" LOWER "*" end

/* Lines of a pattern: "split REGEX", "digits", "digit" (individual digits), "punctuation BEHAVIOR", "gpt-2"
 * (ByteLevel's own regex); ByteLevel without its regex splits nothing. */
static const struct {
    const char *pattern;
    const char *name, *whole_words;    /* name with "ignore_merges"; NULL: `name`         */
} known[] = {
    {"split " ENGLISH "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES "\n", "qwen2", NULL},
    {"split " ENGLISH "|" BEFORE "\\p{L}+|\\p{N}{1,3}|" OTHERS "\n", "dbrx", "llama-bpe"},
    {"gpt-2\n", "gpt-2", NULL},
    {"digit\ngpt-2\n", "smollm", NULL},
    {"split " CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES "\n", "tekken", NULL},
    {"split " CASED(ENGLISH "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES "\n", "gpt-4o", NULL},
    {"split " ENGLISH "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES "\n", "qwen35",
     NULL},
    {"split \\p{N}{1,3}\nsplit " ENGLISH "|" BEFORE "\\p{L}+|\\p{N}+|" OTHERS "\n", "minicpm5", NULL},
    {"split '(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
     "\\s+(?!\\S)|\\s+\n",
     "bailingmoe", NULL},
    {"split " ENGLISH "|" BEFORE "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES "\n", "seed-coder", NULL},
    {"split \\p{N}{1,3}\nsplit [\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+\n"
     "split [!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
     "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES "\n",
     "deepseek-v3", NULL},
    {"punctuation Contiguous\ngpt-2\ndigits\nsplit [0-9][0-9][0-9]\n", "falcon", NULL},
};

const char *calm_gguf_find_pre(const char *pattern, bool whole_words)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].pattern, pattern) == 0)
            return whole_words && known[i].whole_words ? known[i].whole_words : known[i].name;
    return NULL;
}

/* Names that have the same pre-tokenizer as another name. */
static const struct {
    const char *name, *same;
} aliases[] = {
    {"llama3", "llama-bpe"},    {"llama-v3", "llama-bpe"}, {"falcon3", "llama-bpe"},    {"falcon-h1", "llama-bpe"},
    {"pixtral", "llama-bpe"},   {"midm-2.0", "llama-bpe"}, {"lfm2", "llama-bpe"},       {"smaug-bpe", "dbrx"},
    {"phi-2", "gpt-2"},         {"mpt", "gpt-2"},          {"olmo", "gpt-2"},           {"jais", "gpt-2"},
    {"trillion", "gpt-2"},      {"starcoder", "smollm"},   {"refact", "smollm"},        {"command-r", "smollm"},
    {"codeshell", "smollm"},    {"exaone", "smollm"},      {"stablelm2", "qwen2"},      {"hunyuan", "qwen2"},
    {"deepseek-r1-qwen", "qwen2"},
};

const char *calm_gguf_pre_of(const char *name, bool *whole_words)
{
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(aliases[i].name, name) == 0)
            name = aliases[i].same;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const bool whole = known[i].whole_words && strcmp(known[i].whole_words, name) == 0;
        *whole_words = whole || strcmp(name, "tekken") == 0 || strcmp(name, "minicpm5") == 0;
        if (whole || strcmp(known[i].name, name) == 0)
            return known[i].pattern;
    }
    return NULL;
}

/* ---- the pattern of a tokenizer.json ---- */

/* Appends a regex with carriage returns and newlines as escapes, as some files write them. */
static void add_regex(calm_text *text, const char *regex)
{
    calm_text_append(text, "split ", 6);
    for (const char *at = regex; *at; at++)
        if (*at == '\r' || *at == '\n')
            calm_text_append(text, *at == '\r' ? "\\r" : "\\n", 2);
        else
            calm_text_append(text, at, 1);
    calm_text_append(text, "\n", 1);
}

/* Adds a supported Split, which keeps both matches and the text between: behavior "Isolated", or "Removed" with
 * invert, if matches cover everything. */
static void add_split(calm_text *text, const calm_json *part)
{
    const char *behavior = calm_json_string(calm_json_get(part, "behavior"), "");
    const char *regex = calm_json_string(calm_json_get(calm_json_get(part, "pattern"), "Regex"), NULL);
    const bool invert = calm_json_bool(calm_json_get(part, "invert"), false);
    if (regex && (strcmp(behavior, "Isolated") == 0 || (strcmp(behavior, "Removed") == 0 && invert)))
        add_regex(text, regex);
    else
        calm_text_printf(text, "Split %s\n", behavior);
}

static void add_part(calm_text *text, const calm_json *part)
{
    const char *type = calm_json_string(calm_json_get(part, "type"), "none");
    const calm_json *parts = calm_json_get(part, "pretokenizers");
    if (strcmp(type, "Sequence") == 0)
        for (size_t i = 0; i < calm_json_size(parts) && i < 64; i++) {
            const calm_json *inner = calm_json_at(parts, i);
            if (strcmp(calm_json_string(calm_json_get(inner, "type"), ""), "Sequence") == 0)
                calm_text_append(text, "Sequence\n", 9);    /* no known pattern has one */
            else
                add_part(text, inner);
        }
    else if (strcmp(type, "Split") == 0)
        add_split(text, part);
    else if (strcmp(type, "ByteLevel") == 0)
        calm_text_printf(text, "%s", calm_json_bool(calm_json_get(part, "use_regex"), true) ? "gpt-2\n" : "");
    else if (strcmp(type, "Digits") == 0)
        calm_text_printf(text, "%s\n",
                         calm_json_bool(calm_json_get(part, "individual_digits"), false) ? "digit" : "digits");
    else if (strcmp(type, "Punctuation") == 0)
        calm_text_printf(text, "punctuation %s\n", calm_json_string(calm_json_get(part, "behavior"), "Isolated"));
    else
        calm_text_printf(text, "%s\n", type);
}

calm_status calm_gguf_pattern(calm_ctx *ctx, const calm_json *tokenizer, char **out)
{
    CALM_SCOPED_TEXT(text);
    add_part(&text, calm_json_get(tokenizer, "pre_tokenizer"));
    return calm_text_take(ctx, ctx->out, &text, out, NULL);
}

/* ---- the tokenizer.json of a pattern ---- */

static calm_json *byte_level(bool regex)
{
    return CALM_OBJECT(CALM_KV("type", "ByteLevel"), CALM_KV("add_prefix_space", (bool)false),
                       CALM_KV("trim_offsets", (bool)true), CALM_KV("use_regex", regex));
}

static calm_json *split(const char *regex, size_t n)
{
    calm_json *pattern = calm_json_new_object();
    calm_json_set_bytes(pattern, "Regex", regex, n);
    return CALM_OBJECT(CALM_KV("type", "Split"), CALM_KV("pattern", pattern), CALM_KV("behavior", "Isolated"),
                       CALM_KV("invert", (bool)false));
}

/* Returns the pre-tokenizer part for a line [n] of a pattern. */
static calm_json *part_of(const char *line, size_t n)
{
    static const char is_split[] = "split ", is_punctuation[] = "punctuation ";
    const size_t skip = strlen(is_punctuation);
    if (n > strlen(is_split) && strncmp(line, is_split, strlen(is_split)) == 0)
        return split(line + strlen(is_split), n - strlen(is_split));
    if (n > skip && strncmp(line, is_punctuation, skip) == 0) {
        calm_json *part = CALM_OBJECT(CALM_KV("type", "Punctuation"));
        calm_json_set_bytes(part, "behavior", line + skip, n - skip);
        return part;
    }
    if (strncmp(line, "gpt-2", n) == 0)
        return byte_level(true);
    return CALM_OBJECT(CALM_KV("type", "Digits"), CALM_KV("individual_digits", (bool)(strncmp(line, "digit", n) == 0)));
}

calm_json *calm_gguf_pre_json(const char *pattern)
{
    calm_json *parts = calm_json_new_array();
    bool leveled = false;
    for (size_t n; *pattern; pattern += n + (pattern[n] == '\n')) {
        n = strcspn(pattern, "\n");
        leveled = leveled || (n == strlen("gpt-2") && strncmp(pattern, "gpt-2", n) == 0);
        calm_json_add(parts, part_of(pattern, n));
    }
    if (!leveled)
        calm_json_add(parts, byte_level(false));
    return CALM_OBJECT(CALM_KV("type", "Sequence"), CALM_KV("pretokenizers", parts));
}
