#!/bin/sh
# Checks one rule over the tree:  lint.sh RULE [ROOT]
#
#   layers       includes follow layers.txt, a table without a cycle; only one file includes a third-party header
#   cycles       neither the includes between folders nor the calls between .c files of the product have a cycle
#   rooms        only its folder and tests include a header *_impl.h; other folders include of a room (rooms.txt) only the
#                header with the room's name; a room has at most as many lines as rooms.txt says
#   registries   every line of a .def list has its file, every such file its line; every test is registered
#   docstrings   every function that a header declares has a comment: above it, above its group of adjacent
#                lines, or behind an earlier line of the group
#   comments     in some folders enough lines of the .c files have a comment (comment_floors below)
#   sizes        .c and .h files up to 600 lines, model families up to 60, functions up to 100
#   columns      lines of .c, .h and .def files up to 120 characters
#   skips        a test's SKIP line says what it needs to run
#   forbidden    below cli/ nothing prints, exits or calls rand(); no -ffast-math anywhere
#   names        no two source files share a name
#   tags         a struct, union, enum or typedef is defined in one file
#   prefixes     a function that a header declares has its folder's prefix (prefixes.txt)
#   dead         a function that a header declares, except calm.h and *_impl.h, is used by another product file
#   untested     a .c file below cli/ has its test, or a line in tests/covered.txt
#   kinds        outside of the model's folders no product file names a role or a job, because kinds of sublayers change
#   words        pages have at most as many hand-written words as words.txt says, and no phrase of banned_words.txt
#
# Prints one line per finding, with an indented explanation; exit status 1 if there is one.
#
#   lint.sh prefixes --update    writes prefixes.txt from the headers, after functions or files have moved.  The diff
#                                of the table shows which functions changed folders.
set -eu
rule=${1:?usage: lint.sh RULE [--update] [ROOT]}
shift
update=false
[ "${1-}" != --update ] || { update=true; shift; }
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
export LC_ALL=C    # bytes, the same in every awk

# Lists source files under the given folders that exist, except data of tests.
sources() {
    for path in "$@"; do
        [ ! -e "$path" ] || find "$path" -name '*.[ch]' ! -path 'tests/data/*'
    done | sort
}
product='ptq algorithms cka store cli'
all_sources() {
    sources calm.h $product tests
}
# Lists .def files of the same folders, which X-macros read.
lists() {
    for path in "$@"; do
        [ ! -e "$path" ] || find "$path" -name '*.def' ! -path 'tests/data/*'
    done | sort
}

# Prints the path of a rule's table: in the tree, else next to this script.
table() {
    if [ -e "tests/lint/$1" ]; then echo "tests/lint/$1"; else echo "$here/$1"; fi
}

# An awk function that returns the folder of a path, as the tables name it.
layer_of='function layer_of(path,   part) { split(path, part, "/"); return part[1] (part[1] == "ptq" ? "/" part[2] : "") }'

# Prints facts.awk's facts about the files on standard input
facts() {
    xargs awk -f "$here/strip.awk" | awk -f "$here/facts.awk"
}
# components NOUN TITLE: prints the cycles among the edges on standard input
components() {
    awk -v noun="$1" -v title="$2" -f "$here/components.awk"
}

# ---- layers ----

