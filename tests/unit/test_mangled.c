/* Every file of tests/data/mangled (made by make.py) fails as its name says: STATUS_text__variant.kind. */
#include <dirent.h>
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/quant/qblob.h"
#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"

static calm_status open_tensors(const char *path)
{
    calm_safetensors *set;
    calm_status status = calm_safetensors_open(ctx, path, &set);
    ck_assert_msg((status == CALM_OK) == (set != NULL), "%s: result and status disagree", path);
    calm_safetensors_close(set);
    return status;
}

static calm_status open_blob(const char *path)
{
    char *bytes;
    size_t n;
    calm_qjob qjob;
    ck_ok(calm_read_file(ctx, path, 1 << 20, &bytes, &n));
    return calm_qblob_decode(ctx, path, bytes, n, &qjob);
}

static const struct {
    const char *kind;
    calm_status (*open)(const char *path);
} readers[] = {{"safetensors", open_tensors}, {"shards", open_tensors}, {"qblob", open_blob}};

static calm_status open_any(const char *path, const char *kind)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(readers[i].kind, kind) == 0)
            return readers[i].open(path);
    ck_abort_msg("%s: nobody reads the kind \"%s\"", path, kind);
}

/* Replaces '_' in names, which stands for '_' or a space of the message, by a space. */
static char *spaced(char *text)
{
    for (char *at = text; *at; at++)
        if (*at == '_')
            *at = ' ';
    return text;
}

/* Returns the status that begins the name, and the text after it. */
static calm_status expected(const char *name, char *text)
{
    const size_t length = strcspn(name, "_");
    calm_status status = 0;
    while (status < CALM_N_STATUS && (strlen(calm_status_name(status)) != length ||
                                      strncmp(calm_status_name(status), name, length) != 0))
        status++;
    ck_assert_msg(status < CALM_N_STATUS, "%s: does not begin with a status", name);
    strcpy(text, name + length + 1);
    *strrchr(text, '.') = '\0';
    char *variant = strstr(text, "__");
    if (variant)
        *variant = '\0';
    spaced(text);
    return status;
}

static void check(const char *name)
{
    const char *path = test_data(test_format("mangled/%s", name));
    char text[256];
    ck_assert_uint_lt(strlen(name), sizeof text);
    calm_status wanted = expected(name, text), found = open_any(path, strrchr(name, '.') + 1);
    ck_assert_msg(found == wanted, "%s: %s (%s)", name, calm_status_name(found), ctx->message);
    if (wanted == CALM_OK)
        return;
    /* The path contains the text too, so the message after it is searched. */
    const char *message = strncmp(ctx->message, path, strlen(path)) == 0 ? ctx->message + strlen(path) : ctx->message;
    ck_assert_msg(strstr(spaced(test_format("%s", message)), text), "%s: \"%s\" lacks \"%s\"", name, message, text);
    calm_ctx_clear_failure(ctx);
}

TEST(every_file_fails_as_its_name_says)
{
    DIR *folder = opendir(test_data("mangled"));
    size_t n = 0;
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "make.py") != 0) {
            check(entry->d_name);
            n++;
        }
    closedir(folder);
    ck_assert_uint_gt(n, 60);
}
END_OF_TEST

int main(void)
{
    return run_tests("mangled", (const TTest *[]){every_file_fails_as_its_name_says, NULL});
}
