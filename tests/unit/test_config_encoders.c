/* config.json of encoders: keys of single families, both spellings, windows on both sides, refusals. */
#include <math.h>

#include "ptq/arch/arch.h"
#include "tests/support/harness.h"

/* Members that most families have. */
#define BERT  "\"hidden_size\": 48, \"intermediate_size\": 96, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, " \
              "\"vocab_size\": 400, \"max_position_embeddings\": 80"
#define DISTIL "\"dim\": 48, \"hidden_dim\": 96, \"n_heads\": 4, \"n_layers\": 2, \"vocab_size\": 400"
#define GPT2  "\"n_embd\": 48, \"n_inner\": 96, \"n_head\": 4, \"n_layer\": 2, \"vocab_size\": 400, " \
              "\"n_positions\": 256, \"activation_function\": \"swiglu\", \"layer_norm_epsilon\": 1e-12"
#define DEEP  "\"hidden_size\": 48, \"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 5, " \
              "\"vocab_size\": 400"

static calm_json *parse(const char *class_name, const char *members)
{
    const char *text = test_format("{\"architectures\": [\"%s\"], %s}", class_name, members);
    calm_json *root;
    ck_ok(calm_json_parse(ctx, "config.json", text, strlen(text), &root));
    return root;
}

static calm_config read(const char *class_name, const char *members)
{
    calm_config config;
    calm_json *root = parse(class_name, members);
    ck_ok(calm_config_read(ctx, "config.json", root, &config));
    calm_json_free(root);
    return config;
}

static void refuse(const char *class_name, const char *members, calm_status status, const char *message)
{
    calm_config config;
    calm_json *root = parse(class_name, members);
    ck_fails(calm_config_read(ctx, "config.json", root, &config), status, message);
    calm_json_free(root);
}

/* Each has another MLP width, so that every size must come from the right key. */
TEST(families)
{
    static const struct {
        const char *class_name, *members, *arch;
        size_t inner;
        bool head;
    } known[] = {
        {"RobertaForMaskedLM", BERT, "roberta", 96, true},
        {"RobertaModel", BERT, "roberta", 96, false},
        {"XLMRobertaModel", BERT, "xlm_roberta", 96, false},
        {"XLMRobertaForSequenceClassification", BERT, "xlm_roberta", 96, false},
        {"DistilBertForMaskedLM", DISTIL, "distilbert", 96, true},
        {"DistilBertModel", DISTIL, "distilbert", 96, false},
        {"MPNetModel", BERT, "mpnet", 96, false},
        {"ModernBertForMaskedLM", DEEP, "modernbert", 64, true},
        {"NomicBertModel", BERT, "nomic_bert", 96, false},
        {"NomicBertModel", GPT2, "nomic_bert", 96, false},
        {"GteModel", BERT, "gte", 96, false},
        {"NewModel", BERT ", \"position_embedding_type\": \"rope\", \"pack_qkv\": true", "gte", 96, true},
        {"EuroBertModel", DEEP, "eurobert", 64, false},
        {"Gemma3TextModel", DEEP, "embeddinggemma", 64, false},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const calm_config config = read(known[i].class_name, known[i].members);
        ck_assert_str_eq(config.arch->name, known[i].arch);
        ck_assert(config.hidden == 48 && config.inner == known[i].inner && config.n_heads == 4 && config.vocab == 400);
        ck_assert(config.arch->encoder && !config.arch->names->head == !known[i].head);
        ck_assert(config.both_ways == (strcmp(known[i].arch, "embeddinggemma") != 0));
    }
}
END_OF_TEST

