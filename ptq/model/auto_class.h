/* The class of transformers that loads a model directory: an Auto class, by the class that config.json names. */
#pragma once

#include "ptq/model/model.h"

typedef struct calm_auto_class {
    const char *name;        /* "AutoModelForCausalLM"                                             */
    const char *pipeline;    /* the hub's tag of the task and the name of transformers' pipeline   */
    bool generates;          /* pipeline("text-generation") loads it                               */
} calm_auto_class;

/* Returns the Auto class for a model class such as "Qwen3ForCausalLM" ("architectures" of config.json).  `encoder`: the
 * model's family has no head for the next token; AutoModel loads it as an embedding model. */
calm_auto_class calm_auto_class_of(const char *model_class, bool encoder);
