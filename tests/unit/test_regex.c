/* Regular expressions: the meaning of other engines' patterns, limits, and matches at the start of names. */
#include "ptq/text/regex.h"
#include "ptq/base/text.h"
#include "ptq/base/threads.h"
#include "tests/support/harness.h"

static calm_regex *compiled(const char *pattern)
{
    calm_regex *regex;
    ck_ok(calm_regex_new(ctx, "a test", pattern, strlen(pattern), &regex));
    return regex;
}

/* Returns all matches in `text`, joined with '|'. */
static const char *matches(const char *pattern, const char *text)
{
    calm_regex *regex = compiled(pattern);
    calm_matcher *matcher;
    size_t n = strlen(text), at = 0, begin = 0, end = 0;
    bool found = true;
    const char *all = "";
    ck_ok(calm_matcher_new(ctx, regex, &matcher));
    while (at <= n) {
        ck_ok(calm_matcher_find(ctx, matcher, text, n, at, &found, &begin, &end));
        if (!found)
            break;
        all = test_format("%s%s%.*s", all, at ? "|" : "", (int)(end - begin), text + begin);
        at = end > begin ? end : end + 1;
    }
    calm_matcher_free(matcher);
    calm_regex_free(regex);
    return all;
}

TEST(leftmost_matches_in_turn)
{
    ck_assert_str_eq(matches("\\p{L}+|\\p{N}", "ab12\xC3\xA9"), "ab|1|2|\xC3\xA9");
    ck_assert_str_eq(matches("a|ab", "ab"), "a");
    ck_assert_str_eq(matches("(?<=b)a", "ab" "ba"), "a");
    ck_assert_str_eq(matches("x", "abc"), "");
    ck_assert_str_eq(matches("", "ab"), "||");
    ck_assert_str_eq(matches("(?i:'s)", "'s'S'\xC5\xBF"), "'s|'S|'\xC5\xBF");    /* U+017F folds to s */
}
END_OF_TEST

TEST(white_space_is_the_unicode_property)
{
    ck_assert_str_eq(matches("\\s", "a\xC2\x85\xC2\xA0\xE2\x80\xA8\xE3\x80\x80"),
                     "\xC2\x85|\xC2\xA0|\xE2\x80\xA8|\xE3\x80\x80");
    ck_assert_str_eq(matches("\\s", "\xE1\xA0\x8E\xE2\x80\x8B\xEF\xBB\xBF\x1C"), "");    /* U+180E, 200B, FEFF, 1C */
    ck_assert_str_eq(matches("[\\s]", "\xE1\xA0\x8E"), "");
    ck_assert_str_eq(matches("[^\\s]", "\xE1\xA0\x8E "), "\xE1\xA0\x8E");
    ck_assert_str_eq(matches("\\S", " \xE1\xA0\x8E\xC2\x85"), "\xE1\xA0\x8E");
    ck_assert_str_eq(matches("[\\Sb]+", "a\xC2\xA0" "b\xF4\x8F\xBF\xBF"), "a|b\xF4\x8F\xBF\xBF");
    ck_assert_str_eq(matches("[^\\S\\n]+", "a \n\t"), " |\t");
}
END_OF_TEST

TEST(words_have_marks)
{
    ck_assert_str_eq(matches("\\w+", "e\xCC\x81_7-\xC2\xB2-\xE2\x81\xB4"),
                     "e\xCC\x81_7|\xC2\xB2"); /* U+2074 is no word character, U+00B2 is */
    ck_assert_str_eq(matches("[\\w-]+", "e\xCC\x81-x y"), "e\xCC\x81-x|y");
    ck_assert_str_eq(matches("\\W", "a\xCC\x81-"), "-");
}
END_OF_TEST

