/* Writes a tiny checkpoint of every family, and token ids for them:  write_families FOLDER [plain]
 *
 *   FOLDER/FAMILY/config.json, model.safetensors    FOLDER/tokens.jsonl
 *
 * plain: without optional biases, and with untied heads.  FAMILY.dense: latent attention without experts. */
#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define N_LINES 24
#define TOKENS  32

static const char *folder;
static bool plain;

static void write_family(const char *family, bool dense)
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    tiny_model spec = tiny_wide(family);
    spec.n_dense = dense ? spec.n_blocks : 0;
    spec.bias = spec.bias && !plain;
    /* transformers' class of Nemotron-H ties no head. */
    spec.tied = spec.tied && !plain && strncmp(family, "nemotron", 8) != 0;
    /* transformers' default pad token is beyond the vocabulary in some classes; its cache needs a block with
     * attention. */
    spec.extra = "\"pad_token_id\": 0, \"use_cache\": false";
    const char *from = tiny_model_write(&spec), *to = test_format("%s/%s%s", folder, family, dense ? ".dense" : "");
    ck_ok(calm_make_parent(ctx, test_format("%s/config.json", to)));
    for (size_t i = 0; i < 2; i++)
        ck_ok(calm_copy_file(ctx, test_format("%s/%s", from, files[i]), test_format("%s/%s", to, files[i])));
}

TEST(write_all)
{
    const char *text = "";
    for (size_t f = 0; tiny_families[f]; f++)
        write_family(tiny_families[f], false);
    for (size_t f = 0; tiny_encoders[f]; f++)
        write_family(tiny_encoders[f], false);
    for (size_t f = 0; f < 3; f++)
        write_family((const char *const[]){"deepseek_v2", "deepseek_v3", "glm4_moe_lite"}[f], true);
    for (size_t line = 0; line < N_LINES; line++) {
        text = test_format("%s{\"ids\": [", text);
        for (size_t i = 0; i < TOKENS; i++)
            text =
                test_format("%s%s%u", text, i ? ", " : "", (unsigned)(calm_rng_u64(9, line, i) % tiny_default.vocab));
        text = test_format("%s]}\n", text);
    }
    ck_ok(calm_write_file(ctx, test_format("%s/tokens.jsonl", folder), text, strlen(text)));
}
END_OF_TEST

int main(int argc, char **argv)
{
    if (argc != 2 && (argc != 3 || strcmp(argv[2], "plain") != 0)) {
        fputs("usage: write_families FOLDER [plain]\n", stderr);
        return 2;
    }
    folder = argv[1];
    plain = argc == 3;
    return run_tests("write_families", (const TTest *[]){write_all, NULL});
}
