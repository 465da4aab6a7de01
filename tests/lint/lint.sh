#!/bin/sh
# One rule of the house, checked over the tree:  lint.sh RULE [ROOT]
#
#   layers       who may include whom (layers.txt); a third-party header appears in one file
#   registries   every line of a .def list has its file, every such file its line; every test is registered
#   docstrings   every function that a header declares has a comment: above it, above its group of adjacent
#                lines, or behind an earlier line of the group
#   sizes        .c and .h files up to 600 lines, functions up to 100
#   forbidden    below cli/ nothing prints, exits or calls rand(); no -ffast-math anywhere
#   names        no two source files share a name
#
# Prints one line per finding; exit status 1 when there is one.
set -eu
rule=${1:?usage: lint.sh RULE [ROOT]}
here=$(cd "$(dirname "$0")" && pwd)
cd "${2:-$here/../..}"

# Source files under the given folders that exist; the data of tests is no source.
sources() {
    for folder in "$@"; do
        [ ! -d "$folder" ] || find "$folder" -name '*.[ch]' ! -path 'tests/data/*'
    done | LC_ALL=C sort
}
all_sources() {
    sources ptq algorithms cka store cli tests
}

# ---- layers ----

layers() {
    all_sources | xargs awk -v table="$here/layers.txt" -v embedded="$(sed -n -e 's/^embed(.* \([^ ]*\))$/\1/p' -e 's/.*HEADER=.*generated\/\([a-z_]*\.h\).*/\1/p' CMakeLists.txt 2>/dev/null | tr '\n' ' ')" '
        BEGIN {
            while ((getline line < table) > 0) {
                n = split(line, word, " ")
                if (n == 0 || line ~ /^#/) continue
                known[word[1]] = 1
                for (i = 2; i <= n; i++) may[word[1], word[i]] = 1
            }
        }
        function layer_of(path,   part) {
            split(path, part, "/")
            return part[1] == "ptq" ? part[1] "/" part[2] : part[1]
        }
        /^[ \t]*#[ \t]*include[ \t]*"/ {
            split($0, quoted, "\"")
            target = quoted[2]
            if (index(" " embedded " ", " " target " ")) next
            from = layer_of(FILENAME); to = layer_of(target)
            where = FILENAME ":" FNR ": "
            if (!(to in known)) print where "\"" target "\": includes are written from the root of a known layer"
            else if (!(from in known)) print where "unknown layer " from
            else if (from != to && !((from, to) in may) && !((from, "*") in may))
                print where from " may not include " target
        }
        /^[ \t]*#[ \t]*include[ \t]*</ {
            split($0, part, /[<>]/)
            header = part[2]
            sub(/^openssl\/.*/, "openssl/*", header)
            sub(/^curl\/.*/, "curl/*", header)
            if (header !~ /^(cblas\.h|lapacke\.h|jansson\.h|pcre2\.h|utf8proc\.h|sqlite3\.h|openssl\/\*|curl\/\*|omp\.h|argp\.h|check\.h)$/) next
            if (!(header in user)) user[header] = FILENAME
            else if (user[header] != FILENAME)
                print FILENAME ":" FNR ": <" header "> belongs to " user[header] " alone"
        }'
}

# ---- registries ----

# registry LIST MACRO FOLDER SED GLOBS...: `MACRO(...)` lines of LIST against FOLDER; SED turns a line into a file name
registry() {
    list=$1 macro=$2 folder=$3 expression=$4
    shift 4
    [ -e "$list" ] || return 0
    named=$(sed -n "s/^$macro($expression/p" "$list")
    for file in $named; do
        [ -e "$folder/$file" ] || echo "$list: names $file, but there is no $folder/$file"
    done
    for glob in "$@"; do
        for path in "$folder"/$glob; do
            [ -e "$path" ] || continue
            echo "$named" | grep -qx "${path##*/}" || echo "$path: has no line in $list"
        done
    done
}

