/* The instruction sets found on this CPU, against /proc/cpuinfo. */
#include <stdio.h>
#include <sys/utsname.h>

#include "ptq/base/simd.h"
#include "tests/support/harness.h"

/* Tells whether the first line of /proc/cpuinfo that begins with `key` has this word. */
static bool listed(FILE *file, const char *key, const char *word)
{
    static char line[1 << 16];
    const size_t n = strlen(word);
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        for (const char *at = line; (at = strstr(at, word)); at += n)
            if (at > line && at[-1] == ' ' && (at[n] == ' ' || at[n] == '\n'))
                return true;
        return false;
    }
    ck_abort_msg("/proc/cpuinfo has no %s", key);
}

TEST(as_the_kernel_says)
{
    struct utsname machine;
    ck_assert_int_eq(uname(&machine), 0);
    const char *expected = strcmp(machine.machine, "aarch64") == 0 ? "aarch64" : "other";
    if (strcmp(machine.machine, "x86_64") == 0) {
        FILE *file = fopen("/proc/cpuinfo", "r");
        ck_assert_msg(file, "/proc/cpuinfo cannot be read");
        expected = listed(file, "flags", "avx2") && listed(file, "flags", "fma") ? "x86-64 avx2 fma"
                   : listed(file, "flags", "avx")                                ? "x86-64 avx"
                                                                                 : "x86-64";
        fclose(file);
    }
    ck_assert_str_eq(calm_instructions(), expected);
}
END_OF_TEST

int main(void)
{
    return run_tests("simd", (const TTest *[]){as_the_kernel_says, NULL});
}
