/* Generated parts of pages of docs/: the lines between <!-- MARK --> and <!-- /MARK -->. */
#ifndef CALM_TESTS_PAGE_H
#define CALM_TESTS_PAGE_H

#include "ptq/base/text.h"

/* Compares a page's text `found` with `expected`, or with `update` writes `expected`.  `remedy` is the command that
 * writes it.  CALM_EMISMATCH: the message shows the first line that differs. */
calm_status page_settle(calm_ctx *ctx, const char *path, const char *found, const char *expected, bool update,
                        const char *remedy);

/* The same for the part MARK of a page, which should be `text`.  CALM_EFORMAT: the page lacks the two lines. */
calm_status page_settle_part(calm_ctx *ctx, const char *path, const char *mark, const char *text, bool update,
                             const char *remedy);

/* Appends a text as a cell of a Markdown table. */
void page_cell(calm_text *out, const char *text);

#endif
