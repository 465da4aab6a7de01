/* Names of number formats: w<bits>a<bits>[_g<columns>][_asym][_actorder][_asymact][_vllmact][_static][_f16s],
 * "float", or the name of a family. */
#include "ptq/quant/mix.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "ptq/base/text.h"

#define EXAMPLES                                                                                                       \
    "examples: w4a16_g128, w4a16_g128_asym, w8a16, w8a8, w8a8_asymact, w8a8_static, w4a4_g128, w4afp8_g128, nvfp4, "   \
    "fp8a16, fp8_static, float"
#define SUFFIXES                                                                                                       \
    "after the bits come _g<columns>, _or<columns>, _orrow, _asym, _actorder, _asymact, _symact, _vllmact, _static "   \
    "and _f16s"
#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define ORDERED "_actorder"
#define GROUP_MAX (1ul << 24)
#define FLOAT_BITS 16.0

/* ---- names ---- */

static calm_status refuse(calm_ctx *ctx, const char *name, const char *why)
{
    return calm_fail(ctx, CALM_EARG, "scheme \"%s\": %s; " EXAMPLES, name, why);
}

/* Reads decimal digits at *at into *value and advances *at; returns false if there are none; reads at most nine. */
static bool read_number(const char **at, unsigned long *value)
{
    const char *start = *at;
    *value = 0;
    while (**at >= '0' && **at <= '9' && *at - start < 9)
        *value = *value * 10 + (unsigned long)(*(*at)++ - '0');
    return *at > start;
}

static calm_status read_group(calm_ctx *ctx, const char *name, const char **at, calm_scheme *out)
{
    unsigned long group;
    *at += strlen("_g");
    if (!read_number(at, &group) || group == 0 || group > GROUP_MAX)
        return refuse(ctx, name, "_g needs a number of columns from 1 (leave it out for one scale per row)");
    out->group = group;
    return CALM_OK;
}

/* Reads the alternative to a group size that does not divide the columns: "_or64" or "_orrow". */
static calm_status read_else(calm_ctx *ctx, const char *name, const char **at, calm_scheme *out)
{
    unsigned long group = 0;
    *at += strlen("_or");
    const bool row = strncmp(*at, "row", strlen("row")) == 0;
    *at += row ? strlen("row") : 0;
    if (!out->group || (!row && (!read_number(at, &group) || group == 0 || group >= out->group)))
        return refuse(ctx, name, "_or follows a group, with a smaller number of columns, or row");
    out->group_else = row ? -1 : (int)group;
    return CALM_OK;
}

static bool is_suffix(const char *at, size_t length, const char *suffix)
{
    return length == strlen(suffix) && strncmp(at, suffix, length) == 0;
}

/* Reads one "_suffix" at *at. */
static calm_status read_suffix(calm_ctx *ctx, const char *name, const char **at, calm_scheme *out)
{
    const size_t length = 1 + strcspn(*at + 1, "_");
    const bool vllm = is_suffix(*at, length, "_vllmact"), zeros = is_suffix(*at, length, "_asymact"),
               none = is_suffix(*at, length, "_symact"), fixed = is_suffix(*at, length, "_static");
    if (strncmp(*at, "_g", 2) == 0)
        return read_group(ctx, name, at, out);
    if (strncmp(*at, "_or", 3) == 0)
        return read_else(ctx, name, at, out);
    if ((vllm || zeros || none || fixed) && !out->act_bits)
        return refuse(ctx, name, "_asymact, _symact, _vllmact and _static need quantized activations; this scheme "
                                 "keeps them in float");
    if (is_suffix(*at, length, "_asym"))
        out->symmetric = false;
    else if (is_suffix(*at, length, ORDERED))
        out->act_order = true;
    else if (is_suffix(*at, length, "_f16s"))
        out->scale_dtype = CALM_F16;
    else if (vllm || fixed)
        out->act_rule = fixed ? CALM_ACT_RULE_STATIC : CALM_ACT_RULE_VLLM;
    else if (zeros || none)
        out->act_asymmetric = zeros;
    else
        return refuse(ctx, name, SUFFIXES);
    *at += length;
    return CALM_OK;
}

