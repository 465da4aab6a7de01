/* A store for tests of `calm inspect`, and what it prints.
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

/* Make the store; its path. */
const char *inspect_sample(void);

/* The same, open for writing. */
calm_store *inspect_sample_open(const char **path);

/* Print one query of the store to a file; *out is what was printed, NUL-terminated, in ctx->out. */
calm_status inspect_printed(const char *path, const calm_inspect_query *query, const char **out);

/* What `calm inspect PATH WHAT RUN` prints as text, JSON or CSV; it must succeed.  RUN and UNIT may be NULL. */
const char *inspect_shown(const char *path, const char *what, const char *run, const char *unit,
                          calm_inspect_form form);

/* The text must contain the words. */
#define ck_has(text, words) ck_assert_msg(strstr((text), (words)) != NULL, "\"%s\" is not in:\n%s", (words), (text))
#define ck_lacks(text, words) ck_assert_msg(strstr((text), (words)) == NULL, "\"%s\" is in:\n%s", (words), (text))

#endif
