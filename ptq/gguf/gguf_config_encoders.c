/* Adds settings of encoders from a GGUF file. */
#include "ptq/gguf/gguf_config_impl.h"

/* The last value of llama.cpp's llama_pooling_type that makes one row per sentence. */
#define MOST_POOLING 3

typedef calm_gguf_config_builder builder;

/* Returns the rows of a table of the embeddings; 0: there is none. */
static int64_t rows_of(const builder *b, const char *name)
{
    const calm_gguf_tensor *table = calm_gguf_find_tensor(b->list->file, name);
    /* GGUF lists the columns first. */
    return table && table->n_dims == 2 ? (int64_t)table->dims[1] : 0;
}

/* Adds windows: blocks 0, n, 2 n, ... do not slide; the file has n, or a boolean for each block. */
static void add_windows(builder *b, int64_t n_blocks)
{
    char name[128];
    const calm_gguf_key *pattern = calm_gguf_find_of(b, "attention.sliding_window_pattern", name);
    const bool slides = calm_gguf_take_count(b, "attention.sliding_window") > 0;
    int64_t every = 3;
    calm_json *types = calm_json_new_array();
    if (pattern && !(pattern->array && pattern->kind == CALM_GGUF_BOOL)
        && (!calm_gguf_int(pattern, 0, &every) || pattern->array || every < 0))
        calm_gguf_complain(b, name, "expected a whole number from 0, or a switch for each block");
    /* n_blocks is the file's number: the bound keeps a wrong one from filling the memory. */
    for (int64_t i = 0; i < n_blocks && i < 4096; i++) {
        bool local = every <= 0 || i % every != 0;
        if (pattern && pattern->array && pattern->kind == CALM_GGUF_BOOL)
            local = (size_t)i < pattern->n && pattern->data[i];
        calm_json_add_string(types, slides && local ? "sliding_attention" : "full_attention");
    }
    calm_json_set(b->config, "layer_types", types);
    if (slides)
        calm_gguf_set_size(b, "local_attention", "attention.sliding_window", 0);
}

/* Adds ModernBERT's settings, which has its own keys for both rotary embeddings. */
static void add_modern(builder *b, int64_t n_blocks)
{
    char name[128];
    const calm_gguf_key *act = calm_gguf_find_of(b, "hidden_activation", name);
    const double theta = calm_gguf_take_number(b, "rope.freq_base", 10000);
    calm_gguf_set_number(b->config, "global_rope_theta", theta);
    /* A file with one base uses it for all blocks. */
    calm_gguf_set_number(b->config, "local_rope_theta", calm_gguf_take_number(b, "rope.freq_base_swa", theta));
    calm_json_set_string(b->config, "hidden_activation",
                         calm_gguf_is(act, "silu") || calm_gguf_is(act, "swish") || calm_gguf_is(act, "swiglu") ? "silu"
                                                                                                         : "gelu");
    add_windows(b, n_blocks);
}

void calm_gguf_add_encoder(builder *b, int64_t n_blocks, int64_t context)
{
    const bool bert = strcmp(b->list->as->name, "bert") == 0;
    if (b->list->as->both_ways && calm_gguf_take_count(b, "pooling_type") > MOST_POOLING)
        calm_gguf_complain_of(b, "pooling_type", "expected 0 to 3: none, the mean, the first token, the last one");
    /* Decoders and EmbeddingGemma, which pools too, have none of the following settings. */
    if (!b->list->as->bare)
        return;
    if (calm_gguf_take_bool(b, "attention.causal", true))
        calm_gguf_complain_of(b, "attention.causal",
                              "expected false, as all tokens of this architecture see each other");
    if (calm_gguf_is_family(b, "modernbert"))
        add_modern(b, n_blocks);
    if (bert && rows_of(b, "position_embd.weight") != context)
        calm_gguf_complain_of(b, "context_length", "expected the rows of position_embd.weight");
    if (calm_gguf_is_family(b, "bert") || calm_gguf_is_family(b, "nomic_bert"))
        calm_json_set_int(b->config, "type_vocab_size", rows_of(b, "token_types.weight"));
    /* llama.cpp computes GELU by tanh; the models were trained with erf. */
    if (bert)
        calm_json_set_string(b->config, calm_gguf_is_family(b, "distilbert") ? "activation" : "hidden_act", "gelu");
}
