/* Pages of docs/ that a program writes in part: the lines between <!-- MARK --> and <!-- /MARK -->. */
#ifndef CALM_TESTS_PAGE_H
#define CALM_TESTS_PAGE_H

#include "ptq/base/text.h"

/* Compare a page's text with what it should be, or with `update` write that.  `remedy` is the command that writes it.
 * CALM_EMISMATCH: the first line that differs. */
calm_status page_settle(calm_ctx *ctx, const char *path, const char *found, const char *expected, bool update,
                        const char *remedy);

/* The same for a page whose part below MARK should be `text`.  CALM_EFORMAT: the page does not have the two lines. */
calm_status page_settle_part(calm_ctx *ctx, const char *path, const char *mark, const char *text, bool update,
                             const char *remedy);

/* Append a text as a cell of a Markdown table. */
void page_cell(calm_text *out, const char *text);

#endif
