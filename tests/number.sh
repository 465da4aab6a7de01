# The number after "NAME": in a report of --json, the first one; nothing where there is none (sourced).

number()    # number NAME FILE
{
    tr ',{}' '\n\n\n' <"$2" | sed -n "s/^ *\"$1\": *\([-0-9.e+]*\).*/\1/p" | head -n 1
}
