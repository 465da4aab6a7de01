/* A model's checkpoint under other names. */
#include "tests/support/wrapped_model.h"

#include <string.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"
#include "tests/support/write_tensors.h"

enum { MOST = 256 };

const char *config_text(const char *dir)
{
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, test_format("%s/config.json", dir), 1 << 20, &text, &n));
    return test_format("%.*s", (int)n, text);
}

static const char *renamed(const char *name, const char *strip, const char *prefix, const char *head)
{
    const size_t length = strlen(strip);
    if (strcmp(name, "lm_head.weight") == 0)
        return test_format("%s.weight", head);
    return test_format("%s%s", prefix, strncmp(name, strip, length) == 0 ? name + length : name);
}

const char *wrap_model(const calm_model *inner, const char *strip, const char *prefix, const char *head,
                       const calm_tensor *more, size_t n, const char *config)
{
    static calm_tensor tensors[MOST];
    const calm_safetensors *set = calm_model_tensors(inner);
    const size_t n_own = calm_safetensors_count(set);
    const char *dir = test_directory();
    ck_assert_uint_le(n_own + n, MOST);
    for (size_t i = 0; i < n_own; i++) {
        tensors[i] = *calm_safetensors_at(set, i);
        tensors[i].name = renamed(tensors[i].name, strip, prefix, head);
    }
    for (size_t i = 0; i < n; i++)
        tensors[n_own + i] = more[i];
    write_tensors(dir, tensors, n_own + n);
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), config, strlen(config)));
    return dir;
}
