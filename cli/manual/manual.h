/* Manual pages and shell completions, made from the option tables. */
#pragma once

#include "cli/command.h"

/* Completions that a shell offers. */
typedef struct calm_manual_offer {
    calm_words words;
    bool files, folders;    /* also offer paths: of files and folders; of folders only */
} calm_manual_offer;

/* Lists, in ctx->out, the completions of an option's value, or of a command's words.  CALM_ENOTFOUND, CALM_EFORMAT: the
 * shipped recipes or models cannot be read. */
calm_status calm_manual_values(calm_ctx *ctx, const calm_option *option, calm_manual_offer *out);
calm_status calm_manual_arguments(calm_ctx *ctx, const calm_command *command, calm_manual_offer *out);

/* Appends the manual page calm(1), or that of a command; `date` is YYYY-MM-DD. */
void calm_manual_program(calm_text *out, const char *date);
void calm_manual_command(calm_text *out, const calm_command *command, const char *date);

/* Appends the completion script for a shell.  Fails as calm_manual_values. */
calm_status calm_manual_bash(calm_ctx *ctx, calm_text *out);
calm_status calm_manual_zsh(calm_ctx *ctx, calm_text *out);
calm_status calm_manual_fish(calm_ctx *ctx, calm_text *out);

/* Appends a text in single quotes for a shell.  Inside, a quote is '\'' in POSIX shells, \' in fish, where a backslash
 * is \\. */
void calm_manual_quote(calm_text *out, const char *text, bool fish);
