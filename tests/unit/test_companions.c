/* Files that accompany a checkpoint: which are copied, and which are not. */
#include "ptq/export/companions.h"

#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static void put(const char *dir, const char *name, const char *text)
{
    const char *path = test_format("%s/%s", dir, name);
    ck_ok(calm_make_parent(ctx, path));
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

/* Returns the names of the list, joined by spaces; *missing: the classes without a module, likewise. */
static const char *listed(const char *dir, const char **missing)
{
    calm_words files, classes = {0};
    ck_ok(calm_export_list_companions(ctx, dir, &files, &classes));
    const char *out = "";
    *missing = "";
    for (size_t i = 0; i < files.n; i++)
        out = test_format("%s%s%s", out, i ? " " : "", files.of[i]);
    for (size_t i = 0; i < classes.n; i++)
        *missing = test_format("%s%s%s", *missing, i ? " " : "", classes.of[i]);
    return out;
}

TEST(known_names_and_templates)
{
    const char *dir = test_directory(), *to = test_directory(), *missing;
    put(dir, "config.json", "{}");
    put(dir, "tokenizer.json", "{}");
    put(dir, "LICENSE", "text");
    put(dir, "setup.py", "import os\n");
    put(dir, CALM_TEMPLATES_DIR "/tool_use.jinja", "{{ tools }}");
    put(dir, CALM_TEMPLATES_DIR "/rag.jinja", "{{ rag }}");
    put(dir, CALM_TEMPLATES_DIR "/.hidden.jinja", "no");
    put(dir, CALM_TEMPLATES_DIR "/note.txt", "no");
    ck_assert_str_eq(listed(dir, &missing), "tokenizer.json LICENSE " CALM_TEMPLATES_DIR "/rag.jinja "
                                            CALM_TEMPLATES_DIR "/tool_use.jinja");
    ck_assert_str_eq(missing, "");
    ck_ok(calm_export_copy_companions(ctx, dir, to));
    ck_assert(calm_is_file(test_format("%s/" CALM_TEMPLATES_DIR "/rag.jinja", to)));
    ck_assert(!calm_path_exists(test_format("%s/setup.py", to)));
}
END_OF_TEST

/* auto_map of both files, imports of the modules, packages, custom pipelines. */
TEST(python_modules)
{
    const char *dir = test_directory(), *to = test_directory(), *missing;
    put(dir, "config.json",
        "{\"auto_map\": {\"AutoConfig\": \"configuration_a.A\", \"AutoModel\": \"modeling_a.A\", "
        "\"AutoModelForMaskedLM\": \"owner/other--modeling_b.B\"}, "
        "\"custom_pipelines\": {\"own\": {\"impl\": \"pipe_a.P\"}}}");
    put(dir, "tokenizer_config.json", "{\"auto_map\": {\"AutoTokenizer\": [\"tokenization_a.T\", null]}}");
    put(dir, "configuration_a.py", "from .util import x\nfrom\t.deep.part import y\n");
    put(dir, "modeling_a.py", "    from .configuration_a import A\nfrom . import (\n  more,\n  nothing as no)\n");
    put(dir, "tokenization_a.py", "import torch\nfrom torch import nn\n");
    put(dir, "pipe_a.py", "");
    put(dir, "util.py", "from .util import x\n");
    put(dir, "more.py", "from . import util, last\n");
    put(dir, "last.py", "");
    put(dir, "deep/part.py", "from .within import z\n");
    put(dir, "deep/within.py", "");
    put(dir, "unused.py", "");
    const char *names = listed(dir, &missing);
    ck_assert_msg(strcmp(names, "tokenizer_config.json configuration_a.py modeling_a.py pipe_a.py tokenization_a.py "
                                "util.py deep/part.py more.py deep/within.py last.py") == 0, "%s", names);
    ck_assert_str_eq(missing, "");
    ck_ok(calm_export_copy_companions(ctx, dir, to));
    ck_assert(calm_is_file(test_format("%s/deep/within.py", to)));
}
END_OF_TEST

/* Names are untrusted: nothing outside of the directory is copied, by name or by link. */
TEST(nothing_from_outside)
{
    const char *above = test_directory(), *dir = test_format("%s/model", above), *missing;
    put(above, "secret.py", "key = 1\n");
    put(dir, "config.json",
        "{\"auto_map\": {\"a\": \"../secret.A\", \"b\": \"..secret.A\", \"c\": \"linked.A\", \"d\": \"folder.A\", "
        "\"e\": \"/etc/passwd.A\", \"f\": \"inside.A\", \"g\": \"gone.A\", \"h\": 7, \"i\": \"\", \"j\": \"pipe.A\"}}");
    put(dir, "real.py", "from ..secret import key\nfrom .../secret import key\n");
    put(dir, "folder.py/x", "");
    ck_assert_int_eq(symlink("../secret.py", test_format("%s/linked.py", dir)), 0);
    ck_assert_int_eq(symlink("real.py", test_format("%s/inside.py", dir)), 0);
    ck_assert_int_eq(mkfifo(test_format("%s/pipe.py", dir), 0600), 0);
    ck_assert_str_eq(listed(dir, &missing), "inside.py");
    ck_assert_str_eq(missing, "../secret.A ..secret.A linked.A folder.A /etc/passwd.A gone.A  pipe.A");
}
END_OF_TEST

/* Files of the hub's cache are links to its blobs, which are followed. */
TEST(the_hubs_cache)
{
    const char *cache = test_directory(), *dir = test_format("%s/snapshots/0123", cache), *missing;
    put(cache, "blobs/aa", "x = 1\n");
    put(cache, "other/bb", "x = 1\n");
    put(dir, "config.json", "{\"auto_map\": {\"a\": \"one.A\", \"b\": \"two.A\"}}");
    ck_assert_int_eq(symlink("../../blobs/aa", test_format("%s/one.py", dir)), 0);
    ck_assert_int_eq(symlink("../../other/bb", test_format("%s/two.py", dir)), 0);
    ck_assert_str_eq(listed(dir, &missing), "one.py");
    ck_assert_str_eq(missing, "two.A");
}
END_OF_TEST

int main(void)
{
    return run_tests("companions", (const TTest *[]){known_names_and_templates, python_modules, nothing_from_outside,
                                                     the_hubs_cache, NULL});
}
