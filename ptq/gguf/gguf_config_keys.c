/* Reads keys of a GGUF file as members of config.json. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptq/gguf/gguf_config_impl.h"

typedef calm_gguf_config_builder builder;

/* A caller that lists all faults passes `report`; without it the first fault is the failure. */
void calm_gguf_complain(builder *b, const char *key, const char *text)
{
    if (b->report)
        b->report(b->user, key, text);
    else
        b->status = calm_fail(b->ctx, CALM_EFORMAT, "%s: key %s: %s", calm_gguf_path(b->list->file), key, text);
}

/* The name is made also for an absent key, since messages name it. */
const calm_gguf_key *calm_gguf_find_of(const builder *b, const char *rest, char name[128])
{
    snprintf(name, 128, "%s.%s", b->list->as->name, rest);
    return calm_gguf_find_key(b->list->file, name);
}

void calm_gguf_complain_of(builder *b, const char *rest, const char *text)
{
    char name[128];
    /* Only the name is wanted, whether or not the file has the key. */
    calm_gguf_find_of(b, rest, name);
    calm_gguf_complain(b, name, text);
}

int64_t calm_gguf_take_size(builder *b, const char *rest, int64_t fallback)
{
    char name[128];
    int64_t value = 0;
    const char *fault = NULL;
    const calm_gguf_key *key = calm_gguf_find_of(b, rest, name);
    /* Writers leave out an architecture's defaults. */
    if (!key && fallback)
        return fallback;
    if (!calm_gguf_int(key, 0, &value) || (key->array && key->n > 1))
        fault = key ? "expected one whole number" : "it is missing";
    else if (value < 1 || value > CALM_SIZE_LIMIT)
        fault = "expected a whole number from 1 to 2^24";
    if (fault)
        calm_gguf_complain(b, name, fault);
    return !fault ? value : fallback ? fallback : 1;    /* 1 lets the rest be read, so that all faults are listed */
}

void calm_gguf_set_size(builder *b, const char *member, const char *rest, int64_t fallback)
{
    calm_json_set_int(b->config, member, calm_gguf_take_size(b, rest, fallback));
}

/* Unlike a size it may be 0: the number of shared experts, or of leading dense blocks. */
int64_t calm_gguf_take_count(builder *b, const char *rest)
{
    char name[128];
    int64_t value = 0;
    const calm_gguf_key *key = calm_gguf_find_of(b, rest, name);
    if (!key || (calm_gguf_int(key, 0, &value) && !key->array && value >= 0 && value <= CALM_SIZE_LIMIT))
        return value;
    calm_gguf_complain(b, name, "expected a whole number from 0 to 2^24");
    return 0;
}

double calm_gguf_take_number(builder *b, const char *rest, double fallback)
{
    char name[128];
    double value = 0;
    const calm_gguf_key *key = calm_gguf_find_of(b, rest, name);
    if (!key && fallback != 0)
        return fallback;
    /* Epsilons, scales and bases of rotary embeddings are all above 0. */
    if (!calm_gguf_number(key, 0, &value) || !(value > 0) || !isfinite(value)) {
        calm_gguf_complain(b, name, key ? "expected a number above 0" : "it is missing");
        return fallback != 0 ? fallback : 1;
    }
    return value;
}

void calm_gguf_set_number(calm_json *object, const char *name, double value)
{
    char text[32];
    /* Nine digits distinguish any two floats, so the loop always finds one that reads back. */
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    calm_json_set_number(object, name, strtod(text, NULL));
}

bool calm_gguf_take_bool(builder *b, const char *rest, bool usual)
{
    char name[128];
    const calm_gguf_key *key = calm_gguf_find_of(b, rest, name);
    if (key && (key->kind != CALM_GGUF_BOOL || key->array))
        calm_gguf_complain(b, name, "expected a boolean");
    /* After a fault the usual value lets the rest be read, so that all faults are listed. */
    return key && key->kind == CALM_GGUF_BOOL && !key->array ? key->data[0] != 0 : usual;
}

int64_t calm_gguf_of_block(const calm_gguf_key *key, int64_t block)
{
    int64_t value = 0;
    /* A single number is for every block. */
    const bool found = calm_gguf_int(key, key && key->array ? (size_t)block : 0, &value);
    return found && value > 0 && value <= CALM_SIZE_LIMIT ? value : 0;
}

int64_t calm_gguf_take_first(builder *b, const char *rest, int64_t fallback)
{
    char name[128];
    const calm_gguf_key *key = calm_gguf_find_of(b, rest, name);
    int64_t value = 0;
    for (size_t i = 0; key && i < (key->array ? key->n : 1) && !value; i++)
        value = calm_gguf_of_block(key, (int64_t)i);
    /* There may be no block of the kind. */
    if (!value && fallback)
        return fallback;
    if (!value)
        calm_gguf_complain(b, name, key ? "expected whole numbers, some above 0" : "it is missing");
    return value ? value : 1;
}