registries() {
    registry algorithms/parts.def CALM_PART algorithms '\([a-z0-9_]*\), *\([a-z0-9_]*\).*/\1_\2.c' \
        'grid_*.c' 'transform_*.c' 'round_*.c' 'refit_*.c'
    registry ptq/model/arch.def CALM_ARCH ptq/model '\([a-z0-9_]*\).*/arch_\1.c' 'arch_*.c'
    registry ptq/model/qformats.def CALM_QFORMAT ptq/model '\([a-z0-9_]*\).*/qformat_\1.c' 'qformat_*.c'
    registry ptq/export/export.def CALM_EXPORT ptq/export '\([a-z0-9_]*\).*/export_\1.c' 'export_*.c'
    registry cli/commands.def CALM_COMMAND cli '\([a-z0-9_]*\).*/cmd_\1.c' 'cmd_*.c'
    for file in $(sources tests); do
        folder=${file%/*} name=${file##*/}
        case $folder in tests/support | tests/fuzz) continue ;; esac
        grep -q '^int main(' "$file" || continue
        grep -qw "${name%.c}" "$folder/tests.cmake" 2>/dev/null || echo "$file: is not in $folder/tests.cmake"
    done
}

# ---- docstrings ----

docstrings() {
    sources ptq algorithms cka store cli | grep '\.h$' | xargs awk '
        FNR == 1 { documented = 0; depth = 0; in_comment = 0 }
        in_comment { if (/\*\//) { in_comment = 0; documented = 1 } next }
        /^[ \t]*\/\*/ { if (/\*\//) documented = 1; else in_comment = 1; next }
        /^[ \t]*$/ { documented = 0; next }
        /^#/ { next }
        /;[ \t]*\/\*/ && depth == 0 { documented = 1 }
        depth == 0 && /^[A-Za-z_].*\(/ && !/^typedef/ && !documented {
            print FILENAME ":" FNR ": no comment above: " $0
        }
        { depth += gsub(/\{/, "{") - gsub(/\}/, "}") }'
}

# ---- sizes ----

sizes() {
    all_sources | xargs awk '
        FNR == 1 { start = 0; head = 0 }
        FNR == 601 { print FILENAME ": over 600 lines" }
        FILENAME ~ /\.h$/ { next }
        /^[A-Za-z_].*\)[ \t]*$/ || /^[A-Za-z_].*\)[ \t]*\{[ \t]*$/ { head = FNR; name = $0 }
        /^\{/ || /\)[ \t]*\{[ \t]*$/ { if (head && FNR - head <= 8 && !start) start = head }
        /^\}/ {
            if (start && FNR - start + 1 > 100)
                print FILENAME ":" start ": " FNR - start + 1 " lines: " substr(name, 1, 70)
            start = 0; head = 0
        }'
}

# ---- forbidden ----

forbidden() {
    sources ptq algorithms cka store | xargs awk -f "$here/strip.awk" | grep -E \
        -e '[^A-Za-z0-9_](exit|_exit|abort|printf|vprintf|puts|putchar|perror|rand|srand|random|srandom)[ ]*\(' \
        -e '[^A-Za-z0-9_](fprintf|vfprintf|fputs|fputc|putc|fwrite)[ ]*\(.*(stdout|stderr)' || true
    find CMakeLists.txt CMakePresets.json tests -name 'CMake*' -o -name '*.cmake' 2>/dev/null |
        xargs grep -nE 'ffast-math|-Ofast' /dev/null || true
    all_sources | xargs awk -f "$here/strip.awk" | grep -E '#[ ]*pragma.*fast-math|optimize[ ]*\(' || true
}

# ---- names ----

names() {
    all_sources | awk -F/ '
        $NF in first { print $0 ": has the name of " first[$NF]; next }
        { first[$NF] = $0 }'
}

case $rule in
    layers | registries | docstrings | sizes | forbidden | names) ;;
    *) echo "lint.sh: no rule $rule" >&2; exit 2 ;;
esac
findings=$("$rule")
[ -n "$findings" ] || exit 0
printf '%s\n' "$findings"
exit 1
