# Sourced: number NAME FILE prints the first number after "NAME": in a report of --json; nothing if there is none.

number()    # number NAME FILE
{
    tr ',{}' '\n\n\n' <"$2" | sed -n "s/^ *\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1
}
