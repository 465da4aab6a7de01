/* Makes the page: template, style sheet and scripts of this folder around the data, which are escaped for their
 * place. */
#include <string.h>

#include "cli/report_page/report_page.h"
#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/base/sha256.h"
#include "calm_report_css.h"
#include "calm_report_html_template.h"
#include "calm_report_js_base.h"
#include "calm_report_js_figures.h"
#include "calm_report_js_matrix.h"
#include "calm_report_js_parts.h"
#include "calm_report_js_print.h"

/* ---- escaping ---- */

/* Appends text of an element or a quoted attribute. */
static void put_text(calm_text *out, const char *text)
{
    for (const char *at = text; *at; at++) {
        const char *entity = *at == '<'   ? "&lt;"
                             : *at == '>' ? "&gt;"
                             : *at == '&' ? "&amp;"
                             : *at == '"' ? "&quot;"
                             : *at == '\'' ? "&#39;"
                                           : NULL;
        calm_text_append(out, entity ? entity : at, entity ? strlen(entity) : 1);
    }
}

/* Appends JSON for a script element: characters that could end the element occur only in strings, so they become
 * escapes. */
static void put_json(calm_text *out, const calm_text *json)
{
    size_t begun = 0;
    for (size_t i = 0; i < json->length; i++) {
        const char c = json->data[i];
        if (c != '<' && c != '>' && c != '&')
            continue;
        calm_text_append(out, json->data + begun, i - begun);
        calm_text_printf(out, "\\u%04x", (unsigned)c);
        begun = i + 1;
    }
    calm_text_append(out, json->data + begun, json->length - begun);
}

/* ---- what the policy allows ---- */

/* Appends the SHA-256 of a text as a source of a Content-Security-Policy: 'sha256-BASE64'. */
static calm_status put_source(calm_ctx *ctx, const calm_text *of, calm_text *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char hexadecimal[] = "0123456789abcdef";
    char hex[CALM_SHA256_HEX];
    unsigned bits = 0, n_bits = 0;
    CALM_TRY(calm_sha256_bytes(ctx, of->data, of->length, hex));
    calm_text_printf(out, "'sha256-");
    for (const char *at = hex; *at; at++) {
        bits = bits << 4 | (unsigned)(strchr(hexadecimal, *at) - hexadecimal);
        for (n_bits += 4; n_bits >= 6; n_bits -= 6)
            calm_text_append(out, &digits[bits >> (n_bits - 6) & 63], 1);
    }
    /* 256 bits are 42 digits and 4 bits; a last digit and one '=' pad them. */
    calm_text_append(out, &digits[bits << (6 - n_bits) & 63], 1);
    calm_text_append(out, "='", 2);
    return CALM_OK;
}

/* Appends the policy: the page may use only this style and this script, no network, no handlers in attributes. */
static calm_status put_policy(calm_ctx *ctx, const calm_text *style, const calm_text *script, calm_text *out)
{
    calm_text_printf(out, "default-src 'none'; script-src ");
    CALM_TRY(put_source(ctx, script, out));
    calm_text_printf(out, "; style-src ");
    CALM_TRY(put_source(ctx, style, out));
    calm_text_printf(out, "; base-uri 'none'; form-action 'none'");
    return CALM_OK;
}

/* ---- the page ---- */

static void put_title(const calm_json *data, calm_text *out)
{
    const calm_json *runs = calm_json_get(data, "runs");
    if (!calm_json_size(runs))
        put_text(out, "calm: a store without runs");
    for (size_t i = 0; i < calm_json_size(runs); i++) {
        const calm_json *run = calm_json_at(calm_json_get(calm_json_at(runs, i), "run"), 0);
        calm_text_printf(out, "%s %lld: ", !i ? "calm run" : i + 1 < calm_json_size(runs) ? ", run" : " and run",
                         (long long)calm_json_int(calm_json_get(run, "run"), 0));
        put_text(out, calm_json_string(calm_json_get(run, "model"), ""));
    }
}

typedef struct pieces {
    calm_text style, script, json, summary;
} pieces;

static void clear_pieces(pieces *p)
{
    calm_text_clear(&p->style);
    calm_text_clear(&p->script);
    calm_text_clear(&p->json);
    calm_text_clear(&p->summary);
}

static calm_status fill_pieces(calm_ctx *ctx, const calm_json *data, pieces *p)
{
    calm_text_printf(&p->style, "\n%s", calm_report_css);
    calm_text_printf(&p->script, "\n(function () {\n\"use strict\";\n%s%s%s%s%s}());\n", calm_report_js_print,
                     calm_report_js_base, calm_report_js_figures, calm_report_js_matrix, calm_report_js_parts);
    CALM_TRY(calm_text_check(ctx, &p->style));
    CALM_TRY(calm_text_check(ctx, &p->script));
    CALM_TRY(calm_json_write(ctx, data, 0, &p->json));
    CALM_TRY(calm_report_page_markdown(ctx, data, &p->summary));
    return calm_text_check(ctx, &p->summary);
}

static calm_status put_piece(calm_ctx *ctx, const char *name, size_t n, const calm_json *data, const pieces *p,
                             calm_text *out)
{
    if (strncmp(name, "policy", n) == 0)
        return put_policy(ctx, &p->style, &p->script, out);
    if (strncmp(name, "title", n) == 0)
        put_title(data, out);
    else if (strncmp(name, "style", n) == 0)
        calm_text_append(out, p->style.data, p->style.length);
    else if (strncmp(name, "summary", n) == 0)
        put_text(out, p->summary.data ? p->summary.data : "");
    else if (strncmp(name, "data", n) == 0)
        put_json(out, &p->json);
    else
        calm_text_append(out, p->script.data, p->script.length);
    return CALM_OK;
}

calm_status calm_report_page_html(calm_ctx *ctx, const calm_json *data, calm_text *out)
{
    CALM_SCOPED(pieces, clear_pieces) p = {0};
    CALM_TRY(fill_pieces(ctx, data, &p));
    const char *at = calm_report_html_template;
    for (const char *mark; (mark = strstr(at, "{{")) != NULL;) {
        const char *end = strstr(mark, "}}");
        calm_text_append(out, at, (size_t)(mark - at));
        CALM_TRY(put_piece(ctx, mark + 2, (size_t)(end - mark - 2), data, &p, out));
        at = end + 2;
    }
    calm_text_append(out, at, strlen(at));
    return calm_text_check(ctx, out);
}

calm_status calm_report_page_target(calm_ctx *ctx, const char *path, bool force, bool page, const calm_words *inputs)
{
    return calm_output_file(ctx, path, force, page ? "<!DOCTYPE html>" : NULL, inputs);
}

calm_status calm_report_page_write(calm_ctx *ctx, const char *path, const calm_text *text)
{
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_make_parent(ctx, path));
    return calm_write_file(ctx, path, text->data, text->length);
}

calm_status calm_report_page_save(calm_ctx *ctx, const char *store, const int64_t *runs, size_t n, const char *path)
{
    CALM_SCOPED_JSON(data);
    CALM_SCOPED_TEXT(page);
    char **words;
    CALM_TRY(CALM_NEW(ctx, ctx->out, words, n));
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_strf(ctx, ctx->out, &words[i], "%lld", (long long)runs[i]));
    CALM_TRY(calm_report_page_collect(ctx, store, (const char *const *)words, n, &data));
    CALM_TRY(calm_report_page_html(ctx, data, &page));
    return calm_report_page_write(ctx, path, &page);
}