TEST(positions_behind_the_padding)
{
    calm_config config = read("RobertaModel", BERT);
    ck_assert(config.position_base == 2 && calm_config_positions(&config) == 78 && config.n_types == 2);
    config = read("RobertaModel", BERT ", \"pad_token_id\": 5");
    ck_assert_uint_eq(config.position_base, 6);
    config = read("MPNetModel", BERT ", \"pad_token_id\": 5");
    ck_assert_uint_eq(config.position_base, 2);
    config = read("DistilBertModel", DISTIL);
    ck_assert(config.position_base == 0 && calm_config_positions(&config) == 512);
    refuse("RobertaModel", BERT ", \"pad_token_id\": 79", CALM_EFORMAT,
           "\"max_position_embeddings\": found 80, expected more than \"pad_token_id\" 79 + 1");
    refuse("RobertaModel", BERT ", \"position_embedding_type\": \"relative_key\"", CALM_EUNSUPPORTED,
           "\"position_embedding_type\": found \"relative_key\", expected absolute");
    refuse("MPNetModel", BERT ", \"relative_attention_num_buckets\": 16", CALM_EFORMAT,
           "\"relative_attention_num_buckets\"");
}
END_OF_TEST

TEST(encoders_as_decoders)
{
    static const char *const classes[] = {"BertModel", "BertLMHeadModel", "RobertaModel", "RobertaForCausalLM",
                                          "XLMRobertaModel", "XLMRobertaForCausalLM"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const calm_config config = read(classes[i], BERT ", \"is_decoder\": true");
        ck_assert(!config.both_ways && config.arch->encoder);
        ck_assert(read(classes[i], BERT ", \"is_decoder\": null").both_ways && read(classes[i], BERT).both_ways);
        refuse(classes[i], BERT ", \"is_decoder\": 1", CALM_EFORMAT, "\"is_decoder\"");
    }
    refuse("BertModel", BERT ", \"is_decoder\": true, \"add_cross_attention\": true", CALM_EUNSUPPORTED,
           "add_cross_attention");
}
END_OF_TEST

TEST(activations_by_their_own_keys)
{
    ck_assert_int_eq(read("DistilBertModel", DISTIL ", \"activation\": \"relu\"").activation, CALM_ACTIVATION_RELU);
    ck_assert_int_eq(read("ModernBertModel", DEEP ", \"hidden_activation\": \"silu\"").activation,
                     CALM_ACTIVATION_SILU);
    ck_assert_int_eq(read("NomicBertModel", GPT2).activation, CALM_ACTIVATION_SILU);
    ck_assert_int_eq(read("GteModel", BERT).activation, CALM_ACTIVATION_GELU);
    /* The head's activation function is fixed in RoBERTa and has a key in ModernBERT. */
    ck_assert_int_eq(read("RobertaForMaskedLM", BERT ", \"hidden_act\": \"relu\"").head_activation,
                     CALM_ACTIVATION_GELU);
    ck_assert_int_eq(read("ModernBertForMaskedLM", DEEP ", \"classifier_activation\": \"relu\"").head_activation,
                     CALM_ACTIVATION_RELU);
    refuse("DistilBertModel", DISTIL ", \"activation\": \"mish\"", CALM_EUNSUPPORTED,
           "\"activation\": \"mish\" is not supported; expected silu, gelu");
    refuse("XLMRobertaModel", BERT ", \"hidden_act\": \"mish\"", CALM_EUNSUPPORTED, "\"hidden_act\": \"mish\"");
    refuse("ModernBertModel", DEEP ", \"classifier_activation\": \"mish\"", CALM_EUNSUPPORTED,
           "\"classifier_activation\": \"mish\"");
    refuse("DistilBertModel", "\"dim\": 48, \"n_heads\": 5, \"n_layers\": 2, \"hidden_dim\": 9, \"vocab_size\": 4",
           CALM_EFORMAT, "dim 48 is not a multiple of n_heads 5");
}
END_OF_TEST

