/* The report of one or several stored runs: calm collects the data once as JSON, and writes a page or Markdown from it.
 *
 *   calm_report_page_collect   store -> data (docs/json.md, report)
 *   calm_report_page_html      data -> one self-contained HTML page
 *   calm_report_page_markdown  data -> a summary for CI
 *
 * The writers read only the data, so the page's figures are those of `calm report --json`. */
#pragma once

#include "cli/inspect/inspect_view.h"
#include "ptq/base/option.h"
#include "ptq/io/json.h"

/* Collects the data of the runs that words [n] name from the store at `path`, which it opens read-only.  n = 0: the
 * newest run, or no run if the store has none.  With two runs the data include their differences.  Free *out with
 * calm_json_free.  CALM_EARG: no number from 1, or the same run twice.  CALM_ENOTFOUND: no such run.  Otherwise fails
 * as calm_store_open. */
calm_status calm_report_page_collect(calm_ctx *ctx, const char *path, const char *const *words, size_t n,
                                     calm_json **out);

/* Makes the matrix of units and candidates of the run of `in`, a member of the data. */
calm_status calm_report_page_matrix(calm_ctx *ctx, calm_inspection *in, calm_json **out);

/* Appends the HTML page.  CALM_ENOMEM. */
calm_status calm_report_page_html(calm_ctx *ctx, const calm_json *data, calm_text *out);

/* Appends the summary as Markdown.  CALM_ENOMEM. */
calm_status calm_report_page_markdown(calm_ctx *ctx, const calm_json *data, calm_text *out);

/* Checks that a command with these inputs (NULL: not known yet) may write the file `path`.  With `page` it may
 * replace only a page.  CALM_EARG: a part of the path is no folder.  CALM_EIO: the folder cannot be written.
 * Otherwise fails as calm_output_file. */
calm_status calm_report_page_target(calm_ctx *ctx, const char *path, bool force, bool page, const calm_words *inputs);

/* Writes a text to the file `path`, completely or not at all, and makes its folder.  Fails as calm_write_file. */
calm_status calm_report_page_write(calm_ctx *ctx, const char *path, const calm_text *text);

/* Writes the page of runs [n] of the store to the file `path`, completely or not at all. */
calm_status calm_report_page_save(calm_ctx *ctx, const char *store, const int64_t *runs, size_t n, const char *path);
