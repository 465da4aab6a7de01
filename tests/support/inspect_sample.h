/* A store for tests of `calm inspect`, and the command's output.
 *
 * Two blocks with the jobs qkv and down.  Runs:
 *   1  token by cka_token among rtn, gptq, gptq-hls; finished; choices: 0.qkv by the rule (gptq, a near tie), 0.down
 * pinned to rtn (gptq failed), 1.qkv against the rule, 1.down stays float 2  argmax by rel_mse among rtn, gptq; another
 * calibration and recipe; a uniform run is the result; 1.down is missing 3  a budget of bits over two schemes; 0.qkv
 * alone 4  of sublayers, without choices; an algorithm represents another */
#ifndef CALM_TESTS_INSPECT_SAMPLE_H
#define CALM_TESTS_INSPECT_SAMPLE_H

#include "cli/inspect/inspect.h"
#include "store/store.h"

/* Makes the store and returns its path. */
const char *inspect_sample(void);

/* Makes the store and opens it for writing. */
calm_store *inspect_sample_open(const char **path);

/* Runs one query of the store; *out is its output, NUL-terminated, in ctx->out. */
calm_status inspect_printed(const char *path, const calm_inspect_query *query, const char **out);

/* Returns the output of `calm inspect PATH WHAT RUN` as text, JSON or CSV; the command must succeed.  RUN and UNIT
 * may be NULL. */
const char *inspect_shown(const char *path, const char *what, const char *run, const char *unit,
                          calm_inspect_form form);

/* Checks that the text contains the words. */
#define ck_has(text, words) ck_assert_msg(strstr((text), (words)) != NULL, "\"%s\" is not in:\n%s", (words), (text))
#define ck_lacks(text, words) ck_assert_msg(strstr((text), (words)) == NULL, "\"%s\" is in:\n%s", (words), (text))

#endif
