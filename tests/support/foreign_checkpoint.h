/* Checkpoints as other tools write them, of schemes that calm does not write: names, dtypes, shapes and keys are
 * theirs, values are not. */
#ifndef CALM_TESTS_FOREIGN_CHECKPOINT_H
#define CALM_TESTS_FOREIGN_CHECKPOINT_H

#include "ptq/io/ggml_type.h"
#include "tests/support/tiny_model.h"

/* A tensor that represents a weight. */
typedef struct foreign_part {
    const char *suffix; /* "weight_packed" of "m.weight_packed"; "^k_scale": of the module that holds m */
    const char *dtype;  /* as safetensors name it, also one that calm does not know */
    size_t bytes;       /* of an element */
    int n_dims;
    size_t shape[4];
    const void *data; /* NULL: 0x38 throughout, which is a usual scale as float16, bfloat16 and float32 */
    int fill;         /* another byte throughout; 0: as said */
} foreign_part;

#define FOREIGN_PARTS 8

/* What represents the weight [out, in] of a module: list [FOREIGN_PARTS], and how many; 0: the weight itself. */
typedef size_t foreign_fn(const char *module, size_t out, size_t in, foreign_part *list);

/* The tiny model with its matrices replaced, `entry` ("\"quantization_config\": {}") in its config.json, and a
 * tokenizer. The directory lives until the end of the test. */
const char *foreign_write(const tiny_model *spec, const char *entry, foreign_fn *parts);

typedef struct foreign_file {
    const char *arch;          /* NULL: "qwen3"; with another name it has no tokenizer       */
    calm_ggml_type most, some; /* of matrices; some: the embedding, values and ffn_down       */
    int n_split;               /* of how many files it says to be one; 0: nothing of that     */
    bool scales;               /* a matrix has a scale next to it, and one of activations       */
    int spoiled;               /* which float16 scale of a block of ffn_up is NaN, from 1; 0: none */
    bool yarn;                 /* its context is stretched, from what length it does not say  */
} foreign_file;

/* The path of a GGUF file of one block, its types mixed as llama.cpp does. */
const char *foreign_gguf(const foreign_file *spec);

#endif
