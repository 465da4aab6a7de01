# Prints each line as "FILE:LINE:CODE" without comments and contents of string literals; included names stay.
# With -v comments=1 prints "FILE:LINE:1" for a line with a comment and "FILE:LINE:0" for one without; skips blank lines.
FNR == 1 { in_comment = 0 }
{
    code = ""
    rest = $0
    commented = in_comment
    if (!in_comment && match(rest, /^[ \t]*#[ \t]*include[ \t]*["<][^">]*[">]/)) {
        code = substr(rest, 1, RLENGTH)
        rest = substr(rest, RLENGTH + 1)
    }
    while (length(rest)) {
        if (in_comment) {
            end = index(rest, "*/")
            if (!end) { rest = ""; break }
            rest = substr(rest, end + 2)
            in_comment = 0
            continue
        }
        if (!match(rest, "[\"'/]")) { code = code rest; break }
        code = code substr(rest, 1, RSTART - 1)
        rest = substr(rest, RSTART)
        two = substr(rest, 1, 2)
        one = substr(rest, 1, 1)
        if (two == "/*") { in_comment = 1; commented = 1; rest = substr(rest, 3) }
        else if (two == "//") { commented = 1; rest = "" }
        else if (one != "/") {
            match(rest, one == "\"" ? "^\"([^\"\\\\]|\\\\.)*\"?" : "^'([^'\\\\]|\\\\.)*'?")
            code = code one one
            rest = substr(rest, RLENGTH + 1)
        } else { code = code one; rest = substr(rest, 2) }
    }
    if (!comments) print FILENAME ":" FNR ":" code
    else if ($0 ~ /[^ \t]/) print FILENAME ":" FNR ":" commented
}