/* Returns the bits of a name like int4, 4bit, 4-bit or q4, or 0 if it is none, or calm has no such format. */
static int plain_bits(const char *name)
{
    const char *at = name + (strncmp(name, "int", 3) == 0 ? 3 : name[0] == 'q');
    unsigned long bits;
    const bool formed = read_number(&at, &bits) && (!*at || calm_text_listed("bit|bits|-bit|_bit", '|', at));
    return formed && (bits == 2 || bits == 3 || bits == 4 || bits == 8) ? (int)bits : 0;
}

/* Refuses a name that no format begins with. */
static calm_status refuse_name(calm_ctx *ctx, const char *name)
{
    char why[CALM_MESSAGE_MAX] = "expected w<bits>a<bits> or one of";
    const int bits = plain_bits(name);
    const char *of_gguf = strncasecmp(name, "gguf:", 5) == 0 ? name + 5 : name;    /* auto-round's spelling   */
    if (calm_mix_called(of_gguf))
        return calm_fail(ctx, CALM_EARG, "scheme \"%s\": that is a type of GGUF files; did you mean `gguf-type` %s?",
                         name, of_gguf);
    if (calm_text_listed("awq|gptq|rtn|smoothquant|AWQ|GPTQ|RTN", '|', name))
        return calm_fail(ctx, CALM_EARG, "scheme \"%s\": that is an algorithm; a scheme is a number format, as "
                         "w4a16_g128; did you mean `algorithms`?", name);
    if (bits)
        snprintf(why, sizeof why, "did you mean `bits` %d? Or w<bits>a<bits>, or one of", bits);
    for (int i = 1; i < CALM_N_FAMILIES; i++)
        snprintf(why + strlen(why), sizeof why - strlen(why), "%s %s", i > 1 ? "," : "", calm_families[i].name);
    return refuse(ctx, name, why);
}

#define WEIGHTS_ALONE "a16"
#define STATIC        "_static"
#define FP8_INPUTS    "fp8"

/* Returns whether the family's activations may also have one scale for all tokens. */
static bool has_static(const calm_family *row)
{
    return row->act_rule == CALM_ACT_RULE_FP8;
}

/* Returns the rest of the name behind the family's name and an optional "a16" or "_static", or NULL if the name is
 * not this family's. */
static const char *after_family(const calm_family *row, const char *name)
{
    const size_t length = strlen(row->name), alone = strlen(WEIGHTS_ALONE);
    const char *at = name + length;
    if (length == 0 || strncmp(name, row->name, length) != 0)
        return NULL;
    if (row->act_bits && strncmp(at, WEIGHTS_ALONE, alone) == 0)
        at += alone;
    else if (has_static(row) && strncmp(at, STATIC, strlen(STATIC)) == 0)
        at += strlen(STATIC);
    return *at == 0 || strcmp(at, "_f16s") == 0 ? at : NULL;
}

/* Returns the family whose name precedes the suffixes, or 0. */
static int find_family(const char *name)
{
    int family = CALM_N_FAMILIES - 1;
    while (family > 0 && !after_family(&calm_families[family], name))
        family--;
    return family;
}

/* Reads the scheme of a family and the suffixes of its name. */
static calm_status read_family(calm_ctx *ctx, const char *name, int family, calm_scheme *out)
{
    const calm_family *row = &calm_families[family];
    const char *at = after_family(row, name), *own = name + strlen(row->name);
    *out = calm_scheme_of_type(family);
    if (row->act_bits && strncmp(own, WEIGHTS_ALONE, strlen(WEIGHTS_ALONE)) != 0) {
        const bool fixed = has_static(row) && strncmp(own, STATIC, strlen(STATIC)) == 0;
        out->act_bits = row->act_bits;
        out->act_rule = fixed ? CALM_ACT_RULE_FP8_STATIC : row->act_rule;
    }
    if (strcmp(at, "_f16s") == 0 && calm_scheme_takes_f16_scales(out))
        out->scale_dtype = CALM_F16;
    else if (*at)
        return refuse(ctx, name, calm_scheme_takes_f16_scales(out) ? "after its name comes _f16s alone"
                                                                   : "nothing comes after its name");
    return CALM_OK;
}

