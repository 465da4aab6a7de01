#include "tests/tools/page.h"

#include <string.h>

#include "ptq/base/file.h"

#define PAGE_BYTES ((size_t)1 << 22)

static calm_status compare(calm_ctx *ctx, const char *path, const char *found, const char *expected,
                           const char *remedy)
{
    int line = 1;
    size_t i = 0, begin = 0;
    for (; found[i] && found[i] == expected[i]; i++)
        if (found[i] == '\n')
            line++, begin = i + 1;
    if (!found[i] && !expected[i])
        return CALM_OK;
    return calm_fail(ctx, CALM_EMISMATCH, "%s:%d: \"%.*s\", expected \"%.*s\"; after a look at it: %s", path, line,
                     (int)strcspn(found + begin, "\n"), found + begin, (int)strcspn(expected + begin, "\n"),
                     expected + begin, remedy);
}

calm_status page_settle(calm_ctx *ctx, const char *path, const char *found, const char *expected, bool update,
                        const char *remedy)
{
    return update ? calm_write_file(ctx, path, expected, strlen(expected))
                  : compare(ctx, path, found, expected, remedy);
}

calm_status page_settle_part(calm_ctx *ctx, const char *path, const char *mark, const char *text, bool update,
                             const char *remedy)
{
    char *page, *begin, *end;
    size_t n;
    calm_text whole;
    CALM_TRY(calm_read_file(ctx, path, PAGE_BYTES, &page, &n));
    CALM_TRY(calm_strf(ctx, ctx->out, &begin, "<!-- %s -->\n", mark));
    CALM_TRY(calm_strf(ctx, ctx->out, &end, "<!-- /%s -->\n", mark));
    const char *from = strstr(page, begin), *to = from ? strstr(from, end) : NULL;
    if (!to)
        return calm_fail(ctx, CALM_EFORMAT, "%s: no lines <!-- %s --> and <!-- /%s -->", path, mark, mark);
    calm_text_init(&whole);
    calm_text_append(&whole, page, (size_t)(from - page) + strlen(begin));
    calm_text_printf(&whole, "%s%s", text, to);
    calm_status status = calm_text_check(ctx, &whole);
    if (status == CALM_OK)
        status = page_settle(ctx, path, page, whole.data, update, remedy);
    calm_text_clear(&whole);
    return status;
}

void page_cell(calm_text *out, const char *text)
{
    for (const char *at = text; *at; at++)
        calm_text_printf(out, *at == '|' || *at == '<' || *at == '*' ? "\\%c" : "%c", *at);
}