TEST(rewriting_leaves_the_rest_alone)
{
    ck_assert_str_eq(matches("\\\\s", "\\s s"), "\\s");
    ck_assert_str_eq(matches("\\Q\\s\\E\\s", "\\s "), "\\s ");
    ck_assert_str_eq(matches("[]\\s]+", "a] ]b"), "] ]");
    ck_assert_str_eq(matches("[^]a]", "]ab"), "b");
    ck_assert_str_eq(matches("[\\]\\s]", "] x"), "]| ");
    ck_assert_str_eq(matches("[[:digit:]\\s]+", "a1 2b"), "1 2");
    ck_assert_str_eq(matches("\\[\\s", "[ "), "[ ");
    ck_assert_str_eq(matches("[a&]+", "a&b"), "a&");
    ck_assert_str_eq(matches("^b$", "a\nb\nc"), "b");
}
END_OF_TEST

/* Characters of Unicode 15 and 16 have their categories, whatever version the system's PCRE2 has. */
TEST(categories_are_complete)
{
    static const char text[] = "a\xF0\xB1\x8D\x90"
                               "1\xF0\x90\xB5\x80-\xF0\x9B\xB0\x80"
                               "b"; /* 31350, 10D40, 1BC00 */
    ck_assert_str_eq(matches("\\p{L}+", text), "a\xF0\xB1\x8D\x90|\xF0\x9B\xB0\x80" "b");
    ck_assert_str_eq(matches("\\p{N}+", text), "1\xF0\x90\xB5\x80");
    ck_assert_str_eq(matches("\\d+", text), "1\xF0\x90\xB5\x80");
    ck_assert_str_eq(matches("[^\\p{L}\\p{N}]", text), "-");
    ck_assert_str_eq(matches("\\P{L}+", text), "1\xF0\x90\xB5\x80-");
    ck_assert_str_eq(matches("\\p{^Letter}+", text), "1\xF0\x90\xB5\x80-");
    ck_assert_str_eq(matches("\\p{Han}", text), "\xF0\xB1\x8D\x90");
    ck_assert_str_eq(matches("\\p{Lu}\\p{Ll}", "aBc"), "Bc");
    ck_assert_str_eq(matches("\\p{Greek}", "a\xCE\xB1"), "\xCE\xB1");
}
END_OF_TEST

TEST(what_oniguruma_reads_otherwise)
{
    ck_assert_str_eq(matches("\\d{1,3}+x", "12345x"), "12345x");    /* repeated, not possessive */
    ck_assert_str_eq(matches("(?:a[0-9]){2}+b", "a1a2a3a4b"), "a1a2a3a4b");
    ck_assert_str_eq(matches("\\p{N}{1,2}+|x", "123x"), "123|x");
    ck_assert_str_eq(matches("ab{2}+", "abbbb"), "abbbb");
    ck_assert_str_eq(matches("a{,b", "a{,b"), "a{,b");
    ck_assert_str_eq(matches("a++a|b", "aab"), "b");              /* possessive */
    ck_assert_str_eq(matches("[\\u0061-\\u0063]\\u00e9", "b\xC3\xA9"), "b\xC3\xA9");
    ck_assert_str_eq(matches("[^(\\s|[.,])]+", "a.b |c"), "a|b|c");
    ck_assert_str_eq(matches("\\ba", "a ba \xC2\xB2" "a a"), "a|a");
    ck_assert_str_eq(matches("[[:punct:]]+", "a+.\xE2\x82\xAC" "b"), "+.\xE2\x82\xAC");
}
END_OF_TEST