/* Reads the format of activations behind "a": bits, or small floats; returns false for others. */
static bool read_inputs(const char **at, unsigned long *bits, bool *floats)
{
    *floats = strncmp(*at, FP8_INPUTS, strlen(FP8_INPUTS)) == 0;
    if (!*floats)
        return read_number(at, bits);
    *at += strlen(FP8_INPUTS);
    *bits = 8;
    return true;
}

/* Reads a name in calm's own spelling. */
static calm_status parse_own(calm_ctx *ctx, const char *name, calm_scheme *out)
{
    const char *at = name;
    unsigned long bits, act_bits;
    bool floats;
    *out = (calm_scheme){.symmetric = true, .scale_dtype = CALM_BF16};
    if (strcmp(name, "float") == 0 || calm_mix_find(name, out))
        return CALM_OK;
    const int family = find_family(name);
    if (family)
        return read_family(ctx, name, family, out);
    if (*at++ != 'w' || !read_number(&at, &bits) || *at++ != 'a' ||
        !read_inputs(&at, &act_bits, &floats))
        return refuse_name(ctx, name);
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return refuse(ctx, name, "weights have 2, 3, 4 or 8 bits");
    if (act_bits != 4 && act_bits != 8 && act_bits != 16)
        return refuse(ctx, name, "activations have 4, 8 or 16 bits");
    out->bits = (int)bits;
    out->act_bits = act_bits == 16 ? 0 : (int)act_bits;
    while (*at == '_')
        CALM_TRY(read_suffix(ctx, name, &at, out));
    if (*at)
        return refuse(ctx, name, SUFFIXES);
    if (floats && (calm_scheme_says_range(name) || strstr(name, "_vllmact")))
        return refuse(ctx, name, "activations in fp8 have one form, symmetric with a scale per token: leave _asymact, "
                                 "_symact, _vllmact and _static out");
    if (floats)
        out->act_rule = CALM_ACT_RULE_FP8;
    if (out->act_order && (!out->group || out->act_bits))
        return refuse(ctx, name, ORDERED " needs groups of columns and float activations");
    const bool clash = out->act_bits != 8 || out->act_asymmetric || strstr(name, "_vllmact");
    if (out->act_rule == CALM_ACT_RULE_STATIC && clash)
        return refuse(ctx, name, "_static needs symmetric activations of 8 bits, without _vllmact");
    return CALM_OK;
}

/* ---- presets of other tools ---- */

typedef struct peer {
    const char *spelling, *name;
} peer;

static const peer peers[] = {
#define CALM_SCHEME_PEER(spelling, name) {spelling, name},
#include "ptq/quant/scheme_peers.def"
#undef CALM_SCHEME_PEER
};

/* Returns the preset of a name that is not calm's own (calm's names have no capitals), or NULL. */
static const peer *find_peer(const char *name)
{
    calm_ctx trial = {0};
    calm_scheme unused;
    if (name[strcspn(name, CAPITALS)] == 0 && parse_own(&trial, name, &unused) == CALM_OK)
        return NULL;
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        if (strcasecmp(peers[i].spelling, name) == 0)
            return &peers[i];
    return NULL;
}

calm_status calm_scheme_parse(calm_ctx *ctx, const char *name, calm_scheme *out)
{
    CALM_ENTER(ctx, name && out);
    const peer *row = find_peer(name);
    return parse_own(ctx, row ? row->name : name, out);
}

bool calm_scheme_says_range(const char *name)
{
    return strstr(name, "_asymact") || strstr(name, "_symact") || strstr(name, "_static");
}

