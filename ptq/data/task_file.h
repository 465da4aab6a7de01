/* Task files: multiple-choice tasks as JSON lines, and their tokens.
 *
 *   {"context": "The sun rises in the", "choices": [" east.", " west."], "answer": 0}
 *
 * Other members are ignored; blank lines are skipped.  Choices are tokenized as in EleutherAI's
 * lm-evaluation-harness (TemplateLM._encode_pair, HFLM._loglikelihood_tokens):
 *
 *   - white space at the end of the context moves to the beginning of the choice;
 *   - context and context + choice are encoded; the choice's tokens are those of the second beyond the length of the
 *     first, and follow the tokens of the first, even if the second begins differently;
 *   - an empty context (or one with only white space, which the harness refuses) becomes the prefix token, unless the
 *     choice begins with it;
 *   - sequences longer than `max_length` + 1 tokens lose their first tokens: the last token is predicted, not read. */
#pragma once

#include "ptq/data/texts.h"

/* Limits: tasks per file, bytes per line, choices per task. */
#define CALM_TASKS_MAX ((size_t)1 << 20)
#define CALM_TASK_LINE_MAX ((size_t)1 << 20)
#define CALM_TASK_CHOICES_MAX ((size_t)256)

typedef struct calm_task_options {
    size_t max_length;    /* most tokens that a model reads, >= 1                         */
    size_t vocab;         /* exclusive upper bound of ids; 0: not checked                 */
    size_t samples;       /* number of tasks, from the first on; 0: all                     */
    long long prefix;     /* id in place of an empty context; < 0: none                 */
    bool special;         /* add the special tokens of the tokenizer's template           */
} calm_task_options;

typedef struct calm_task_choice {
    uint32_t *ids;    /* [n] tokens of the context, then of the choice; both have at least one   */
    size_t n, own;    /* tokens of both; tokens of the choice                                    */
    size_t length;    /* characters (code points) of the choice in the file                      */
} calm_task_choice;

typedef struct calm_task {
    size_t line, answer;          /* line number in the file; index of the right choice */
    size_t n;                     /* choices                                  */
    calm_task_choice *choices;    /* [n]                                      */
} calm_task;

typedef struct calm_task_reader {
    const calm_tokenizer *tokenizer;    /* borrowed, as is the path */
    const char *path;
    calm_task_options options;
    calm_texts texts;
    size_t n;                           /* tasks read */
} calm_task_reader;

/* Opens a task file.  Call calm_task_reader_close also after a failure.  CALM_ENOTFOUND, CALM_EIO. */
calm_status calm_task_reader_open(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                  const calm_task_options *options, calm_task_reader *out);
void calm_task_reader_close(calm_task_reader *reader);

/* Reads the next task into ctx->out; *found is false at the end of the file.  CALM_EFORMAT, with file, line,
 * expected and found: a line that is too long, not UTF-8 or not JSON; no context, choices or answer; no choice, or
 * an empty one; an answer that is not a choice; a choice without a token or with more than `max_length`; an id
 * outside the vocabulary; an empty context without a prefix token.  CALM_EARG: too many tasks, or none in the whole
 * file. */
calm_status calm_task_reader_next(calm_ctx *ctx, calm_task_reader *reader, calm_task *out, bool *found);
