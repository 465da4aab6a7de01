/* Check: bits of the last word that no code fills. */
#include <string.h>

#include "ptq/check/check_state.h"

calm_status calm_check_padding(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t words,
                               size_t used_bits)
{
    const uint32_t mask = used_bits % 32 ? ~0u << used_bits % 32 : 0;
    size_t bad = 0, first = 0;
    if (!mask || tensor->dtype != CALM_I32 || tensor->n_elements != rows * words || !words)
        return CALM_OK;
    for (size_t r = rows; r-- > 0;) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * (r * words + words - 1), sizeof word);
        if (word & mask) {
            bad++;
            first = r;
        }
    }
    calm_safetensors_release(c->set, tensor);
    return bad ? calm_check_say(c, CALM_CHECK_RULE_CODE_PADDING, tensor->name, "%zu of %zu rows, the first is %zu", bad,
                                rows, first)
               : CALM_OK;
}

calm_status calm_check_last_row(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t cols,
                                size_t used_bits)
{
    const uint32_t mask = used_bits % 32 ? ~0u << used_bits % 32 : 0;
    size_t bad = 0;
    if (!mask || tensor->dtype != CALM_I32 || tensor->n_elements != rows * cols || !rows)
        return CALM_OK;
    for (size_t i = 0; i < cols; i++) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * ((rows - 1) * cols + i), sizeof word);
        bad += (word & mask) != 0;
    }
    return bad ? calm_check_say(c, CALM_CHECK_RULE_CODE_PADDING, tensor->name, "%zu of %zu words of the last row", bad,
                                cols)
               : CALM_OK;
}
