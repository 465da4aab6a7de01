/* Checkpoints of schemes that calm does not write, with names, dtypes, shapes and keys as in other tools' files, and
 * arbitrary values. */
#ifndef CALM_TESTS_FOREIGN_CHECKPOINT_H
#define CALM_TESTS_FOREIGN_CHECKPOINT_H

#include "ptq/io/ggml_type.h"
#include "tests/support/tiny_model.h"

/* A tensor that represents a weight. */
typedef struct foreign_part {
    const char *suffix; /* "weight_packed" of "m.weight_packed"; "^k_scale": of the module that holds m */
    const char *dtype;  /* a name of safetensors, also one that calm does not know */
    size_t bytes;       /* bytes per element */
    int n_dims;
    size_t shape[4];
    const void *data; /* NULL: all bytes 0x38, which is a usual scale in float16, bfloat16 and float32 */
    int fill;         /* another value of all bytes; 0: that of `data` */
} foreign_part;

#define FOREIGN_PARTS 8

/* Lists the tensors that represent the weight [out, in] of a module in list [FOREIGN_PARTS] and returns their number;
 * 0: the weight itself. */
typedef size_t foreign_fn(const char *module, size_t out, size_t in, foreign_part *list);

/* Writes the tiny model with its matrices replaced, `entry` ("\"quantization_config\": {}") in its config.json, and a
 * tokenizer.  The directory lives until the end of the test. */
const char *foreign_write(const tiny_model *spec, const char *entry, foreign_fn *parts);

typedef struct foreign_file {
    const char *arch;          /* NULL: "qwen3"; a file of another name has no tokenizer               */
    calm_ggml_type most, some; /* types of matrices; `some`: embedding, values, ffn_down               */
    int n_split;               /* number of files in its split keys; 0: no such keys                   */
    bool scales;               /* a matrix has a scale of its weight and one of inputs                 */
    int spoiled;               /* number, from 1, of the scale of an ffn_up block that is NaN; 0: none */
    bool yarn;                 /* the context is stretched by YaRN; the original length is missing     */
} foreign_file;

/* Writes a GGUF file of one block with types mixed as llama.cpp does, and returns its path. */
const char *foreign_gguf(const foreign_file *spec);

#endif
