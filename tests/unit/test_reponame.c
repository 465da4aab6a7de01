/* Names of repositories, revisions and files: valid ones, and ones that could do harm. */
#include "ptq/hub/reponame.h"

#include "tests/support/harness.h"

TEST(names_are_split)
{
    calm_hub_name name;
    ck_ok(calm_hub_name_parse(ctx, "Qwen/Qwen3-0.6B", &name));
    ck_assert_str_eq(name.repo, "Qwen/Qwen3-0.6B");
    ck_assert_str_eq(name.revision, "main");
    ck_assert_str_eq(name.folder, "models--Qwen--Qwen3-0.6B");
    ck_ok(calm_hub_name_parse(ctx, "a/b@refs/pr/1", &name));
    ck_assert_str_eq(name.repo, "a/b");
    ck_assert_str_eq(name.revision, "refs/pr/1");
}
END_OF_TEST

TEST(what_has_the_form_of_a_name)
{
    static const char *const good[] = {"a/b", "Org_1/na.me-2", "a/b@main", "a/b@", "a/b@..", "_a/b_"};
    static const char *const bad[] = {"", "a", "/", "a/", "/b", "./b", "../b", "a/b/c", "a/.b", "a/b.", "-a/b", "a-/b",
                                      "a/b--c", "a..b/c", "a/b c", "a/b.git", "a@b/c", "a/b\\c", "\xc3\xa9/b", "~/b"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(calm_hub_is_name(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!calm_hub_is_name(bad[i]), "%s", bad[i]);
    char longest[200] = "a/";
    memset(longest + 2, 'b', 96);
    ck_assert(calm_hub_is_name(longest));
    longest[98] = 'b';
    ck_assert(!calm_hub_is_name(longest));
}
END_OF_TEST

TEST(bad_names_and_revisions_are_refused)
{
    static const char *const revisions[] = {"", "..", "a/../b", "/a", "a//b", "a/", "a b", "a..b", "a~1", "a^", "a:b",
                                            "a?", "a*", "a[", "a\\b", "a\nb", "a@b", "./a", "\xc3\xa9"};
    calm_hub_name name;
    ck_fails(calm_hub_name_parse(ctx, "a--b/c", &name), CALM_EARG, "expected ORG/NAME");
    for (size_t i = 0; i < sizeof revisions / sizeof *revisions; i++)
        ck_fails(calm_hub_name_parse(ctx, test_format("a/b@%s", revisions[i]), &name), CALM_EARG, "the revision");
    char *endless = test_format("a/b@%0300d", 0);
    ck_fails(calm_hub_name_parse(ctx, endless, &name), CALM_EARG, "too long");
}
END_OF_TEST

TEST(file_names_stay_inside)
{
    static const struct {
        const char *name, *fault;
    } bad[] = {{"", "empty"}, {"../x", "\"..\""}, {"a/../x", "\"..\""}, {"a/..", "\"..\""}, {"..", "\"..\""},
               {"/etc/passwd", "absolute"}, {"a//b", "empty part"}, {"a/", "empty part"}, {"a/./b", "\".\""},
               {".", "\".\""}, {"a\\b", "backslash"}, {"..\\x", "backslash"},
               {"a\nb", "control"}, {"a\x7f", "control"}};
    static const char *const good[] = {"config.json", "1_Pooling/config.json", "...", "a/.b", "..a", "a..b/c"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *fault = calm_hub_name_fault(bad[i].name, strlen(bad[i].name));
        ck_assert_msg(fault && strstr(fault, bad[i].fault), "%s: %s", bad[i].name, fault ? fault : "no fault");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_ptr_null(calm_hub_name_fault(good[i], strlen(good[i])));
    ck_assert_ptr_nonnull(strstr(calm_hub_name_fault("a\0b", 3), "NUL"));
    char *endless = test_format("%0600d", 0);
    ck_assert_ptr_nonnull(strstr(calm_hub_name_fault(endless, 600), "too long"));
}
END_OF_TEST

TEST(what_calm_takes)
{
    static const char *const yes[] = {"config.json", "generation_config.json", "tokenizer.json",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json", "chat_template.jinja", "chat_template.json", "LICENSE",
                                      "LICENSE.txt", "README.md", "1_Pooling/config.json"};
    static const char *const no[] = {"pytorch_model.bin", "model.gguf", "onnx/model.onnx", "model.safetensors",
                                     "onnx/config.json", "chat_template/x.jinja", "READMEx", "tf_model.h5",
                                     "vocab.json"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        ck_assert_msg(calm_hub_is_wanted(yes[i]), "%s", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        ck_assert_msg(!calm_hub_is_wanted(no[i]), "%s", no[i]);
}
END_OF_TEST

TEST(commits_etags_and_addresses)
{
    char *quoted;
    ck_assert(calm_hub_is_commit("0123456789abcdef0123456789abcdef01234567"));
    ck_assert(!calm_hub_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
    ck_assert(!calm_hub_is_commit("0123456789abcdef0123456789abcdef0123456"));
    ck_assert(calm_hub_is_etag("a-1_b.c") && !calm_hub_is_etag("") && !calm_hub_is_etag("../x") &&
              !calm_hub_is_etag("..") && !calm_hub_is_etag("a/b") && !calm_hub_is_etag(test_format("%0129d", 0)));
    ck_ok(calm_hub_quote(ctx, "refs/pr/1 %\xc3\xa9", false, &quoted));
    ck_assert_str_eq(quoted, "refs%2Fpr%2F1%20%25%C3%A9");
    ck_ok(calm_hub_quote(ctx, "a/b~c", true, &quoted));
    ck_assert_str_eq(quoted, "a/b~c");
}
END_OF_TEST

int main(void)
{
    return run_tests("reponame",
                     (const TTest *[]){names_are_split, what_has_the_form_of_a_name,
                                       bad_names_and_revisions_are_refused, file_names_stay_inside, what_calm_takes,
                                       commits_etags_and_addresses, NULL});
}
