/* Other tools' names for calm's options. */
#include "cli/peers.h"

#include <stdio.h>
#include <string.h>

#include "ptq/base/text.h"

#define WORD_MAX 64

typedef struct peer {
    const char *spelling, *option, *hint, *why;
} peer;

static const peer peers[] = {
#define CALM_PEER(spelling, option, hint, why) {spelling, option, hint, why},
#include "cli/peers.def"
};

static const char *const commands[][2] = {
#define CALM_PEER_COMMAND(spelling, instead) {spelling, instead},
#include "cli/peers.def"
};

static bool has(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Returns the first row for a spelling whose option the command has; NULL: none. */
static const peer *find_peer(const char *const *names, size_t n, const char *word)
{
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        if (strcmp(peers[i].spelling, word) == 0 && has(names, n, peers[i].option))
            return &peers[i];
    return NULL;
}

/* "calm quantize: --group-size: ...; did you mean --scheme w4a16_g64?"  value: the given value; NULL: none. */
static calm_status answer(calm_ctx *ctx, const char *owner, const char *typed, const peer *row, const char *value)
{
    const bool group = calm_text_ends_with(row->hint, "_g"), name = calm_text_ends_with(row->hint, " ");
    const bool number = value && *value && strspn(value, "0123456789") == strlen(value);
    const char *behind = group ? number ? value : "128" : !name ? "" : value && *value != '-' ? value : "NAME";
    if (!*row->hint)
        return calm_fail(ctx, CALM_EARG, "%s: there is no --%s: %s", owner, typed, row->why);
    return calm_fail(ctx, CALM_EARG, "%s: there is no --%s: %s; did you mean %s%.80s?", owner, typed, row->why,
                     row->hint, behind);
}

/* Replaces one long option; argv[a + 1] may be its value. */
static calm_status replace_one(calm_ctx *ctx, const char *owner, const char *const *names, size_t n, char **word,
                               const char *next)
{
    char typed[WORD_MAX], name[WORD_MAX];
    const char *value = strchr(*word, '=');
    const size_t length = value ? (size_t)(value - *word) - 2 : strlen(*word) - 2;
    if (length >= sizeof name)
        return CALM_OK;
    snprintf(typed, sizeof typed, "%.*s", (int)length, *word + 2);
    memcpy(name, typed, sizeof name);
    for (char *at = name; (at = strchr(at, '_'));)
        *at = '-';
    if (has(names, n, typed))
        return CALM_OK;
    const peer *row = has(names, n, name) ? NULL : find_peer(names, n, name);
    if (row && row->hint)
        return answer(ctx, owner, typed, row, value ? value + 1 : next);
    return row || strcmp(name, typed) != 0
               ? calm_strf(ctx, ctx->out, word, "--%s%s", row ? row->option : name, value ? value : "")
               : CALM_OK;
}

calm_status calm_peers_replace(calm_ctx *ctx, const char *owner, const char *const *names, size_t n, int argc,
                               char **argv)
{
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++)
        if (strncmp(argv[a], "--", 2) == 0)
            CALM_TRY(replace_one(ctx, owner, names, n, &argv[a], a + 1 < argc ? argv[a + 1] : NULL));
    return CALM_OK;
}

const char *calm_peers_command(const char *word)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i][0], word) == 0)
            return commands[i][1];
    return NULL;
}
