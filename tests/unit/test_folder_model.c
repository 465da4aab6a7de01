/* A path that is given as a model and is none: the message says what is there and what to give instead. */
#include "ptq/io/folder.h"

#include "ptq/base/file.h"
#include "tests/support/harness.h"

static const char *place;

static void put(const char *name)
{
    ck_ok(calm_write_file(ctx, test_format("%s/%s", place, name), "x", 1));
}

static void make(const char *name)
{
    ck_ok(calm_make_directories(ctx, test_format("%s/%s", place, name)));
}

static void refused(const char *path, calm_status status, const char *text)
{
    ck_fails(calm_folder_require_model(ctx, path), status, text);
}

TEST(models_are_no_matter)
{
    place = test_directory();
    put("config.json");
    refused(place, CALM_ENOTFOUND, "no weights here");
    put("training_args.bin");
    put("optimizer.pt");
    refused(place, CALM_ENOTFOUND, "no weights here");
    put("model.safetensors");
    put("pytorch_model.bin");
    put("model.gguf");
    ck_ok(calm_folder_require_model(ctx, place));
    /* Its reader says that it is short. */
    ck_ok(calm_folder_require_model(ctx, test_format("%s/model.gguf", place)));
    ck_ok(calm_write_file(ctx, test_format("%s/blob", place), "GGUF", 4));       /* a name in the hub's cache */
    ck_ok(calm_folder_require_model(ctx, test_format("%s/blob", place)));
}
END_OF_TEST

TEST(what_is_not_there_says_so)
{
    place = test_directory();
    refused(test_format("%s/none", place), CALM_ENOTFOUND, "/none: no such directory; expected that of a model");
    refused(test_format("%s/m.gguf", place), CALM_ENOTFOUND, "/m.gguf: no such file; expected a GGUF file");
    put("m-00001-of-00002.gguf");
    ck_ok(calm_folder_require(ctx, test_format("%s/m.gguf", place)));    /* the first part exists */
    ck_ok(calm_folder_require(ctx, place));
    put("file");
    refused(test_format("%s/file/deeper", place), CALM_ENOTFOUND, "no such directory");
}
END_OF_TEST

TEST(a_folder_of_a_gguf_file_alone_is_that_file)
{
    place = test_directory();
    const char *path = place, *file = test_format("%s/model.gguf", place);
    ck_ok(calm_folder_gguf(ctx, &path));
    ck_assert_ptr_eq(path, place);
    put("other.gguf");
    ck_ok(calm_folder_gguf(ctx, &path));
    ck_assert_ptr_eq(path, place);    /* calm_folder_require_model() asks which one is meant */
    put("model.gguf");
    ck_ok(calm_folder_gguf(ctx, &path));
    ck_assert_str_eq(path, file);
    ck_ok(calm_folder_gguf(ctx, &path));
    ck_assert_str_eq(path, file);
    ck_assert(!calm_folder_has_weights(place));
    put("model.safetensors");
    ck_assert(calm_folder_has_weights(place));
    path = place;
    ck_ok(calm_folder_gguf(ctx, &path));
    ck_assert_ptr_eq(path, place);
}
END_OF_TEST

TEST(a_file_of_a_model_names_its_folder)
{
    place = test_directory();
    put("model.safetensors");
    refused(test_format("%s/model.safetensors", place), CALM_EARG, "model.safetensors: expected a directory with");
    put("config.json");
    refused(test_format("%s/model.safetensors", place), CALM_EARG, test_format("give its directory, %s", place));
    make("deep");
    put("deep/consolidated.00.pth");
    refused(test_format("%s/deep/consolidated.00.pth", place), CALM_EARG, "looks like a pickle");
}
END_OF_TEST

TEST(folders_say_what_they_hold)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model-00001-of-00002.bin",
                                          "consolidated.00.pth", "model.pt", "model.ckpt"};
    place = test_directory();
    refused(place, CALM_ENOTFOUND, "no config.json here");
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        const char *path = test_format("%s/%s", place, pickles[i]);
        put(pickles[i]);
        refused(place, CALM_EUNSUPPORTED, test_format("%s is a pickle", pickles[i]));
        ck_ok(calm_remove_tree(ctx, path));
    }
    make("sub");
    refused(place, CALM_ENOTFOUND, "no config.json here; expected");
    put("sub/config.json");
    make("also");
    put("also/config.json");
    refused(place, CALM_ENOTFOUND, test_format("did you mean %s/also?", place));
    put("b.gguf");
    put("a.gguf");
    put(".hidden.gguf");
    refused(place, CALM_ENOTFOUND, test_format("did you mean the GGUF file %s/a.gguf?", place));
    make("refs");
    refused(place, CALM_ENOTFOUND, "a.gguf");
    make("snapshots");
    refused(place, CALM_ENOTFOUND, test_format("one of the folders in %s/snapshots", place));
}
END_OF_TEST

int main(void)
{
    return run_tests("folder_model",
                     (const TTest *[]){models_are_no_matter, what_is_not_there_says_so,
                                       a_file_of_a_model_names_its_folder, a_folder_of_a_gguf_file_alone_is_that_file,
                                       folders_say_what_they_hold, NULL});
}
