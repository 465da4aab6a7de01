/* gptq checkpoints: the entry of config.json and a module's tensors. */
#include "tests/fuzz/fuzz_qformat.h"

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    return fuzz_qformat("gptq", data, size);
}
