/* Checkpoints of other tools. */
#include "tests/support/foreign_checkpoint.h"

#include "ptq/base/file.h"
#include "ptq/base/text.h"
#include "ptq/io/ggml_blocks.h"
#include "ptq/io/gguf_impl.h"
#include "ptq/io/gguf_write.h"
#include "ptq/io/safetensors.h"
#include "tests/support/good_checkpoint.h"
#include "tests/support/harness.h"

#define FILL 0x38

/* ---- safetensors ---- */

typedef struct sink {
    calm_text header, data;
} sink;

static void put(sink *to, const char *name, const foreign_part *part)
{
    size_t bytes = part->bytes;
    const size_t begin = to->data.length;
    calm_text_printf(&to->header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [", to->header.length > 1 ? ", " : "", name,
                     part->dtype);
    for (int i = 0; i < part->n_dims; i++) {
        calm_text_printf(&to->header, "%s%zu", i ? ", " : "", part->shape[i]);
        bytes *= part->shape[i];
    }
    calm_text_printf(&to->header, "], \"data_offsets\": [%zu, %zu]}", begin, begin + bytes);
    if (part->data) {
        calm_text_append(&to->data, part->data, bytes);
        return;
    }
    const char fill = (char)(part->fill ? part->fill : FILL);
    for (size_t i = 0; i < bytes; i++)
        calm_text_append(&to->data, &fill, 1);
}

static void put_tensor(sink *to, const calm_tensor *tensor, foreign_fn *parts)
{
    foreign_part list[FOREIGN_PARTS] = {{0}};
    const char *module = test_format("%.*s", (int)(strrchr(tensor->name, '.') - tensor->name), tensor->name);
    const size_t n = tensor->n_dims == 2 && parts ? parts(module, tensor->shape[0], tensor->shape[1], list) : 0;
    for (size_t i = 0; i < n; i++) {
        const bool above = list[i].suffix[0] == '^';
        const size_t stem = (size_t)((above ? strrchr(module, '.') : module + strlen(module)) - module);
        put(to, test_format("%.*s.%s", (int)stem, module, list[i].suffix + above), &list[i]);
    }
    foreign_part same = {.dtype = calm_dtype_name(tensor->dtype),
                         .bytes = calm_dtype_bytes(tensor->dtype),
                         .n_dims = tensor->n_dims,
                         .data = tensor->data};
    memcpy(same.shape, tensor->shape, (size_t)tensor->n_dims * sizeof *same.shape);
    if (!n)
        put(to, tensor->name, &same);
}

static void write_tensors(const char *from, const char *dir, foreign_fn *parts)
{
    sink to;
    calm_safetensors *set;
    calm_text file;
    calm_text_init(&to.header);
    calm_text_init(&to.data);
    calm_text_init(&file);
    ck_ok(calm_safetensors_open(ctx, from, &set));
    calm_text_append(&to.header, "{", 1);
    for (size_t i = 0; i < calm_safetensors_count(set); i++)
        put_tensor(&to, calm_safetensors_at(set, i), parts);
    calm_text_append(&to.header, "}", 1);
    const uint64_t length = to.header.length;
    calm_text_append(&file, (const char *)&length, sizeof length);
    calm_text_append(&file, to.header.data, to.header.length);
    calm_text_append(&file, to.data.data, to.data.length);
    ck_ok(calm_write_file(ctx, test_format("%s/model.safetensors", dir), file.data, file.length));
    calm_safetensors_close(set);
    calm_text_clear(&to.header);
    calm_text_clear(&to.data);
    calm_text_clear(&file);
}

const char *foreign_write(const tiny_model *spec, const char *entry, foreign_fn *parts)
{
    const char *from = tiny_model_write(spec), *dir = test_directory();
    char *config;
    size_t n;
    ck_ok(calm_read_file(ctx, test_format("%s/config.json", from), (size_t)1 << 20, &config, &n));
    const char *end = strrchr(config, '}');
    const char *text = test_format("%.*s, %s}", (int)(end - config), config, entry);
    ck_ok(calm_write_file(ctx, test_format("%s/config.json", dir), text, strlen(text)));
    write_tensors(from, dir, parts);
    good_tokenizer(dir, spec->vocab);
    return dir;
}

/* ---- GGUF ---- */

enum { HIDDEN = 256, INNER = 512, HEADS = 4, KV = 2, HEAD = 64, VOCAB = 32 };

static void add_keys(calm_gguf_keys *keys, const char *arch, const foreign_file *spec)
{
    static const char *const sizes[] = {"block_count",     "context_length",          "embedding_length",
                                        "feed_forward_length", "attention.head_count", "attention.head_count_kv",
                                        "attention.key_length", "attention.value_length"};
    static const uint32_t values[] = {1, 4096, HIDDEN, INNER, HEADS, KV, HEAD, HEAD};
    const bool known = strcmp(arch, "qwen3") == 0;
    calm_gguf_add_string(keys, "general.architecture", arch);
    calm_gguf_add_u32(keys, "general.quantization_version", 2);
    if (spec->n_split) {
        calm_gguf_add_u32(keys, "split.no", 0);
        calm_gguf_add_u32(keys, "split.count", (uint32_t)spec->n_split);
        calm_gguf_add_u32(keys, "split.tensors.count", 100);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        calm_gguf_add_u32(keys, test_format("%s.%s", arch, sizes[i]), values[i]);
    calm_gguf_add_f32(keys, test_format("%s.attention.layer_norm_rms_epsilon", arch), 1e-6f);
    calm_gguf_add_f32(keys, test_format("%s.rope.freq_base", arch), 1e6f);
    if (spec->yarn) {
        calm_gguf_add_string(keys, test_format("%s.rope.scaling.type", arch), "yarn");
        calm_gguf_add_f32(keys, test_format("%s.rope.scaling.factor", arch), 4);
    }
    if (!known)
        return;
    calm_gguf_add_string(keys, "tokenizer.ggml.model", "gpt2");
    calm_gguf_add_string(keys, "tokenizer.ggml.pre", "qwen2");
    calm_gguf_add_array(keys, "tokenizer.ggml.tokens", CALM_GGUF_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        calm_gguf_element_string(keys, test_format("t%02d", i), 3);
    calm_gguf_add_array(keys, "tokenizer.ggml.token_type", CALM_GGUF_I32, VOCAB);
    for (int i = 0; i < VOCAB; i++)
        calm_gguf_element_i32(keys, 1);
    calm_gguf_add_array(keys, "tokenizer.ggml.merges", CALM_GGUF_STRING, 1);
    calm_gguf_element_string(keys, "t 0", 3);
    calm_gguf_add_u32(keys, "tokenizer.ggml.eos_token_id", 3);
}

/* Writes a NaN scale into the last block of a tensor whose bytes are `data`. */
static void spoil(const calm_gguf_tensor *tensor, char *data, int which)
{
    size_t bytes, at[2];
    ck_assert(calm_gguf_tensor_bytes(tensor, &bytes));
    ck_assert_uint_ge(calm_ggml_halves(tensor->type, at), (size_t)which);
    memcpy(data + bytes - calm_ggml_find(tensor->type)->bytes + at[which - 1], "\377\177", 2);
}

const char *foreign_gguf(const foreign_file *spec)
{
    const calm_ggml_type most = spec->most, some = spec->some;
    const calm_gguf_tensor list[] = {
        {.name = "token_embd.weight", .type = some, .n_dims = 2, .dims = {HIDDEN, VOCAB, 1, 1}},
        {.name = "output_norm.weight", .type = CALM_GGML_F32, .n_dims = 1, .dims = {HIDDEN, 1, 1, 1}},
        {.name = "blk.0.attn_norm.weight", .type = CALM_GGML_F32, .n_dims = 1, .dims = {HIDDEN, 1, 1, 1}},
        {.name = "blk.0.ffn_norm.weight", .type = CALM_GGML_F32, .n_dims = 1, .dims = {HIDDEN, 1, 1, 1}},
        {.name = "blk.0.attn_q_norm.weight", .type = CALM_GGML_F32, .n_dims = 1, .dims = {HEAD, 1, 1, 1}},
        {.name = "blk.0.attn_k_norm.weight", .type = CALM_GGML_F32, .n_dims = 1, .dims = {HEAD, 1, 1, 1}},
        {.name = "blk.0.attn_q.weight", .type = most, .n_dims = 2, .dims = {HIDDEN, HEADS * HEAD, 1, 1}},
        {.name = "blk.0.attn_k.weight", .type = most, .n_dims = 2, .dims = {HIDDEN, KV * HEAD, 1, 1}},
        {.name = "blk.0.attn_v.weight", .type = some, .n_dims = 2, .dims = {HIDDEN, KV * HEAD, 1, 1}},
        {.name = "blk.0.attn_output.weight", .type = most, .n_dims = 2, .dims = {HEADS * HEAD, HIDDEN, 1, 1}},
        {.name = "blk.0.ffn_gate.weight", .type = most, .n_dims = 2, .dims = {HIDDEN, INNER, 1, 1}},
        {.name = "blk.0.ffn_up.weight", .type = most, .n_dims = 2, .dims = {HIDDEN, INNER, 1, 1}},
        {.name = "blk.0.ffn_down.weight", .type = some, .n_dims = 2, .dims = {INNER, HIDDEN, 1, 1}},
        {.name = "blk.0.attn_q.scale", .type = CALM_GGML_F32, .n_dims = 1, .dims = {1, 1, 1, 1}},
        {.name = "blk.0.attn_q.input_scale", .type = CALM_GGML_F32, .n_dims = 1, .dims = {1, 1, 1, 1}},
    };
    const size_t n = spec->n_split ? 4 : sizeof list / sizeof *list - (spec->scales ? 0 : 2);
    const char *path = test_format("%s/model.gguf", test_directory());
    calm_gguf_keys keys;
    calm_gguf_writer writer;
    calm_gguf_keys_init(&keys);
    add_keys(&keys, spec->arch ? spec->arch : "qwen3", spec);
    ck_ok(calm_gguf_begin(ctx, &writer, path, &keys, list, n));
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        ck_assert(calm_gguf_tensor_bytes(&list[i], &bytes));
        char *data = malloc(bytes);
        ck_assert_ptr_nonnull(data);
        memset(data, FILL, bytes);
        if (spec->spoiled && strcmp(list[i].name, "blk.0.ffn_up.weight") == 0)
            spoil(&list[i], data, spec->spoiled);
        ck_ok(calm_gguf_put(ctx, &writer, data, bytes));
        free(data);
    }
    ck_ok(calm_gguf_end(ctx, &writer));
    calm_gguf_keys_clear(&keys);
    return path;
}
