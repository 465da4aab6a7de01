/* Names of repositories and files. */
#include "ptq/hub/reponame.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/sha256.h"

#define PART_MAX 96         /* the hub's limit for ORG and for NAME */
#define REVISION_MAX 200
#define NAME_MAX_BYTES 512  /* bytes of a file's path */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Checks ORG or NAME: it begins and ends with a letter, a digit or _; between them - and . are allowed, too. */
static bool is_part(const char *text, size_t n)
{
    if (n == 0 || n > PART_MAX || !is_word(text[0]) || !is_word(text[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_word(text[i]) && text[i] != '-' && text[i] != '.')
            return false;
        if (i && (text[i] == '-' || text[i] == '.') && text[i - 1] == text[i])    /* "--" separates in the cache */
            return false;
    }
    return n < 4 || strncmp(text + n - 4, ".git", 4) != 0;
}

bool calm_hub_is_name(const char *word)
{
    const size_t n = strcspn(word, "@"), n_org = strcspn(word, "/");
    return n_org < n && is_part(word, n_org) && is_part(word + n_org + 1, n - n_org - 1);
}

const char *calm_hub_name_fault(const char *name, size_t n)
{
    if (n == 0)
        return "is empty";
    if (n > NAME_MAX_BYTES)
        return "is too long";
    if (memchr(name, '\0', n))
        return "has a NUL byte";
    if (name[0] == '/')
        return "is absolute";
    for (size_t i = 0; i < n; i++) {
        if (name[i] == '\\')
            return "has a backslash";
        if ((unsigned char)name[i] < ' ' || name[i] == 127)
            return "has a control character";
    }
    for (const char *part = name; part; part = part[strcspn(part, "/")] ? part + strcspn(part, "/") + 1 : NULL) {
        const size_t length = strcspn(part, "/");
        if (length == 0)
            return "has an empty part";
        if (length == 2 && strncmp(part, "..", 2) == 0)
            return "goes up with \"..\"";
        if (length == 1 && part[0] == '.')
            return "has the part \".\"";
    }
    return NULL;
}

static const char *revision_fault(const char *revision)
{
    const size_t n = strlen(revision);
    const char *fault = calm_hub_name_fault(revision, n);
    if (fault)
        return fault;
    if (n > REVISION_MAX)
        return "is too long";
    for (size_t i = 0; i < n; i++)
        if (revision[i] == ' ' || (unsigned char)revision[i] >= 127 || strchr("~^:?*[@", revision[i]))
            return "has a character that git does not allow there";
    return strstr(revision, "..") ? "has \"..\" in it" : NULL;
}

calm_status calm_hub_name_parse(calm_ctx *ctx, const char *word, calm_hub_name *out)
{
    const size_t n = strcspn(word, "@"), n_org = strcspn(word, "/");
    const char *revision = word[n] ? word + n + 1 : "main", *fault = revision_fault(revision);
    if (!calm_hub_is_name(word))
        return calm_fail(ctx, CALM_EARG,
                         "\"%s\": expected ORG/NAME or ORG/NAME@REVISION; ORG and NAME have letters, digits, - _ . "
                         "(not at the ends, not twice), at most %d, and do not end with .git", word, PART_MAX);
    if (fault)
        return calm_fail(ctx, CALM_EARG, "\"%s\": the revision %s; expected a branch, a tag or a commit", word, fault);
    CALM_TRY(calm_strf(ctx, ctx->out, &out->repo, "%.*s", (int)n, word));
    CALM_TRY(calm_strf(ctx, ctx->out, &out->folder, "models--%.*s--%.*s", (int)n_org, word, (int)(n - n_org - 1),
                       word + n_org + 1));
    return calm_strf(ctx, ctx->out, &out->revision, "%s", revision);
}

bool calm_hub_is_commit(const char *text)
{
    return calm_is_hex(text, CALM_HUB_COMMIT - 1);
}

bool calm_hub_is_etag(const char *text)
{
    size_t n = 0;
    for (; text[n]; n++)
        if (!is_word(text[n]) && text[n] != '-' && text[n] != '.')
            return false;
    return n > 0 && n <= 128 && text[0] != '.';
}

/* Files that exporters copy and that readers of a checkpoint need. */
static const char *const fixed[] = {
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "chat_template.jinja", "chat_template.json",
    /* the pooling of an embedding model */
    "modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
    "3_Dense/config.json", "3_Dense/model.safetensors", "sentence_bert_config.json",
    "config_sentence_transformers.json", NULL};

const char *const *calm_hub_fixed_names(void)
{
    return fixed;
}

bool calm_hub_is_wanted(const char *name)
{
    static const char *const beginnings[] = {"chat_template", "LICENSE", "README"};
    for (size_t i = 0; fixed[i]; i++)
        if (strcmp(name, fixed[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        const char *rest = name + strlen(beginnings[i]);
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0 && !strchr(name, '/') &&
            (*rest == '\0' || *rest == '.'))
            return true;
    }
    return false;
}

calm_status calm_hub_quote(calm_ctx *ctx, const char *text, bool keep_slash, char **out)
{
    const size_t n = strlen(text);
    char *at;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, *out, 3 * n + 1));
    at = *out;
    for (size_t i = 0; i < n; i++) {
        if (is_word(text[i]) || strchr("-.~", text[i]) || (keep_slash && text[i] == '/')) {
            *at++ = text[i];
        } else {
            snprintf(at, 4, "%%%02X", (unsigned)(unsigned char)text[i]);
            at += 3;
        }
    }
    *at = '\0';
    return CALM_OK;
}
