/* Task files: multiple-choice tasks as JSON lines, and their tokens.
 *
 *   {"context": "The sun rises in the", "choices": [" east.", " west."], "answer": 0}
 *
 * Other members are ignored; blank lines are skipped.  A choice becomes tokens as in EleutherAI's
 * lm-evaluation-harness (TemplateLM._encode_pair, HFLM._loglikelihood_tokens):
 *
 *   - white space at the end of the context moves to the beginning of the choice;
 *   - context and context + choice are encoded; the choice's tokens are what the second has beyond the first one's
 * length, and they come after those of the first, though the second may begin otherwise;
 *   - after an empty context (or one that is white space alone, which the harness refuses) stands the prefix token,
 * unless the choice begins with it;
 *   - of what is longer than `max_length` + 1 tokens the first ones are dropped: the last token is predicted,
 * not read. */
#pragma once

#include "ptq/data/texts.h"

/* Limits: tasks of a file, bytes of a line, choices of a task. */
#define CALM_TASKS_MAX ((size_t)1 << 20)
#define CALM_TASK_LINE_MAX ((size_t)1 << 20)
#define CALM_TASK_CHOICES_MAX ((size_t)256)

typedef struct calm_task_options {
    size_t max_length;    /* tokens that a model reads at most, >= 1                      */
    size_t vocab;         /* ids at or above it are an error; 0: not checked              */
    size_t samples;       /* at most this many tasks, the first ones; 0: all                */
    long long prefix;     /* id in place of an empty context;   < 0: there is none      */
    bool special;         /* encode with the special tokens of the tokenizer's template   */
} calm_task_options;

typedef struct calm_task_choice {
    uint32_t *ids;    /* [n] the context's tokens and then its own, at least one of either       */
    size_t n, own;    /* tokens; its own of them                                                 */
    size_t length;    /* characters (code points) of the choice as it stands in the file         */
} calm_task_choice;

typedef struct calm_task {
    size_t line, answer;          /* its number in the file; the right choice */
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

/* Close with calm_task_reader_close, also after a failure.  CALM_ENOTFOUND, CALM_EIO. */
calm_status calm_task_reader_open(calm_ctx *ctx, const calm_tokenizer *tokenizer, const char *path,
                                  const calm_task_options *options, calm_task_reader *out);
void calm_task_reader_close(calm_task_reader *reader);

/* The next task in ctx->out; *found is false at the end of the file.  CALM_EFORMAT, with file, line, expected and
 * found: a line that is too long, not UTF-8 or not JSON; no context, choices or answer; no choice, or an empty one; an
 * answer that is none of the choices; a choice without its own token or of more than `max_length`; an id outside
 * the vocabulary; an empty context without a prefix token.  CALM_EARG: too many tasks, or none in the whole file. */
calm_status calm_task_reader_next(calm_ctx *ctx, calm_task_reader *reader, calm_task *out, bool *found);
