/* Locks: where they are stored, what is refused, what differs. */
#include <string.h>

#include "ptq/lock/lock.h"
#include "ptq/base/file.h"
#include "tests/support/harness.h"

static const char *path_of(const char *recipe, const char *output)
{
    const char *path;
    ck_ok(calm_lock_path(ctx, recipe, output, &path));
    return path;
}

TEST(places)
{
    ck_assert_str_eq(path_of("some/qwen.json", "out"), "some/qwen.lock.json");
    ck_assert_str_eq(path_of("./odd", "out"), "./odd.lock.json");
    ck_assert_str_eq(path_of("qwen-w4", "calm-out/qwen"), "calm-out/qwen.lock.json");    /* a shipped recipe's name */
    ck_assert_str_eq(path_of("checkpoint/calm_recipe.json", "out"), "out.lock.json");
    ck_assert_str_eq(path_of(NULL, "out//"), "out.lock.json");
    ck_assert_str_eq(path_of(NULL, "/"), "/.lock.json");
    ck_assert_str_eq(path_of("/.json", "out"), "/.lock.json");
}
END_OF_TEST

/* ---- refusals ---- */

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define RECIPE "\"recipe\": {\"calm_recipe\": 1, \"model\": \"qwen\"}"
#define INPUTS "\"inputs\": {\"files\": {}, \"tensors\": {\"a\": \"" DIGEST "\"}, \"texts\": {}, \"windows\": {}}"
#define OUTPUTS "\"outputs\": {\"files\": {\"x\": \"" DIGEST "\"}, \"tensors\": {}}"
#define REST "\"environment\": {\"kernels\": \"Haswell\"}, \"plan\": {}, \"result\": {\"ppl\": 1.5}"

static calm_status read_text(const char *text, calm_json **lock)
{
    const char *path = test_format("%s/x.lock.json", test_directory());
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return calm_lock_read(ctx, path, lock);
}

