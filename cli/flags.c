/* Replaces recipe keys in messages by flags. */
#include "cli/flags.h"

#include <string.h>
#include <unistd.h>

#include "cli/print.h"
#include "ptq/recipe/spec.h"

#define KEY_MAX 64

/* Returns the flag of a recipe key, or of an option that recipes do not have; NULL: none. */
static const char *find_flag(const char *key)
{
    return calm_option_value_index("asymmetric|dtype|max-shard-size", key) >= 0 ? key : calm_spec_flag(key);
}

/* Appends the message with flags instead of keys. */
static void put_flags(const char *message, calm_text *out)
{
    for (const char *at = message; *at;) {
        const size_t plain = strcspn(at, "`"), length = at[plain] ? strcspn(at + plain + 1, "`") : 0;
        const char *flag = NULL;
        char key[KEY_MAX];
        calm_text_append(out, at, plain);
        at += plain;
        if (!*at)
            break;
        if (at[1 + length] && length < sizeof key) {
            memcpy(key, at + 1, length);
            key[length] = 0;
            flag = find_flag(key);
        }
        calm_text_printf(out, "%s%s", flag ? "--" : "`", flag ? flag : "");
        at += flag ? length + 2 : 1;
    }
}

void calm_flags_print(FILE *stream, const char *prefix, const char *message)
{
    calm_ctx terminal = {0};
    CALM_SCOPED_TEXT(line);
    CALM_SCOPED_TEXT(folded);
    calm_text_printf(&line, "%s", prefix);
    put_flags(message, &line);
    if (isatty(fileno(stream)))
        terminal.columns = calm_terminal_columns(fileno(stream));
    if (!line.failed)
        calm_table_fold(&terminal, line.data ? line.data : "", &folded);
    if (line.failed || folded.failed)    /* the message may be that memory is exhausted */
        fprintf(stream, "%s%s\n", prefix, message);
    else
        fputs(folded.data ? folded.data : "\n", stream);
}
