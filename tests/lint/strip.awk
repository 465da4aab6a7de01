# Print each line as "FILE:LINE:CODE" with comments and the contents of string literals taken out.
FNR == 1 { in_comment = 0 }
{
    code = ""
    rest = $0
    while (length(rest)) {
        if (in_comment) {
            end = index(rest, "*/")
            if (!end) { rest = ""; break }
            rest = substr(rest, end + 2)
            in_comment = 0
            continue
        }
        two = substr(rest, 1, 2)
        one = substr(rest, 1, 1)
        if (two == "/*") { in_comment = 1; rest = substr(rest, 3) }
        else if (two == "//") rest = ""
        else if (one == "\"" || one == "'") {
            match(rest, one == "\"" ? "^\"([^\"\\\\]|\\\\.)*\"?" : "^'([^'\\\\]|\\\\.)*'?")
            code = code one one
            rest = substr(rest, RLENGTH + 1)
        } else { code = code one; rest = substr(rest, 2) }
    }
    print FILENAME ":" FNR ":" code
}
