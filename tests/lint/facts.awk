# Prints facts about C sources from the output of strip.awk: one fact per line, fields separated by blanks.
#
#   def     FILE LINE NAME      a .c file defines a function or object that other files can see
#   decl    FILE LINE NAME      a header declares a function
#   tag     FILE LINE NAME      a file defines struct, union or enum NAME, or typedef name NAME
#   use     FILE LINE NAME      the code of a .c or .def file names NAME (calm_* or CALM_*) for the first time; in a header
#                               only within braces, since declarations are no uses
#   again   FILE LINE NAME      the second time
#   macro   FILE LINE MACRO NAME    a header's macro names NAME in its body
#   pasted  FILE LINE NAME      a macro of FILE pastes NAME together from a line of a .def list
#   include FILE LINE TARGET    #include "TARGET"
#
# The script reads declarations without a grammar: a declaration ends at `;` or `{` outside of braces.  A name that a macro of the
# same file pastes together (`LIST_OF_RUNS(runs)` with `calm_inspect_##what(` in the macro) counts as definition or use.

function starts_file() {
    depth = 0; text = ""; directive = ""; n_macros = 0
    split("", seen); split("", seen_tag)
    header = file ~ /\.h$/; list = file ~ /\.def$/
}

# Returns the declared name: the word before the first parenthesis, except attributes and macros with arguments
function function_name(text) {
    gsub(/__attribute__ *\(\([^)]*(\([^)]*\))?[^)]*\)\)/, "", text)
    gsub(/[A-Z][A-Z0-9_]*\([^()]*\)/, "", text)
    if (!match(text, /[A-Za-z_][A-Za-z0-9_]*[ \t]*\(/)) return ""
    text = substr(text, RSTART, RLENGTH - 1)
    sub(/[ \t]+$/, "", text)
    return text
}

# Returns the last identifier before any `=` and `[`
function last_name(text) {
    sub(/=.*/, "", text)
    gsub(/\[[^]]*\]/, "", text)
    sub(/[^A-Za-z0-9_]+$/, "", text)
    sub(/.*[^A-Za-z0-9_]/, "", text)
    return text
}

function is_static(text) { return text ~ /(^|[^A-Za-z0-9_])static([^A-Za-z0-9_]|$)/ }

function tag(name) {
    if (name == "" || name in seen_tag) return
    seen_tag[name] = 1
    print "tag", file, first, name
}

# Prints names in `code` as uses; `owner` is the macro whose body it is
function uses(code, owner,   name, before) {
    before = ""
    while (match(code, /[Cc][Aa][Ll][Mm]_[A-Za-z0-9_]+/)) {
        name = substr(code, RSTART, RLENGTH)
        if (RSTART > 1) before = substr(code, RSTART - 1, 1)
        code = substr(code, RSTART + RLENGTH)
        if (before ~ /[A-Za-z0-9_]/) { before = "_"; continue }
        before = "_"
        if (owner != "") { print "macro", file, line, owner, name; continue }
        seen[name]++
        if (seen[name] == 1) print "use", file, line, name
        else if (seen[name] == 2) print "again", file, line, name
    }
}

# Records the names that `#define MACRO(params) body` pastes together
function paste_macro(name, params, body,   k) {
    for (k = 1; k <= n_macros; k++) if (macro_name[k] == name) break
    if (k > n_macros) n_macros = k
    macro_name[k] = name; macro_params[k] = params; macro_body[k] = body
}

