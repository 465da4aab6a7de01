/* The report of a stored run, or of several: collected once as JSON, and written from that as a page or as Markdown.
 *
 *   calm_report_page_collect   store -> data (docs/json.md, report)
 *   calm_report_page_html      data -> one self-contained HTML page
 *   calm_report_page_markdown  data -> a summary for CI
 *
 * What writes reads the data alone, so the page's figures are those that `calm report --json` prints. */
#pragma once

#include "cli/inspect/inspect_view.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"

/* Collect the runs that words [n] name, of the store at `path`, which is opened read-only; n 0: the newest, and of a
 * store without runs data without them.  Of two the data say what differs.  *out is freed with calm_json_free.
 * CALM_EARG: no number from 1, or the same run twice.  CALM_ENOTFOUND: no such run.  Else as calm_store_open. */
calm_status calm_report_page_collect(calm_ctx *ctx, const char *path, const char *const *words, size_t n,
                                     calm_json **out);

/* The matrix of units and candidates of the run of `in`, a member of the data. */
calm_status calm_report_page_matrix(calm_ctx *ctx, calm_inspection *in, calm_json **out);

/* Append the page.  Fails with CALM_ENOMEM. */
calm_status calm_report_page_html(calm_ctx *ctx, const calm_json *data, calm_text *out);

/* Append the summary as Markdown.  Fails with CALM_ENOMEM. */
calm_status calm_report_page_markdown(calm_ctx *ctx, const calm_json *data, calm_text *out);

/* May the file `path` be written by a command with these inputs (NULL: not known yet)?  With `page` a file that is
 * replaced must be a page.  CALM_EARG: a folder of the path is none.  CALM_EIO: nothing can be written there.  Else as
 * calm_output_file. */
calm_status calm_report_page_target(calm_ctx *ctx, const char *path, bool force, bool page, const calm_words *inputs);

/* Write a text as the file `path`, whole or not at all; its folder is made.  The failures of calm_write_file. */
calm_status calm_report_page_write(calm_ctx *ctx, const char *path, const calm_text *text);

/* Write the page of runs [n] of the store as the file `path`, whole or not at all. */
calm_status calm_report_page_save(calm_ctx *ctx, const char *store, const int64_t *runs, size_t n, const char *path);