TEST(what_is_no_lock)
{
    static const struct {
        const char *text;
        calm_status status;
        const char *words;
    } rows[] = {
        {"", CALM_EFORMAT, "x.lock.json"},
        {"[1]", CALM_EFORMAT, "not a lock of calm"},
        {"{\"version\": 1}", CALM_EFORMAT, "not a lock of calm"},
        {"{\"calm_lock\": \"1\"}", CALM_EFORMAT, "not a lock of calm"},
        {"{\"calm_lock\": 0}", CALM_EFORMAT, "not a lock of calm"},
        {"{\"calm_lock\": 2}", CALM_EUNSUPPORTED, "lock version 2, this program knows versions up to 1"},
        {"{\"calm_lock\": 1}", CALM_EFORMAT, "/recipe: expected an object"},
        {"{\"calm_lock\": 1, " RECIPE ", " INPUTS ", " REST "}", CALM_EFORMAT, "/outputs/files: expected an object"},
        {"{\"calm_lock\": 1, " RECIPE ", " INPUTS ", " REST
         ", \"outputs\": {\"files\": {\"x\": \"12\"}, \"tensors\": {}}}",
         CALM_EFORMAT, "/outputs/files/x: expected a SHA-256 of 64 digits"},
        {"{\"calm_lock\": 1, " RECIPE ", " INPUTS ", " REST ", \"outputs\": {\"files\": {\"x\": 12}, \"tensors\": {}}}",
         CALM_EFORMAT, "/outputs/files/x: expected a SHA-256"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_json *lock;
        ck_fails(read_text(rows[i].text, &lock), rows[i].status, rows[i].words);
        ck_assert_ptr_null(lock);
    }
}
END_OF_TEST

/* ---- differences ---- */

static calm_json *parse(const char *text)
{
    calm_json *out;
    ck_ok(calm_json_parse(ctx, "test", text, strlen(text), &out));
    return out;
}

/* Returns "what name expected found" of each difference, joined by "; ". */
static const char *compared(const char *expected, const char *found, const char *part, size_t *checked)
{
    calm_differences differences = {0};
    calm_json *a = parse(expected), *b = parse(found);
    const char *text = "";
    ck_ok(calm_lock_compare(ctx, a, part, calm_json_get(b, part), &differences));
    for (size_t i = 0; i < differences.n; i++) {
        const calm_difference *d = &differences.items[i];
        text = test_format("%s%s%s %s %s %s", text, i ? "; " : "", d->what, d->name, d->expected ? d->expected : "-",
                           d->found ? d->found : "-");
    }
    *checked = differences.checked;
    calm_json_free(a);
    calm_json_free(b);
    return text;
}

TEST(differences)
{
    size_t n;
    ck_assert_str_eq(compared("{\"result\": {\"ppl\": 1.5, \"n\": 3, \"kl\": null}}",
                              "{\"result\": {\"n\": 3.0, \"ppl\": 1.5, \"kl\": null}}", "result", &n), "");
    ck_assert_uint_eq(n, 3);
    ck_assert_str_eq(compared("{\"result\": {\"ppl\": 1.5, \"kl\": null, \"name\": \"hybrid\"}}",
                              "{\"result\": {\"ppl\": 1.5000000000000002, \"kl\": 0, \"name\": \"rtn\"}}", "result",
                              &n),
                     "result ppl 1.5 1.5000000000000002; result kl null 0; result name hybrid rtn");
    ck_assert_str_eq(compared("{\"outputs\": {\"files\": {\"a\": \"1\", \"b\": \"2\"}, \"tensors\": {\"t\": \"3\"}}}",
                              "{\"outputs\": {\"files\": {\"b\": \"2\", \"c\": \"4\"}, \"tensors\": {\"t\": \"5\"}}}",
                              "outputs", &n),
                     "output file a 1 -; output file c - 4; output tensor t 3 5");
    ck_assert_uint_eq(n, 4);
    /* Values that are not known yet are not compared. */
    ck_assert_str_eq(compared("{\"inputs\": {\"files\": {\"a\": \"1\"}, \"windows\": {\"calibration\": \"2\"}}}",
                              "{\"inputs\": {\"files\": {\"a\": \"1\"}}}", "inputs", &n), "");
    ck_assert_uint_eq(n, 1);
    ck_assert_str_eq(compared("{\"plan\": {\"q\": \"rtn w4\"}}", "{\"plan\": {\"q\": 7}}", "plan", &n),
                     "choice q rtn w4 7");
}
END_OF_TEST

TEST(recipes)
{
    calm_json *lock = parse("{\"recipe\": {\"model\": \"qwen\", \"schemes\": [\"w4a16_g128\"], \"choice\": "
                            "{\"a\": 1, \"b\": {\"d\": 1}}}}");
    calm_json *deeper = parse("{\"model\": \"qwen\", \"schemes\": [\"w4a16_g128\"], \"choice\": "
                              "{\"a\": 1, \"b\": {\"c\": 1}}}");
    calm_json *same = parse("{\"schemes\": [\"w4a16_g128\"], \"choice\": {\"b\": {\"d\": 1}, \"a\": 1.0}, "
                            "\"model\": \"qwen\"}");
    calm_json *other = parse("{\"model\": \"qwen\", \"choice\": {\"a\": 1, \"b\": {\"d\": 1}}, \"schemes\": "
                             "[\"w8a16\"]}");
    const char *key;
    ck_ok(calm_lock_recipe_differs(ctx, lock, same, &key));
    ck_assert_ptr_null(key);
    ck_ok(calm_lock_recipe_differs(ctx, lock, other, &key));
    ck_assert_str_eq(key, "schemes");
    ck_ok(calm_lock_recipe_differs(ctx, lock, deeper, &key));
    ck_assert_str_eq(key, "choice");
    calm_json_free(deeper);
    calm_json_free(lock);
    calm_json_free(same);
    calm_json_free(other);
}
END_OF_TEST

/* Locks without the setting are of float32 products, whatever is fast on this CPU. */
TEST(operands)
{
    static const char *const rows[][2] = {
        {"{\"calm_lock\": 1, " RECIPE ", " INPUTS ", " OUTPUTS ", " REST "}", "f32"},
        {"{\"calm_lock\": 1, \"recipe\": {\"calm_recipe\": 1, \"model\": \"qwen\", \"calibration\": "
         "{\"dtype\": \"bf16x2\"}}, " INPUTS ", " OUTPUTS ", " REST "}", "bf16x2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        calm_json *lock;
        calm_recipe_spec spec, chosen;
        ck_ok(read_text(rows[i][0], &lock));
        ck_ok(calm_spec_init(ctx, &spec));
        ck_assert_int_eq(spec.calib_dtype, CALM_SPEC_OPERANDS_AUTO);
        ck_ok(calm_spec_init(ctx, &chosen));
        ck_ok(calm_spec_set(ctx, &chosen, "calib-dtype", rows[i][1]));
        calm_lock_apply_dtype(lock, &spec);
        ck_assert_int_eq(spec.calib_dtype, chosen.calib_dtype);
        /* A chosen setting stays. */
        chosen.calib_dtype = CALM_OPERANDS_BF16;
        calm_lock_apply_dtype(lock, &chosen);
        ck_assert_int_eq(chosen.calib_dtype, CALM_OPERANDS_BF16);
        calm_json_free(lock);
    }
}
END_OF_TEST

/* ---- directories ---- */

TEST(outputs_of_a_directory)
{
    const char *dir = test_format("%s/outputs", test_directory());
    calm_json *outputs;
    ck_fails(calm_lock_outputs(ctx, dir, NULL, 0, &outputs), CALM_ENOTFOUND, "no such directory");
    ck_ok(calm_make_directories(ctx, test_format("%s/folder", dir)));
    ck_ok(calm_write_file(ctx, test_format("%s/b.txt", dir), "abc", 3));
    ck_ok(calm_write_file(ctx, test_format("%s/.hidden", dir), "x", 1));
    ck_ok(calm_lock_outputs(ctx, dir, NULL, 0, &outputs));
    const calm_json *files = calm_json_get(outputs, "files");
    ck_assert_uint_eq(calm_json_size(files), 1);
    /* FIPS 180-2, appendix B.1 */
    ck_assert_str_eq(calm_json_string(calm_json_get(files, "b.txt"), ""),
                     "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert_uint_eq(calm_json_size(calm_json_get(outputs, "tensors")), 0);
    calm_json_free(outputs);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors", dir), "broken", 6));
    ck_fails(calm_lock_outputs(ctx, dir, NULL, 0, &outputs), CALM_EFORMAT, "model.safetensors");
}
END_OF_TEST

TEST(written_whole)
{
    const char *path = test_format("%s/written.lock.json", test_directory());
    calm_json *lock = parse("{\"calm_lock\": 1, " RECIPE ", " INPUTS ", " OUTPUTS ", " REST "}"), *back;
    ck_ok(calm_lock_write(ctx, lock, path));
    ck_ok(calm_lock_read(ctx, path, &back));
    ck_assert_str_eq(calm_lock_kernels(back), "Haswell");
    calm_json_free(back);
    ck_fails(calm_lock_write(ctx, lock, test_directory()), CALM_EIO, "cannot rename");
    calm_json_free(lock);
}
END_OF_TEST

int main(void)
{
    return run_tests("lock", (const TTest *[]){places, what_is_no_lock, differences, recipes, operands,
                                               outputs_of_a_directory, written_whole, NULL});
}