layers() {
    # the table itself: every listed folder has a row, and the table has no cycle
    awk '
        /^#/ || NF == 0 { next }
        { known[$1] = 1; for (i = 2; i <= NF; i++) { from[++n] = $1; to[n] = $i; at[n] = FNR } }
        END {
            for (i = 1; i <= n; i++) {
                where = "layers.txt:" at[i] ": "
                if (to[i] == "*") { if (from[i] != "cli" && from[i] != "tests") print where from[i] " may not include all" }
                else if (to[i] == "cli" || to[i] == "tests") print where "nothing may include " to[i]
                else if (!(to[i] in known)) print where to[i] " has no row"
            }
        }' "$(table layers.txt)"
    awk '!/^#/ && NF { for (i = 2; i <= NF; i++) if ($i != "*") print $1, $i, "layers.txt:" FNR }' \
        "$(table layers.txt)" | components folders permissions
    all_sources | xargs awk -v table="$(table layers.txt)" -v embedded="$(sed -n -e 's/^embed(.* \([^ ]*\))$/\1/p' -e 's/.*HEADER=.*generated\/\([a-z_]*\.h\).*/\1/p' CMakeLists.txt 2>/dev/null | tr '\n' ' ')" "$layer_of"'
        BEGIN {
            while ((getline line < table) > 0) {
                n = split(line, word, " ")
                if (n == 0 || line ~ /^#/) continue
                known[word[1]] = 1
                for (i = 2; i <= n; i++) may[word[1], word[i]] = 1
            }
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
            if (header !~ /^(cblas\.h|lapacke\.h|jansson\.h|pcre2\.h|utf8proc\.h|sqlite3\.h|openssl\/\*|curl\/\*|zlib\.h|omp\.h|mpi\.h|argp\.h|check\.h)$/) next
            if (header == "openssl/*" && layer_of(FILENAME) == "ptq/sign") next    # keys and certificates; digests are sha256.c
            if (!(header in user)) user[header] = FILENAME
            else if (user[header] != FILENAME)
                print FILENAME ":" FNR ": <" header "> belongs to " user[header] " alone"
        }'
}

# ---- cycles ----

cycles() {
    all_sources | facts | awk "$layer_of"'
        $1 == "include" && $4 ~ /\/|^calm\.h$/ && layer_of($2) != layer_of($4) { print layer_of($2), layer_of($4), $2 ":" $3 }' |
        components folders includes
    # Lists (X-macros over a .def) make no edges: a registry names its entries so that nothing else has to.
    # A macro of a header counts as the names in its body.
    sources $product | facts | awk '
        $1 == "def" && $4 ~ /^calm_/ { definer[$4] = $2 }
        $1 == "macro" { in_macro[$4, ++n_in[$4]] = $5 }
        $1 == "use" && $2 ~ /\.c$/ { file[++n] = $2; name[n] = $4 }
        function edges(from, name, depth,   i) {
            if (name in definer && definer[name] != from) print from, definer[name], name
            if (depth < 8) for (i = 1; i <= n_in[name]; i++) edges(from, in_macro[name, i], depth + 1)
        }
        END { for (i = 1; i <= n; i++) edges(file[i], name[i], 0) }' |
        components files calls
}

# ---- rooms ----

rooms() {
    sources $product | xargs awk -v rooms="$(awk '!/^#/ && NF { print $1 }' "$(table rooms.txt)" | tr '\n' ' ')" '
        /^[ \t]*#[ \t]*include[ \t]*"/ {
            split($0, quoted, "\"")
            target = quoted[2]
            from = FILENAME; sub(/\/[^\/]*$/, "", from)
            to = target; sub(/\/[^\/]*$/, "", to)
            door = to; sub(/.*\//, "", door)
            where = FILENAME ":" FNR ": "
            if (from == to) next
            if (target ~ /_impl\.h$/) print where target " is for " to " alone"
            else if (index(" " rooms " ", " " to " ") && target != to "/" door ".h")
                print where target ": the neighbours of " to " include " to "/" door ".h"
        }'
    awk '!/^#/ && NF { print $1, $2 }' "$(table rooms.txt)" | while read -r room most; do
        [ -d "$room" ] || continue
        n=$(cat "$room"/*.[ch] | wc -l)
        [ "$n" -le "$most" ] || echo "$room: $n lines, more than the $most of rooms.txt: the design wants another room"
    done
}

# ---- registries ----

# registry LIST MACRO FOLDER SED GLOBS...: compares the `MACRO(...)` lines of LIST with FOLDER; SED turns a line into a file name
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
    registry ptq/arch/arch.def CALM_ARCH ptq/families '\([a-z0-9_]*\).*/arch_\1.c' 'arch_*.c'
    registry ptq/arch/kinds.def CALM_KIND ptq/kinds '\([a-z0-9_]*\).*/kind_\1.c' 'kind_*.c'
    registry ptq/weights/qformats.def CALM_QFORMAT ptq/weights '\([a-z0-9_]*\).*/qformat_\1.c' 'qformat_*.c'
    registry ptq/export/export.def CALM_EXPORT ptq/export '\([a-z0-9_]*\).*/export_\1.c' 'export_*.c'
    registry cli/commands.def CALM_COMMAND cli '\([a-z0-9_]*\).*/cmd_\1.c' 'cmd_*.c'
    for file in $(sources tests); do
        folder=${file%/*} name=${file##*/}
        case $folder in tests/support | tests/fuzz | tests/library) continue ;; esac
        grep -q '^int main(' "$file" || continue
        grep -qw "${name%.c}" "$folder/tests.cmake" 2>/dev/null || echo "$file: is not in $folder/tests.cmake"
    done
}

# ---- docstrings ----

docstrings() {
    sources calm.h $product | grep '\.h$' | xargs awk '
        FNR == 1 { documented = 0; depth = 0; in_comment = 0 }
        /^extern "C"/ { next }
        in_comment { if (/\*\//) { in_comment = 0; documented = 1 } next }
        /^[ \t]*\/\*/ { if (/\*\//) documented = 1; else in_comment = 1; next }
        /^[ \t]*$/ { documented = 0; next }
        /^#/ { next }
        /;[ \t]*\/\*/ && depth == 0 { documented = 1 }
        depth == 0 && /^[A-Za-z_].*\(/ && !/^typedef/ && !documented {
            print FILENAME ":" FNR ": no comment above: " $0
        }
        { depth += gsub(/\{/, "{") - gsub(/\}/, "}"); if (depth < 0) depth = 0 }'
}

# ---- comments ----

# Least percentage of non-blank lines of a folder's .c files that have a comment (a comment line, or code followed by
# a comment).  Folders that do not exist are skipped.
comment_floors='ptq/search 12  ptq/choose 12  ptq/estimate 12  ptq/stored 12  ptq/calib 12  ptq/weights 12  ptq/layers 12  ptq/kinds 12  ptq/gguf 12  ptq/model 12  ptq/plan 12  algorithms 12'

comments() {
    sources $product | grep '\.c$' | xargs awk -v comments=1 -f "$here/strip.awk" |
        awk -F: -v floors="$comment_floors" '
            { folder = $1; sub(/\/[^\/]*$/, "", folder); n_lines[folder]++; n_comments[folder] += $3 }
            END {
                n = split(floors, floor, " ")
                for (i = 1; i < n; i += 2) {
                    folder = floor[i]
                    if (!n_lines[folder] || n_comments[folder] * 100 >= floor[i + 1] * n_lines[folder]) continue
                    printf "%s: %.1f %% of the lines have a comment (%d of %d), less than %s %%\n", folder,
                        100 * n_comments[folder] / n_lines[folder], n_comments[folder], n_lines[folder], floor[i + 1]
                }
            }'
}

# ---- sizes ----

sizes() {
    all_sources | xargs awk '
        FNR == 1 { start = 0; head = 0 }
        FNR == 601 { print FILENAME ": over 600 lines" }
        FNR == 61 && FILENAME ~ /^ptq\/families\/arch_/ { print FILENAME ": over 60 lines" }
        FILENAME ~ /\.h$/ { next }
        /^[A-Za-z_].*\)[ \t]*$/ || /^[A-Za-z_].*\)[ \t]*\{[ \t]*$/ { head = FNR; name = $0 }
        /^\{/ || /\)[ \t]*\{[ \t]*$/ { if (head && FNR - head <= 8 && !start) start = head }
        /^\}/ {
            if (start && FNR - start + 1 > 100)
                print FILENAME ":" start ": " FNR - start + 1 " lines: " substr(name, 1, 70)
            start = 0; head = 0
        }'
}

# ---- columns ----

# Counts characters: bytes that do not continue a character in UTF-8.
columns() {
    { all_sources; lists $product tests; } | xargs awk '
        length($0) > 120 {
            text = $0
            gsub(/[\200-\277]/, "", text)
            if (length(text) > 120) print FILENAME ":" FNR ": " length(text) " columns"
        }'
}

# ---- skips ----

# tests/run lists SKIP lines at its end: the reason, and in brackets or after "needs" what the test needs to run.
skips() {
    find tests -type f \( -name '*.sh' -o -name '*.py' -o -name '*.c' \) ! -path 'tests/data/*' ! -path 'tests/lint/*' |
        sort | xargs awk '/(echo|puts|print).*SKIP: / && !/SKIP: .*(\(|needs )/ {
            print FILENAME ":" FNR ": a skipped test does not say what would run it" }'
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

# ---- kinds ----

kinds() {
    sources $product | grep -vE '^ptq/(arch|families|weights|layers|kinds|gguf|model)/' | xargs awk -f "$here/strip.awk" |
        grep -E '[^A-Za-z0-9_]CALM_(ROLE|JOB|PLAIN)_[A-Z0-9_]+' | grep -vE 'CALM_PLAIN_(TENSOR|DIMS|FAMILY_NORM|RMS_NORM)' || true
}

# ---- names ----

names() {
    all_sources | awk -F/ '
        $NF in first { print $0 ": has the name of " first[$NF]; next }
        { first[$NF] = $0 }'
}

# ---- tags ----

# Counts names in headers, and names calm_* in .c files; other names of a .c file are local.  A typedef that only says
# that a struct exists defines nothing.
tags() {
    sources calm.h $product tests/support | facts | awk '
        $1 != "tag" || ($2 ~ /\.c$/ && $4 !~ /^calm_/) { next }
        $4 in first { print $2 ":" $3 ": " $4 " is defined in " first[$4] " too"; next }
        { first[$4] = $2 ":" $3 }'
}

# ---- prefixes ----

# A row of prefixes.txt that ends in _ is a prefix, others are whole names; the longest row that fits counts.
prefixes() {
    declared=$(sources $product | grep '\.h$' | facts | grep '^decl ' || true)
    if $update; then
        mkdir -p tests/lint
        {
            sed -n '/^#/p' "$(table prefixes.txt)"
            printf '%s\n' "$declared" | awk "$layer_of $(cat "$here/prefixes.awk")" | sort
        } >tests/lint/prefixes.new
        mv tests/lint/prefixes.new tests/lint/prefixes.txt
        return
    fi
    printf '%s\n' "$declared" | awk -v table="$(table prefixes.txt)" "$layer_of"'
        BEGIN {
            while ((getline line < table) > 0) {
                row++
                if (split(line, word, " ") == 0 || line ~ /^#/) continue
                if (word[1] in folder) print "prefixes.txt:" row ": " word[1] " is listed twice"
                folder[word[1]] = word[2]
            }
        }
        NF < 4 { next }
        {
            prefix = $4
            while (prefix != "" && !(prefix in folder)) {
                sub(/_$/, "", prefix)
                if (!sub(/[^_]*$/, "", prefix)) prefix = ""
            }
            if (prefix == "") print $2 ":" $3 ": " $4 " has no prefix of prefixes.txt"
            else if (folder[prefix] != layer_of($2))
                print $2 ":" $3 ": " $4 " has a prefix of " folder[prefix] " (" prefix ")"
        }'
}

# ---- dead ----

# Functions of calm.h are for users.  Uses are in code outside the defining file: in .c files, in braces in
# headers, in used macros, in .def lists and in names that a macro pastes together from their lines.
dead() {
    { all_sources; lists $product tests; } | facts | awk '
        $1 == "decl" && $2 == "calm.h" { public[$4] = 1 }
        # *_impl.h is shared by the files of a folder and their tests
        $1 == "decl" && $2 !~ /^tests\// && $2 !~ /_impl\.h$/ { name[++n] = $4; where[n] = $2 ":" $3 }
        $1 == "def" && $2 !~ /^tests\// { definer[$4] = $2 }
        $1 == "again" { twice[$2, $4] = 1 }    # once is the definition
        $1 == "macro" { in_macro[$4, ++n_in[$4]] = $5 }
        $1 == "use" || $1 == "pasted" { from[++n_uses] = $2; used[n_uses] = $4 }
        function note(from, name, depth,   i) {
            if (name in definer && definer[name] == from) { if (depth || (from, name) in twice) in_own[name] = 1 }
            else if (from ~ /^tests\//) in_tests[name] = 1
            else in_product[name] = 1
            if (depth < 8) for (i = 1; i <= n_in[name]; i++) note(from, in_macro[name, i], depth + 1)
        }
        END {
            for (i = 1; i <= n_uses; i++) note(from[i], used[i], 0)
            for (i = 1; i <= n; i++) {
                f = name[i]
                if (!(f in definer)) { print where[i] ": " f ": is defined nowhere"; continue }
                if (f in public || f in in_product) continue
                print where[i] ": " f ": " (f in in_tests ? "test-only" : "dead") \
                    (f in in_own ? " outside of " definer[f] : "")
            }
        }'
}

# ---- untested ----

# tests/covered.txt: one line per file without a separate test: its path, the test that covers it, the reason.
untested() {
    {
        [ ! -e tests/covered.txt ] || sed 's/^/covered /' tests/covered.txt
        find tests -name 'test_*.c' 2>/dev/null | sed 's/^/test /'
        find tests -type f 2>/dev/null | sed 's/^/exists /'
        sources ptq algorithms cka store | sed -n 's/^.*\.c$/source &/p'
    } | awk '
        function base(path) { sub(/.*\//, "", path); return path }
        $1 == "covered" { row++; if (NF > 1 && $2 !~ /^#/) { path[++n] = $2; by[n] = $3; at[n] = row } }
        $1 == "test" && $2 ~ /^tests\/[^\/]*\/[^\/]*$/ { own[base($2)] = $2 }
        $1 == "exists" { exists[$2] = 1 }
        $1 == "source" { source[++n_sources] = $2; is_source[$2] = 1 }
        END {
            for (i = 1; i <= n; i++) {
                where = "tests/covered.txt:" at[i] ": "
                test = "test_" base(path[i])
                if (path[i] in seen) print where path[i] " is listed twice"
                seen[path[i]] = 1
                if (!(path[i] in is_source)) print where "there is no " path[i]
                else if (test in own) print where path[i] " has " own[test]
                if (by[i] == "") print where "names no test of " path[i]
                else if (!(by[i] in exists)) print where "there is no " by[i]
            }
            for (i = 1; i <= n_sources; i++)
                if (!(("test_" base(source[i])) in own) && !(source[i] in seen))
                    print source[i] ": has neither tests/*/test_" base(source[i]) " nor a line in tests/covered.txt"
        }'
}

# ---- words ----

# Lists pages that are hand-written, in whole or in part.
pages() {
    find README.md CONTRIBUTING.md ARCHITECTURE.md CHANGELOG.md docs -name '*.md' 2>/dev/null | sort
}

# Files whose prose must not have the phrases of banned_words.txt: pages, and comments and strings of source folders.
# CALM_LINT_PROSE names other files.
prose_sources='algorithms cka cli ptq store'
prose_files() {
    if [ -n "${CALM_LINT_PROSE-}" ]; then
        find $CALM_LINT_PROSE -type f | sort
        return
    fi
    pages
    # shellcheck disable=SC2086 # several folders
    [ -z "$prose_sources" ] || sources $prose_sources
}

# words.txt: PAGE, its largest number of hand-written words, and the parts between <!-- NAME --> and <!-- /NAME --> that a
# program writes; the row "total" is for all pages.  A word has a letter or a digit.
words() {
    pages | awk -v table="$(table words.txt)" '
        BEGIN {
            while ((getline line < table) > 0) {
                row++
                n = split(line, word, " ")
                if (n == 0 || line ~ /^#/) continue
                if (word[1] in limit) print "words.txt:" row ": " word[1] " is listed twice"
                limit[word[1]] = word[2]; at[word[1]] = row
                for (i = 3; i <= n; i++) made[word[1], word[i]] = 1
            }
        }
        {
            page = $0; seen[page] = 1; count = 0; inside = ""
            while ((getline line < page) > 0) {
                if (line ~ /^<!-- \/?[a-z_]+ -->$/) {
                    mark = line; gsub(/[^a-z_]/, "", mark)
                    if (line ~ /\//) { if (mark == inside) inside = "" }
                    else if ((page, mark) in made) inside = mark
                    continue
                }
                if (inside != "") continue
                n = split(line, word, " ")
                for (i = 1; i <= n; i++) count += word[i] ~ /[A-Za-z0-9]/
            }
            close(page)
            total += count
            if (inside != "") print page ": <!-- " inside " --> has no end"
            if (!(page in limit)) print page ": has no row in words.txt (" count " words)"
            else if (count > limit[page]) print page ": " count " words, more than the " limit[page] " of words.txt:" at[page]
        }
        END {
            for (page in limit) if (page != "total" && !(page in seen)) print "words.txt:" at[page] ": there is no " page
            if ("total" in limit && total > limit["total"]) print "all pages: " total " words, more than the " limit["total"] " of words.txt:" at["total"]
        }'
    prose_files | while read -r file; do
        case $file in *.md) kind=page ;; *) kind=source ;; esac
        awk -v kind="$kind" -v table="$(table banned_words.txt)" -v made="$(awk -v page="$file" '
            $1 == page { for (i = 3; i <= NF; i++) printf "%s ", $i }' "$(table words.txt)")" '
            BEGIN {
                while ((getline line < table) > 0) {
                    split_at = index(line, " = ")
                    if (line ~ /^#/ || !split_at) continue
                    pattern[++n] = "(^|[^a-z_])(" substr(line, 1, split_at - 1) ")([^a-z_]|$)"
                    instead[n] = substr(line, split_at + 3)
                }
            }
            # the prose of a line: in a page all except code, in a source comments and strings
            function prose(line,   out, i) {
                if (kind == "page") {
                    if (line ~ /^ *```/) { code = !code; return "" }
                    if (code) return ""
                    gsub(/`[^`]*`/, "``", line)
                    gsub(/\]\([^)]*\)/, "]", line)
                    return line
                }
                out = ""
                while (line != "") {
                    if (comment) {
                        i = index(line, "*/")
                        if (!i) return out " " line
                        out = out " " substr(line, 1, i - 1); line = substr(line, i + 2); comment = 0
                    } else if (match(line, /\/\*|\/\/|"([^"\\]|\\.)*"/)) {
                        i = substr(line, RSTART, RLENGTH)
                        line = substr(line, RSTART + RLENGTH)
                        if (i == "/*") comment = 1
                        else if (i == "//") return out " " line
                        else out = out " " substr(i, 2, length(i) - 2)
                    } else break
                }
                return out
            }
            # generated parts have the words of their sources, which are checked there
            kind == "page" && /^<!-- \/?[a-z_]+ -->$/ {
                mark = $0; gsub(/[^a-z_]/, "", mark)
                if (index(" " made, " " mark " ")) inside = $0 !~ /\//
                next
            }
            inside { next }
            {
                text = tolower(prose($0))
                sub(/^[ \t*]+/, "", text)
                joined = tail " " text    # phrases that two lines share
                for (i = 1; i <= n; i++)
                    for (from = 1; match(substr(joined, from), pattern[i]); from += RSTART) {
                        if (from + RSTART + RLENGTH - 2 <= length(tail) + 1) continue    # of the line before
                        found = substr(joined, from + RSTART - 1, RLENGTH); gsub(/^[^a-z]+|[^a-z]+$/, "", found)
                        print FILENAME ":" FNR ": \"" found "\": write " instead[i]
                        break
                    }
                count = split(text, word, " ")
                tail = count > 1 ? word[count - 1] " " word[count] : count ? tail " " word[count] : ""
                if (count == 1) { count = split(tail, word, " "); tail = count > 1 ? word[count - 1] " " word[count] : word[1] }
            }' "$file"
    done
}

case $rule in
    layers | rooms | cycles | registries | docstrings | comments | sizes | columns | skips) ;;
    forbidden | names | tags | prefixes | dead | untested | words | kinds) ;;
    *) echo "lint.sh: no rule $rule" >&2; exit 2 ;;
esac
if $update && [ "$rule" != prefixes ]; then
    echo "lint.sh: $rule has no table to update" >&2
    exit 2
fi
# A tool that fails in the middle of a pipe is a finding too: prints its message.
status=0
findings=$("$rule" 2>&1) || status=$?
[ "$status" = 0 ] || findings="${findings:+$findings
}lint.sh: $rule ended with status $status"
[ -n "$findings" ] || exit 0
printf '%s\n' "$findings"
exit 1
