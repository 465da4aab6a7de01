/* Words for the status codes. */
#include "ptq/base/status.h"

const char *calm_status_words(calm_status status)
{
    static const char *const texts[] = {
#define CALM_STATUS_STRING(name, words) words,
        CALM_STATUS_LIST(CALM_STATUS_STRING)
#undef CALM_STATUS_STRING
    };
    return (unsigned)status < CALM_N_STATUS ? texts[status] : "unknown status";
}