# Prints the name that MACRO(args) makes of each `calm_##a##_##b` in macro k's body, as `kind` or as a definition
function paste(k, args, kind, where,   body, expression, n, m, piece, value, param, i, j, name, after) {
    m = split(macro_params[k], param, /[ \t]*,[ \t]*/)
    split(args, value, /[ \t]*,[ \t]*/)
    body = macro_body[k]
    gsub(/[ \t]*##[ \t]*/, "##", body)
    while (match(body, /calm_[a-z0-9_]*(##[A-Za-z0-9_]+)+/)) {
        expression = substr(body, RSTART, RLENGTH)
        after = substr(body, RSTART + RLENGTH)
        n = split(expression, piece, /##/)
        name = ""
        for (i = 1; i <= n; i++) {
            for (j = 1; j <= m; j++) if (piece[i] == param[j]) break
            name = name (j <= m ? value[j] : piece[i])
        }
        if (kind != "pasted" && after ~ /^[ \t]*\([^;]*\)[ \t]*\{/ && !is_static(substr(body, 1, RSTART)))
            print "def", where, name
        else
            print kind, where, name
        body = after
    }
}

# Handles a preprocessor line with its continuation lines
function preprocess(code,   name, params, target, k, i) {
    if (match(code, /^[ \t]*#[ \t]*include[ \t]*/)) {
        target = included
        if (target == "") return
        print "include", file, line, target
        if (target !~ /\.def$/) return
        for (k = 1; k <= n_macros; k++) {
            ++n_lists
            list_of[n_lists] = target; list_where[n_lists] = file " " line
            list_macro[n_lists] = macro_name[k]; list_params[n_lists] = macro_params[k]; list_body[n_lists] = macro_body[k]
        }
        return
    }
    if (match(code, /^[ \t]*#[ \t]*undef[ \t]+/)) {
        name = substr(code, RLENGTH + 1)
        gsub(/[ \t]/, "", name)
        for (k = 1; k <= n_macros; k++) if (macro_name[k] == name) macro_name[k] = ""
        return
    }
    if (!match(code, /^[ \t]*#[ \t]*define[ \t]+/)) return
    code = substr(code, RLENGTH + 1)
    match(code, /^[A-Za-z0-9_]+/)
    name = substr(code, 1, RLENGTH)
    code = substr(code, RLENGTH + 1)
    if (code ~ /^\(/) {
        i = index(code, ")")
        params = substr(code, 2, i - 2)
        gsub(/^[ \t]+|[ \t]+$/, "", params)
        code = substr(code, i + 1)
        if (code ~ /##/) paste_macro(name, params, code)
    }
    uses(code, header ? name : "")
}

# Handles a declaration that ends with `;`
function declared(text,   name) {
    if (text ~ /(^|[^A-Za-z0-9_])typedef[^A-Za-z0-9_]/) {
        if (match(text, /\([ \t]*\*[ \t]*[A-Za-z_][A-Za-z0-9_]*[ \t]*\)/)) name = last_name(substr(text, RSTART, RLENGTH))
        else if (text ~ /\(/) name = function_name(text)
        else name = last_name(text)
        # `typedef struct x x;` in any file says only that x exists: its definition is elsewhere
        if (text !~ ("(struct|union|enum)[ \t]+" name "[ \t]+" name "[ \t]*$")) tag(name)
        return
    }
    if (header) {
        if (text ~ /\(/ && !is_static(text)) {
            name = function_name(text)
            if (name != "") print "decl", file, first, name
        }
        return
    }
    if (text !~ /\{\}|^[^=]*\(/ && text !~ /(^|[^A-Za-z0-9_])extern[^A-Za-z0-9_]/ &&
        text ~ /[A-Za-z0-9_][ \t*]+[A-Za-z0-9_]+[ \t]*(=|\[|$)/ && text !~ /^[ \t]*(struct|union|enum)[ \t]+[A-Za-z0-9_]+[ \t]*$/)
        defined_object(text)
}

function defined_object(text) {
    if (!header && !is_static(text) && last_name(text) != "") print "def", file, first, last_name(text)
}

# Handles a declaration that continues with `{`; returns 1 if the text after the matching `}` still belongs to it
function opened(text,   name) {
    if (match(text, /(^|[^A-Za-z0-9_])(struct|union|enum)([ \t]+[A-Za-z_][A-Za-z0-9_]*)?[ \t]*$/)) {
        name = substr(text, RSTART, RLENGTH)
        sub(/[ \t]+$/, "", name)
        sub(/.*[^A-Za-z0-9_]/, "", name)
        if (name !~ /^(struct|union|enum)$/) tag(name)
        return 1
    }
    gsub(/__attribute__ *\(\([^)]*(\([^)]*\))?[^)]*\)\)/, "", text)
    if (text ~ /=/) { defined_object(text); return 1 }
    if (text ~ /\(/ && !header && !is_static(text)) {
        name = function_name(text)
        if (name != "") print "def", file, first, name
    }
    return 0
}

{
    at = index($0, ":")
    if (substr($0, 1, at - 1) != file) { file = substr($0, 1, at - 1); starts_file() }
    code = substr($0, at + 1)
    at = index(code, ":")
    line = substr(code, 1, at - 1)
    code = substr(code, at + 1)

    if (directive != "" || code ~ /^[ \t]*#/) {
        included = ""    # <...> is not of this tree
        if (match(code, /^[ \t]*#[ \t]*include[ \t]*"/)) {
            included = substr(code, RLENGTH + 1)
            sub(/".*/, "", included)
        }
        if (code ~ /\\[ \t]*$/) { sub(/\\[ \t]*$/, " ", code); directive = directive code; next }
        preprocess(directive code)
        directive = ""
        next
    }
    if (file ~ /^tests\// && file !~ /^tests\/support\//) { uses(code, ""); next }
    if (list && match(code, /^[A-Z][A-Z0-9_]*\(/)) {
        ++n_rows
        row_list[n_rows] = file; row_macro[n_rows] = substr(code, 1, RLENGTH - 1)
        row_args[n_rows] = substr(code, RLENGTH + 1)
        sub(/[ \t]*\).*/, "", row_args[n_rows])
    }
    if (!header) uses(code, "")
    else if (depth > 0) uses(code, "")
    if (depth == 0 && n_macros && match(code, /^[A-Z][A-Z0-9_]*\(/)) {
        for (k = 1; k <= n_macros; k++) if (macro_name[k] == substr(code, 1, RLENGTH - 1)) {
            args = substr(code, RLENGTH + 1)
            sub(/[ \t]*\).*/, "", args)
            paste(k, args, "use", file " " line)
        }
    }
    if (depth > 0 && match(code, /(struct|union|enum)[ \t]+[A-Za-z_][A-Za-z0-9_]*[ \t]*\{/)) {
        name = substr(code, RSTART, RLENGTH)
        sub(/^[a-z]+[ \t]+/, "", name); sub(/[ \t]*\{$/, "", name)
        first = line
        tag(name)
    }
    while (length(code)) {
        if (depth > 0) {
            if (!match(code, /[{}]/)) break
            depth += substr(code, RSTART, 1) == "{" ? 1 : -1
            code = substr(code, RSTART + 1)
            if (depth == 0) text = keep ? text "{}" : ""
            continue
        }
        if (text ~ /^[ \t]*$/) first = line
        if (!match(code, /[{};]/)) { text = text " " code; break }
        text = text " " substr(code, 1, RSTART - 1)
        stop = substr(code, RSTART, 1)
        code = substr(code, RSTART + 1)
        if (stop == ";") { declared(text); text = "" }
        else if (stop == "}") text = ""    # of extern "C"
        else if (text ~ /(^|[^A-Za-z0-9_])extern[ \t]*""[ \t]*$/) text = ""
        else { keep = opened(text); depth = 1 }
    }
}

END {
    for (i = 1; i <= n_lists; i++) {
        macro_params[0] = list_params[i]; macro_body[0] = list_body[i]
        for (j = 1; j <= n_rows; j++)
            if (row_list[j] == list_of[i] && row_macro[j] == list_macro[i]) paste(0, row_args[j], "pasted", list_where[i])
    }
}
