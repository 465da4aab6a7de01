/* Metaspace: SentencePiece's visible space, U+2581, in place of spaces; splits before each, and decodes them again. */
#include <string.h>

#include "ptq/tokenizer/tokenizer_encoder.h"

static calm_status run(calm_encoder *enc, size_t index, calm_piece in)
{
    const calm_pretokenizer *self = &enc->tok->pretokenizers[index];
    const calm_piece mark = self->replacement;
    const bool marked = in.text[0] == ' ' || (in.n >= mark.n && memcmp(in.text, mark.text, mark.n) == 0);
    const bool asked = self->prepend == CALM_PREPEND_ALWAYS ||
                       (self->prepend == CALM_PREPEND_FIRST && in.text == enc->start);
    size_t n = 0;
    char *text;
    CALM_TRY(calm_encoder_reserve(enc, &enc->changed[index], in.n + 1, mark.n, &text));
    if (asked && !marked) {
        memcpy(text, mark.text, mark.n);
        n = mark.n;
    }
    for (size_t i = 0; i < in.n; i++) {
        if (in.text[i] == ' ') {
            memcpy(text + n, mark.text, mark.n);
            n += mark.n;
        } else {
            text[n++] = in.text[i];
        }
    }
    const calm_piece out = {text, n};
    return self->whole ? calm_encoder_pass(enc, index + 1, out) : calm_encoder_split(enc, index, out);
}

calm_status calm_tokenizer_read_metaspace(calm_ctx *ctx, calm_tokenizer *tok, const char *where, const calm_json *json,
                                          calm_piece *replacement, calm_prepend *prepend, bool *split)
{
    static const char *const names[] = {"never", "first", "always"};
    const bool yes = true;
    const char *name;
    bool legacy;
    size_t scheme = 0;
    /* Older files have a switch instead of the scheme. */
    CALM_TRY(calm_json_need_bool(ctx, where, json, "add_prefix_space", &yes, &legacy));
    CALM_TRY(calm_json_need_string(ctx, where, json, "prepend_scheme", legacy ? "always" : "never", &name));
    while (scheme < 3 && strcmp(name, names[scheme]) != 0)
        scheme++;
    if (scheme == 3)
        return calm_fail(ctx, CALM_EUNSUPPORTED, "%s.prepend_scheme \"%.60s\": not supported", where, name);
    if (!legacy && scheme != CALM_PREPEND_NEVER)
        return calm_fail(ctx, CALM_EFORMAT, "%s: add_prefix_space is false, but prepend_scheme is \"%s\"", where, name);
    *prepend = (calm_prepend)scheme;
    CALM_TRY(calm_json_need_bool(ctx, where, json, "split", &yes, split));
    return calm_tokenizer_read_character(ctx, tok, where, json, "replacement", replacement);
}

calm_status calm_tokenizer_read_metaspace_splitter(calm_ctx *ctx, calm_tokenizer *tok, const char *where,
                                                   const calm_json *json)
{
    calm_pretokenizer *part = NULL;
    bool split;
    CALM_TRY(calm_tokenizer_new_pretokenizer(ctx, tok, where, &part));
    part->run = run;
    part->behavior = CALM_SPLIT_MERGED_WITH_NEXT;
    CALM_TRY(calm_tokenizer_read_metaspace(ctx, tok, where, json, &part->replacement, &part->prepend, &split));
    part->pattern.literal = part->replacement;
    part->whole = !split;
    return CALM_OK;
}