TEST(windows_on_both_sides)
{
    calm_config config = read("ModernBertModel", DEEP ", \"local_attention\": 16, \"norm_bias\": true");
    static const size_t every_third[5] = {0, 9, 9, 0, 9};
    ck_assert_mem_eq(config.window, every_third, sizeof every_third);
    ck_assert(config.norm_bias && config.local_rope[1] && !config.local_rope[3]);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].theta == 160000 && config.rope[CALM_ROPE_LOCAL].theta == 10000);
    config = read("ModernBertModel", DEEP ", \"global_attn_every_n_layers\": 2, \"global_rope_theta\": 5000, "
                                     "\"local_rope_theta\": 700");
    ck_assert(config.window[1] == 65 && config.window[2] == 0 && !config.norm_bias);
    ck_assert(config.rope[CALM_ROPE_GLOBAL].theta == 5000 && config.rope[CALM_ROPE_LOCAL].theta == 700);
    config = read("Gemma3TextModel", DEEP ", \"sliding_window\": 13, \"use_bidirectional_attention\": true");
    ck_assert(config.both_ways && config.window[0] == 7);
    config = read("Gemma3TextModel", DEEP ", \"sliding_window\": 13");
    ck_assert(!config.both_ways && config.window[0] == 13);
    refuse("ModernBertModel", DEEP ", \"rope_theta\": 5000", CALM_EUNSUPPORTED,
           "\"rope_theta\": found 5000, expected the 160000");
    refuse("ModernBertModel", DEEP ", \"layer_types\": [\"full_attention\"]", CALM_EFORMAT,
           "\"layer_types\": 1 entries, expected 5");
    refuse("ModernBertModel", DEEP ", \"sliding_window\": 4", CALM_EUNSUPPORTED, "\"sliding_window\"");
    /* A decoder with bidirectional attention predicts no tokens. */
    refuse("Gemma3ForCausalLM", DEEP ", \"use_bidirectional_attention\": true", CALM_EUNSUPPORTED,
           "\"use_bidirectional_attention\"");
}
END_OF_TEST

TEST(published_spellings)
{
    calm_config config = read("NomicBertModel", GPT2 ", \"rotary_emb_base\": 500, \"rotary_emb_fraction\": 1.0, "
                                                "\"prenorm\": false, \"causal\": false");
    ck_assert(config.rope[CALM_ROPE_GLOBAL].theta == 500 && config.max_positions == 256);
    refuse("NomicBertModel", GPT2 ", \"prenorm\": true", CALM_EUNSUPPORTED, "\"prenorm\": found true, expected false");
    refuse("NomicBertModel", GPT2 ", \"rotary_emb_fraction\": 0.5", CALM_EUNSUPPORTED,
           "\"rotary_emb_fraction\": found 0.5, expected 1");
    ck_assert_uint_eq(read("GteModel", BERT ", \"type_vocab_size\": 0").n_types, 0);
    refuse("NewModel", BERT ", \"pack_qkv\": false", CALM_EUNSUPPORTED, "\"pack_qkv\": found false, expected true");
    refuse("NewModel", BERT ", \"layer_norm_type\": \"rms_norm\"", CALM_EUNSUPPORTED,
           "\"layer_norm_type\": found \"rms_norm\"");
    /* Heads have 12 channels. */
    config = read("NewModel", BERT ", \"rope_theta\": 500, \"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2}");
    ck_assert(config.rope[0].kind == CALM_ROPE_LINEAR && fabs(config.rope[0].theta - 1000) < 1e-9);
    ck_assert(fabs(config.rope[0].factor - pow(2, 1 / 6.0)) < 1e-12);
    refuse("NewModel", BERT ", \"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2, \"mixed_b\": 0.6}",
           CALM_EUNSUPPORTED, "\"mixed_b\" is not known");
    refuse("NomicBertModel", BERT ", \"rope_scaling\": {\"type\": \"ntk\", \"factor\": 2}", CALM_EUNSUPPORTED,
           "rope_type \"ntk\" is not supported");
}
END_OF_TEST

int main(void)
{
    return run_tests("config_encoders",
                     (const TTest *[]){families, positions_behind_the_padding, activations_by_their_own_keys,
                                       windows_on_both_sides, published_spellings, encoders_as_decoders, NULL});
}
