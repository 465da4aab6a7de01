/* GGUF files of families whose blocks mix tokens in several ways: what differs from those with attention alone. */
#include "ptq/export/export.h"
#include "ptq/model/gguf_names.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const calm_gguf_entry *find(const calm_gguf_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->entries[i].name && strcmp(list->entries[i].name, name) == 0)
            return &list->entries[i];
    ck_abort_msg("no %s", name);
    return NULL;
}

/* Blocks without attention have no heads for keys; a convolution's taps are a matrix of floats.  Such a file is no
 * model for calm. */
TEST(short_convolutions)
{
    static const char *const schemes[] = {"w4a16_g32"};
    const tiny_model spec = tiny_wide("lfm2");
    tiny_plan p;
    calm_model *model;
    int64_t kv[2];
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_family(&p, schemes, 1);
    const calm_exporter *gguf;
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    const char *dir = test_directory();
    ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
    ck_ok(gguf->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, gguf, &input, dir));
    const char *path = test_format("%s/%s", dir, gguf->file);
    calm_gguf *file;
    calm_gguf_list list;
    ck_ok(calm_gguf_open(ctx, path, &file));
    ck_ok(calm_gguf_list_tensors(ctx, file, &list));
    const calm_gguf_key *key = calm_gguf_find_key(file, "lfm2.attention.head_count_kv");
    ck_assert(key && key->array && calm_gguf_int(key, 0, &kv[0]) && calm_gguf_int(key, 1, &kv[1]));
    ck_assert(kv[0] == 0 && kv[1] == (int64_t)spec.n_kv);
    const calm_gguf_entry *taps = find(&list, "model.layers.0.conv.conv.weight");
    ck_assert(taps && taps->stored->type == CALM_GGML_F32);
    ck_assert(taps->shape[0] == spec.hidden && taps->shape[1] == 4);
    ck_assert_str_eq(taps->stored->name, "blk.0.shortconv.conv.weight");
    ck_assert_str_eq(find(&list, "model.embedding_norm.weight")->stored->name, "token_embd_norm.weight");
    ck_assert_int_eq(find(&list, "model.layers.0.conv.in_proj.weight")->stored->type, CALM_GGML_Q4_0);
    calm_gguf_close(file);
    ck_fails(calm_model_open(ctx, path, &model), CALM_EUNSUPPORTED, "calm writes such files and does not read them");
    calm_model_close(p.model);
}
END_OF_TEST

TEST(refused_by_name)
{
    static const char *const families[] = {"qwen3_5", "qwen3_5_moe", "qwen3_next", "lfm2_moe"};
    static const char *const schemes[] = {"float"};
    for (size_t i = 0; i < 4; i++) {
        const tiny_model spec = tiny_wide(families[i]);
        const calm_exporter *gguf;
        tiny_plan p;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_family(&p, schemes, 1);
        const calm_export_input input = {.model = p.model, .plan = &p.plan};
        ck_ok(calm_exporter_find(ctx, "gguf", &gguf));
        ck_fails(gguf->check(ctx, &input), CALM_EUNSUPPORTED,
                 test_format("calm does not write %s models to GGUF", families[i]));
        calm_model_close(p.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("gguf_mixers", (const TTest *[]){short_convolutions, refused_by_name, NULL});
}