const char *calm_scheme_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX])
{
    char group[24] = "", instead[16] = "", inputs[16];
    if (scheme->bits == 0) {
        snprintf(name, CALM_SCHEME_NAME_MAX, "float");
        return name;
    }
    if (calm_mix_name(scheme, name))
        return name;
    if (scheme->family) {
        const calm_family *row = calm_scheme_family(scheme);
        const bool f16 = calm_scheme_takes_f16_scales(scheme) && scheme->scale_dtype == CALM_F16;
        snprintf(name, CALM_SCHEME_NAME_MAX, "%s%s%s%s", row->name,
                 row->act_bits && !scheme->act_bits ? WEIGHTS_ALONE : "",
                 scheme->act_rule == CALM_ACT_RULE_FP8_STATIC ? STATIC : "", f16 ? "_f16s" : "");
        return name;
    }
    snprintf(inputs, sizeof inputs, "%d", calm_scheme_input_bits(scheme));
    if (scheme->group)
        snprintf(group, sizeof group, "_g%zu", scheme->group);
    if (scheme->group_else > 0)
        snprintf(instead, sizeof instead, "_or%d", scheme->group_else);
    /* Groups in activation order occur with float activations only. */
    const char *acts = scheme->act_order ? ORDERED : scheme->act_asymmetric ? "_asymact" : "",
               *rule = scheme->act_rule == CALM_ACT_RULE_VLLM     ? "_vllmact"
                       : scheme->act_rule == CALM_ACT_RULE_STATIC ? STATIC
                                                                  : "";
    int length = snprintf(name, CALM_SCHEME_NAME_MAX, "w%da%.3s%s%s%s%s%s%s", scheme->bits,
                          scheme->act_rule == CALM_ACT_RULE_FP8 ? FP8_INPUTS : inputs, group,
                          scheme->group_else < 0 ? "_orrow" : instead, scheme->symmetric ? "" : "_asym", acts, rule,
                          scheme->scale_dtype == CALM_F16 ? "_f16s" : "");
    assert(length < CALM_SCHEME_NAME_MAX);
    (void)length;
    return name;
}

const char *calm_scheme_type_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX])
{
    const calm_scheme q4_0 = calm_scheme_of_type(CALM_TYPE_Q4_0), q8_0 = calm_scheme_of_type(CALM_TYPE_Q8_0);
    return calm_scheme_same(scheme, &q4_0)   ? "q4_0"
           : calm_scheme_same(scheme, &q8_0) ? "q8_0"
                                             : calm_scheme_name(scheme, name);
}

bool calm_scheme_same(const calm_scheme *a, const calm_scheme *b)
{
    return strcmp(CALM_SCHEME_NAME(a), CALM_SCHEME_NAME(b)) == 0;
}

calm_scheme calm_scheme_for(const calm_scheme *scheme, size_t in)
{
    const int instead = calm_scheme_family(scheme)->instead;
    calm_scheme out = *scheme;
    out.group_else = 0;
    if (!scheme->group || in % calm_scheme_block(scheme) == 0)
        return out;
    if (scheme->group_else)
        out.group = scheme->group_else > 0 ? (size_t)scheme->group_else : 0;
    out.act_order &= out.group > 0;
    if (!instead)
        return out;
    out = calm_scheme_of_type(instead);
    out.mix = scheme->mix;
    return out;
}

bool calm_scheme_divides(const calm_scheme *scheme, size_t in)
{
    const calm_scheme stored = calm_scheme_for(scheme, in);
    const bool padded = calm_scheme_rows(&stored) > 1 && !stored.act_bits;
    return !stored.group || in % stored.group == 0 || padded;
}

size_t calm_scheme_groups(const calm_scheme *scheme, size_t in)
{
    const size_t group = calm_scheme_for(scheme, in).group;
    return group ? in / group + (in % group != 0) : 1;
}

size_t calm_scheme_block(const calm_scheme *scheme)
{
    return scheme->group * calm_scheme_family(scheme)->super;
}

size_t calm_scheme_group_size(const calm_scheme *scheme, size_t in)
{
    const size_t group = calm_scheme_for(scheme, in).group;
    return group ? group : in;
}

int calm_scheme_input_bits(const calm_scheme *scheme)
{
    return scheme->act_bits ? scheme->act_bits : 16;
}

double calm_scheme_bits_per_weight(const calm_scheme *scheme, size_t out, size_t in)
{
    if (scheme->bits == 0 || out == 0 || in == 0)
        return FLOAT_BITS;
    const calm_scheme stored = calm_scheme_for(scheme, in);
    double per_group = calm_scheme_family(&stored)->side_bits + (stored.symmetric ? 0 : stored.bits);
    /* Each row has its own scales: the ratio is that of one row, for any `out`. */
    const double blocks = (double)calm_scheme_row_blocks(&stored, out);
    const double share = calm_scheme_is_whole(&stored)      ? 1 / (double)out
                         : calm_scheme_rows(&stored) == 1 ? 1
                                                          : blocks / (double)out;
    return stored.bits + per_group * share * (double)calm_scheme_groups(scheme, in) / (double)in;
}
