/* Model names on the command line: paths, aliases, the hub. */
#include "ptq/recipe/model_names.h"

#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/hub/reponame.h"
#include "tests/support/harness.h"
#include "tests/support/hub_server.h"

static calm_named_model resolve(const char *word)
{
    calm_named_model out;
    ck_ok(calm_model_find(ctx, word, NULL, NULL, &out));
    return out;
}

/* Starts with an empty cache, a hub with the model test/tiny, and a new working directory. */
static void start(hub_server *hub)
{
    const char *dir = test_directory();
    memset(hub, 0, sizeof *hub);
    hub->repo = "test/tiny";
    hub_add(hub, "config.json", "{}", 2, false);
    hub_add(hub, "model.safetensors", "w", 1, true);
    hub_start(hub);
    setenv("HF_ENDPOINT", hub->endpoint, 1);
    setenv("HF_HUB_CACHE", test_format("%s/cache", dir), 1);
    setenv("HF_TOKEN", "hf_x", 1);    /* so that no file in the home folder is read */
    unsetenv("HF_HUB_OFFLINE");
    unsetenv("TRANSFORMERS_OFFLINE");
    ck_assert_int_eq(chdir(dir), 0);
}

TEST(every_alias_names_a_repository)
{
    calm_alias *aliases;
    size_t n, n_bundled = 0;
    ck_ok(calm_aliases(ctx, &aliases, &n));
    ck_assert_uint_gt(n, 40);
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(!aliases[i].repo || calm_hub_is_name(aliases[i].repo), "%s", aliases[i].name);
        ck_assert_msg(!strpbrk(aliases[i].name, "/@"), "%s", aliases[i].name);
        n_bundled += aliases[i].path != NULL;
    }
    ck_assert_uint_eq(n_bundled, 1);
    for (int i = 0; i < 3; i++) {
        bool found;
        ck_ok(calm_aliases_have(ctx, (const char *const[]){aliases[n - 1].name, "", "no-such-model"}[i], &found));
        ck_assert(found == (i == 0));
    }
}
END_OF_TEST

TEST(hub_names)
{
    const char *name;
    ck_ok(calm_model_hub_name(ctx, "minilm", &name));
    ck_assert_str_eq(name, "sentence-transformers/all-MiniLM-L6-v2");
    ck_ok(calm_model_hub_name(ctx, "qwen3-0.6b@v1", &name));
    ck_assert_str_eq(name, "Qwen/Qwen3-0.6B@v1");
    ck_ok(calm_model_hub_name(ctx, "a/b@c", &name));
    ck_assert_str_eq(name, "a/b@c");
    ck_ok(calm_model_hub_name(ctx, "qwen", &name));    /* bundled */
    ck_assert_ptr_null(name);
    ck_ok(calm_model_hub_name(ctx, "nosuch", &name));
    ck_assert_ptr_null(name);
}
END_OF_TEST

TEST(unknown_names_get_the_nearest)
{
    calm_named_model out;
    ck_fails(calm_model_find(ctx, "qwen3-06b", NULL, NULL, &out), CALM_ENOTFOUND, "did you mean \"qwen3-0.6b\"?");
    ck_fails(calm_model_find(ctx, "zzzzzzzzzzz", NULL, NULL, &out), CALM_ENOTFOUND, "calm pull --list");
    ck_fails(calm_model_find(ctx, "qwen@v1", NULL, NULL, &out), CALM_ENOTFOUND, "no such name");
}
END_OF_TEST

TEST(paths_win)
{
    static const char *const nowhere[] = {"./test/none", "/a/b", "test/a/b"};
    hub_server hub;
    calm_named_model out;
    start(&hub);
    ck_ok(calm_make_directories(ctx, "test/tiny"));
    ck_assert_str_eq(resolve("test/tiny").dir, "test/tiny");
    for (int i = 0; i < 3; i++)
        ck_fails(calm_model_find(ctx, nowhere[i], NULL, NULL, &out), CALM_ENOTFOUND, "no such directory");
    ck_ok(calm_make_directories(ctx, "folder"));
    ck_assert_str_eq(resolve("folder").dir, "folder");
    ck_ok(calm_make_directories(ctx, "qwen"));
    ck_assert_str_ne(resolve("qwen").dir, "qwen");    /* an alias means the same everywhere */
    ck_assert_uint_eq(hub.n_requests, 0);
    hub_stop(&hub);
}
END_OF_TEST

TEST(a_model_of_the_hub_is_fetched_once)
{
    hub_server hub;
    calm_named_model out;
    start(&hub);
    const char *dir = resolve("test/tiny").dir;
    ck_assert(calm_is_directory(dir));
    ck_assert_str_eq(dir, test_format("%s/models--test--tiny/snapshots/" HUB_COMMIT, getenv("HF_HUB_CACHE")));
    ck_assert_uint_eq(hub.n_requests, 4);
    ck_assert_str_eq(resolve("test/tiny").dir, dir);
    ck_assert_uint_eq(hub.n_requests, 4);
    ck_fails(calm_model_find(ctx, "test/typo", NULL, NULL, &out), CALM_ENOTFOUND,
             "(nor is there a directory test/typo)");
    hub_stop(&hub);
    setenv("HF_HUB_OFFLINE", "1", 1);
    ck_assert_str_eq(resolve("test/tiny").dir, dir);
    ck_fails(calm_model_find(ctx, "minilm", NULL, NULL, &out), CALM_ENOTFOUND, "HF_HUB_OFFLINE is set");
    ck_assert_int_eq(unlink(test_format("%s/models--test--tiny/.no_exist/" HUB_COMMIT "/tokenizer.json",
                                        getenv("HF_HUB_CACHE"))), 0);
    ck_assert_ptr_nonnull(strstr(resolve("test/tiny").note, "no tokenizer.json"));
}
END_OF_TEST

TEST(repositories_of_names_and_of_the_cache)
{
    static const char *const cases[][2] = {{"test/tiny", "test/tiny"},
                                           {"test/tiny@v1", "test/tiny"},
                                           {"/a/models--test--tiny/snapshots/0", "test/tiny"},
                                           {"models--test--tiny/snapshots/0/", "test/tiny"},
                                           {"/a/models--test--tiny", NULL},
                                           {"/a/models--tiny/snapshots/0", NULL},
                                           {"/a/xmodels--test--tiny/snapshots/0", NULL},
                                           {"/models--/snapshots/--a/snapshots/", NULL},
                                           {"./test/tiny", NULL},
                                           {"qwen", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *repo;
        ck_ok(calm_model_repo(ctx, cases[i][0], &repo));
        ck_assert_msg(cases[i][1] ? repo && strcmp(repo, cases[i][1]) == 0 : !repo, "%s: %s", cases[i][0], repo);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("resolve",
                     (const TTest *[]){every_alias_names_a_repository, hub_names, unknown_names_get_the_nearest,
                                       paths_win, a_model_of_the_hub_is_fetched_once,
                                       repositories_of_names_and_of_the_cache, NULL});
}
