#!/bin/sh
# Runs one case of the command line: commands, and what each must print.
#
#   run_case.sh FOLDER-OF-PROGRAMS CASE
#
# A case is a text file, read line by line:
#
#   # why the case exists
#   @ tool [words] [# what is missing]      the case is skipped (exit status 77) where this tool is not installed, or the
#                       command fails; the list of skipped tests says what is missing (tests/run)
#   $ command           run by sh in its own folder, with calm, json_shape and store_sql in PATH; the steps of a case share it
#   = 1                 exit status that the command must have; 0 when not said
#   > line              standard output must have this line next
#   ! line              standard error must have this line next
#
# An expected line /.../ is an extended regular expression for the whole line (without {n}, which mawk lacks); a line ...
# stands for any number of lines.  A command without > lines must print nothing to standard output, one without ! lines
# nothing to standard error.
set -u

[ $# -eq 2 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
case_file=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
PATH=$1:$PATH
export PATH
unset COLUMNS    # which would fold tables
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkdir "$work/in"
failed=0

# calm says so when a variable keeps it from better kernels, and when it starts itself anew on a CPU that OpenBLAS does
# not know; the cases begin where it says neither.
case $(calm --version) in *", though this CPU runs "*) unset OPENBLAS_CORETYPE ;; esac
kernels=$(calm --version | sed -n "s/.*kernels \\([A-Za-z0-9_]*\\) (OpenBLAS's own choice: .*/\\1/p")
[ -z "$kernels" ] || export OPENBLAS_CORETYPE="$kernels"

# compare EXPECTED FILE NAME: whether FILE has the expected lines.  They are matched in order; "..." takes as few lines
# as possible.
compare() {    # compare EXPECTED FILE NAME
    awk -v name="$3" '
        NR == FNR { want[n_want++] = $0; next }
        { found[n_found++] = $0 }
        function same(w, f) {
            if (w ~ /^\/.*\/$/) {
                w = "^(" substr(w, 2, length(w) - 2) ")$"
                return f ~ w
            }
            return w == f
        }
        END {
            for (i = j = 0; i < n_want; i++) {
                if (want[i] == "...") { any = 1; continue }
                while (any && j < n_found && !same(want[i], found[j])) j++
                any = 0
                if (j >= n_found || !same(want[i], found[j])) {
                    printf "%s: expected  %s\n%s: found     %s\n", name, want[i], name, j < n_found ? found[j] : "(the end)"
                    exit 1
                }
                j++
            }
            if (j < n_found && !any) {
                printf "%s: expected the end\n%s: found     %s\n", name, name, found[j]
                exit 1
            }
        }' "$1" "$2"
}

run_step() {    # runs the command collected so far and judges it
    if [ -z "$command" ]; then
        [ ! -s "$work/want.out" ] && [ ! -s "$work/want.err" ] && [ "$status" = 0 ] && return 0
        echo "$case_file: something is expected before the first command"
        exit 2
    fi
    (cd "$work/in" && exec sh -c "$command") >"$work/out" 2>"$work/err" </dev/null
    found=$?
    problem=
    [ "$found" -eq "$status" ] || problem="exit status: expected $status, found $found
"
    problem=$problem$(compare "$work/want.out" "$work/out" stdout; compare "$work/want.err" "$work/err" stderr)
    if [ -n "$problem" ]; then
        printf '%s\n$ %s\n%s\n---- stdout\n' "$case_file" "$command" "$problem"
        head -c 4000 "$work/out"
        echo '---- stderr'
        head -c 4000 "$work/err"
        failed=1
    fi
}

start_step() {
    command=$1 status=0
    : >"$work/want.out"
    : >"$work/want.err"
}

start_step ''
while IFS= read -r line || [ -n "$line" ]; do
    rest=${line#?}
    rest=${rest# }
    case $line in
        '#'* | '') ;;
        '@ '*) command -v "${rest%% *}" >/dev/null || { echo "SKIP: no ${rest%% *} (apt-get install ${rest%% *})"; exit 77; }
            case $rest in
                *' '*) sh -c "$rest" </dev/null >/dev/null 2>&1 || { echo "SKIP: it needs ${rest##*# }"; exit 77; } ;;
            esac ;;
        '$ '*) run_step; [ $failed = 0 ] || exit 1; start_step "$rest" ;;
        '= '*) status=$rest ;;
        '> '* | '>') printf '%s\n' "$rest" >>"$work/want.out" ;;
        '! '* | '!') printf '%s\n' "$rest" >>"$work/want.err" ;;
        *) echo "$case_file: cannot read the line: $line"; exit 2 ;;
    esac
done <"$case_file"
[ -n "$command" ] || { echo "$case_file: no command"; exit 2; }
run_step
exit $failed