TEST(bad_patterns_are_refused)
{
    static const struct {
        const char *pattern;
        calm_status status;
        const char *text;
    } cases[] = {
        {"(a", CALM_EFORMAT, "a test: pattern \"(a\": missing closing parenthesis"},
        {"a**b(?<", CALM_EFORMAT, "a test: pattern"},
        {"[a", CALM_EFORMAT, "missing terminating ]"},
        {"a\\", CALM_EFORMAT, "\\ at end of pattern"},
        {"\\p{Nonsense}", CALM_EFORMAT, "a test: pattern"},
        {"((((a{1,999}){1,999}){1,999}){1,999}){1,999}", CALM_EFORMAT, "too large"},
        {"\\h", CALM_EUNSUPPORTED, "pattern \"\\h\": not supported"},
        {"[\\H]", CALM_EUNSUPPORTED, "not supported"},
        {"[\\W]", CALM_EUNSUPPORTED, "not supported"},
        {"[a[^b]]", CALM_EUNSUPPORTED, "not supported"},
        {"[[:alpha:]]", CALM_EUNSUPPORTED, "[:alpha:]"},
        {"[\\B]", CALM_EUNSUPPORTED, "not supported"},
        {"[a[", CALM_EUNSUPPORTED, "not supported"},
        {"[[:alpha]", CALM_EUNSUPPORTED, "not supported"},
        {"[a&&b]", CALM_EUNSUPPORTED, "not supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        calm_regex *regex;
        ck_fails(calm_regex_new(ctx, "a test", cases[i].pattern, strlen(cases[i].pattern), &regex), cases[i].status,
                 cases[i].text);
        ck_assert_ptr_null(regex);
    }
    calm_regex *regex;
    size_t n = 100000;
    char *longest = memset(malloc(n), 'a', n);
    ck_fails(calm_regex_new(ctx, "a test", longest, n, &regex), CALM_EFORMAT, "100000 bytes");
    free(longest);
}
END_OF_TEST

static calm_status search(const char *pattern, const char *text, size_t n)
{
    calm_regex *regex = compiled(pattern);
    calm_matcher *matcher;
    size_t begin, end;
    bool found;
    ck_ok(calm_matcher_new(ctx, regex, &matcher));
    calm_status status = calm_matcher_find(ctx, matcher, text, n, 0, &found, &begin, &end);
    calm_matcher_free(matcher);
    calm_regex_free(regex);
    return status;
}

TEST(an_exponential_pattern_is_an_error)
{
    char text[65];
    memset(text, 'a', 63);
    strcpy(text + 63, "b");
    ck_fails(search("(a|aa)+$", text, 64), CALM_EFORMAT, "pattern \"(a|aa)+$\": search given up: match limit exceeded");
    ck_fails(search("(?:(a+)+x|y)", text, 64), CALM_EFORMAT, "search given up");
}
END_OF_TEST

/* A greedy run gives back characters one by one: long, but not exponential. */
TEST(a_long_run_is_no_error)
{
    size_t n = 20000000;
    char *text = memset(malloc(n), ' ', n);
    text[n - 1] = 'x';
    ck_ok(search("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", text, n));
    free(text);
}
END_OF_TEST

/* Each repetition of a group takes stack: more than 32 KiB, then up to 16 MiB, then it is an error. */
TEST(the_stack_grows_up_to_its_limit)
{
    size_t n = 8000000;
    char *text = memset(malloc(n), 'a', n);
    text[n - 1] = 'c';
    ck_ok(search("(?:a|b(?=a))*c", text + n - 100000, 100000));
    ck_fails(search("(?:a|b(?=a))*c", text, n), CALM_EFORMAT, "search given up");
    free(text);
}
END_OF_TEST

TEST(names_match_from_their_start)
{
    static const struct {
        const char *pattern, *name;
        bool expected;
    } cases[] = {
        {"model\\.layers\\.(0|1)\\.mlp\\..*$", "model.layers.1.mlp.up_proj", true},
        {"model\\.layers\\.(0|1)\\.mlp\\..*$", "model.layers.10.mlp.up_proj", false},
        {"model\\.layers\\.(0|1)\\.mlp\\..*$", "x.model.layers.1.mlp.up_proj", false},
        {"model", "model.layers", true},
        {"layers", "model.layers", false},
        {".*lm_head", "lm_head", true},
        {"a|b$", "ba", false},
        {"", "anything", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        calm_regex *regex = compiled(cases[i].pattern);
        bool found;
        ck_ok(calm_regex_matches_prefix(ctx, regex, cases[i].name, &found));
        ck_assert_msg(found == cases[i].expected, "%s on %s", cases[i].pattern, cases[i].name);
        calm_regex_free(regex);
    }
    calm_regex *regex = compiled("(a|aa)+$");
    bool found;
    ck_fails(calm_regex_matches_prefix(ctx, regex, "a\xFF", &found), CALM_EARG, "not UTF-8 at byte 1");
    ck_fails(calm_regex_matches_prefix(ctx, regex, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", &found),
             CALM_EFORMAT, "match limit");
    calm_regex_free(regex);
}
END_OF_TEST

/* 2^14 ways to fail: within the usual limit, but not within that for names, which a list of blocks keeps. */
TEST(names_have_a_limit_of_their_own)
{
    const char *const slow = "(a|a)*[xy]", *name = "aaaaaaaaaaaaaa0";
    calm_text blocks;
    calm_regex *regex;
    bool found = true;
    ck_ok(calm_regex_new(ctx, "t", slow, strlen(slow), &regex));
    ck_ok(calm_regex_matches_prefix(ctx, regex, name, &found));
    ck_assert(!found);
    calm_regex_limit(regex, CALM_NAME_STEPS);
    ck_fails(calm_regex_matches_prefix(ctx, regex, name, &found), CALM_EFORMAT, "search given up");
    calm_regex_free(regex);
    calm_text_init(&blocks);
    calm_text_printf(&blocks, "model\\.layers\\.(");
    for (int i = 0; i < 200; i++)
        calm_text_printf(&blocks, "%s%d", i ? "|" : "", i);
    calm_text_printf(&blocks, ")\\.mlp\\.(gate_proj|up_proj|gate_up_proj|down_proj)$");
    ck_ok(calm_regex_new(ctx, "t", blocks.data, blocks.length, &regex));
    calm_regex_limit(regex, CALM_NAME_STEPS);
    ck_ok(calm_regex_matches_prefix(ctx, regex, "model.layers.199.mlp.down_proj", &found));
    ck_assert(found);
    ck_ok(calm_regex_matches_prefix(ctx, regex, "model.layers.199.mlp.down_proj_", &found));
    ck_assert(!found);
    calm_regex_free(regex);
    calm_text_clear(&blocks);
}
END_OF_TEST

static calm_status count_in_thread(calm_ctx *task, size_t index, void *user)
{
    static const char text[] = "one 2 three 44 five";
    calm_matcher *matcher;
    bool found = true;
    size_t n_found = 0;
    CALM_TRY(calm_matcher_new(task, user, &matcher));
    for (size_t at = 0, begin; found && at < strlen(text); n_found += found)
        calm_matcher_find(task, matcher, text, strlen(text), at, &found, &begin, &at);
    calm_matcher_free(matcher);
    return n_found == 5 ? CALM_OK : calm_fail(task, CALM_EMISMATCH, "%zu: %zu matches", index, n_found);
}

TEST(threads_share_a_regex)
{
    calm_regex *regex = compiled("\\w+");
    ctx->n_threads = 4;
    ck_ok(calm_parallel_for(ctx, 2000, count_in_thread, regex));
    calm_regex_free(regex);
}
END_OF_TEST

int main(void)
{
    return run_tests("regex", (const TTest *[]){leftmost_matches_in_turn, white_space_is_the_unicode_property,
                                                words_have_marks, rewriting_leaves_the_rest_alone,
                                                categories_are_complete, what_oniguruma_reads_otherwise,
                                                bad_patterns_are_refused, an_exponential_pattern_is_an_error,
                                                a_long_run_is_no_error, the_stack_grows_up_to_its_limit,
                                                names_match_from_their_start, names_have_a_limit_of_their_own,
                                                threads_share_a_regex, NULL});
}
