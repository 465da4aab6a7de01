/* Keys of a recipe as flags. */
#include "cli/flags.h"

#include <string.h>

#include "ptq/recipe/spec.h"

#define KEY_MAX 64

/* The flag of a recipe key, or of an option that recipes do not have; NULL: it is neither. */
static const char *find_flag(const char *key)
{
    return calm_option_value_index("asymmetric|dtype|max-shard-size", key) >= 0 ? key : calm_spec_flag(key);
}

void calm_flags_print(FILE *stream, const char *message)
{
    for (const char *at = message; *at;) {
        const size_t plain = strcspn(at, "`"), length = at[plain] ? strcspn(at + plain + 1, "`") : 0;
        const char *flag = NULL;
        char key[KEY_MAX];
        fwrite(at, 1, plain, stream);
        at += plain;
        if (!*at)
            break;
        if (at[1 + length] && length < sizeof key) {
            memcpy(key, at + 1, length);
            key[length] = 0;
            flag = find_flag(key);
        }
        fprintf(stream, "%s%s", flag ? "--" : "`", flag ? flag : "");
        at += flag ? length + 2 : 1;
    }
    fputc('\n', stream);
}
