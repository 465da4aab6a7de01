/* Manual pages and completions of shells, from the tables of options. */
#pragma once

#include "cli/command.h"

/* What a shell offers as a value or a word. */
typedef struct calm_manual_offer {
    calm_words words;
    bool files, folders;    /* and paths: of files, of folders alone */
} calm_manual_offer;

/* Of an option that takes a value, and of the words of a command; in ctx->out.  CALM_ENOTFOUND, CALM_EFORMAT: the
 * shipped recipes or models cannot be read. */
calm_status calm_manual_values(calm_ctx *ctx, const calm_option *option, calm_manual_offer *out);
calm_status calm_manual_arguments(calm_ctx *ctx, const calm_command *command, calm_manual_offer *out);

/* Append calm(1), or the page of a command; `date` is YYYY-MM-DD. */
void calm_manual_program(calm_text *out, const char *date);
void calm_manual_command(calm_text *out, const calm_command *command, const char *date);

/* Append the script of a shell.  The failures of calm_manual_values. */
calm_status calm_manual_bash(calm_ctx *ctx, calm_text *out);
calm_status calm_manual_zsh(calm_ctx *ctx, calm_text *out);
calm_status calm_manual_fish(calm_ctx *ctx, calm_text *out);

/* Append a text in single quotes for a shell: POSIX takes '\'' for a quote, fish takes \' (and \\ for a backslash). */
void calm_manual_quote(calm_text *out, const char *text, bool fish);
