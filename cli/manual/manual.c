/* calm_manual FOLDER DATE: writes manual pages and completions below a folder.
 *
 *   man/calm.1, man/calm-COMMAND.1      pages of manual section 1, dated DATE
 *   bash/calm, zsh/_calm, fish/calm.fish */
#include <stdio.h>

#include "cli/manual/manual.h"
#include "ptq/base/file.h"

/* Writes a text to FOLDER/NAME and clears it. */
static calm_status put(calm_ctx *ctx, const char *folder, const char *name, calm_text *text)
{
    char *path;
    CALM_TRY(calm_text_check(ctx, text));
    CALM_TRY(calm_strf(ctx, ctx->out, &path, "%s/%s", folder, name));
    CALM_TRY(calm_make_parent(ctx, path));
    CALM_TRY(calm_write_file(ctx, path, text->data, text->length));
    calm_text_clear(text);
    return CALM_OK;
}

static calm_status write_all(calm_ctx *ctx, const char *folder, const char *date)
{
    static const struct {
        const char *name;
        calm_status (*write)(calm_ctx *ctx, calm_text *out);
    } scripts[] = {
        {"bash/calm", calm_manual_bash}, {"zsh/_calm", calm_manual_zsh}, {"fish/calm.fish", calm_manual_fish}};
    size_t n;
    const calm_command *const *commands = calm_commands(&n);
    CALM_SCOPED_TEXT(text);
    calm_manual_program(&text, date);
    CALM_TRY(put(ctx, folder, "man/calm.1", &text));
    for (size_t i = 0; i < n; i++) {
        char *name;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "man/calm-%s.1", commands[i]->name));
        calm_manual_command(&text, commands[i], date);
        CALM_TRY(put(ctx, folder, name, &text));
    }
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        CALM_TRY(scripts[i].write(ctx, &text));
        CALM_TRY(put(ctx, folder, scripts[i].name, &text));
    }
    return CALM_OK;
}

int main(int argc, char **argv)
{
    calm_ctx *ctx;
    if (argc != 3) {
        fprintf(stderr, "usage: calm_manual FOLDER YYYY-MM-DD\n");
        return 2;
    }
    calm_status status = calm_start(&ctx);
    if (status == CALM_OK)
        status = write_all(ctx, argv[1], argv[2]);
    if (status != CALM_OK)
        fprintf(stderr, "calm_manual: %s\n", calm_error_text(ctx));
    calm_stop(&ctx);
    return status != CALM_OK;
}
