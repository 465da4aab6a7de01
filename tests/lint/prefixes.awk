# Makes the table of prefixes from the "decl" facts of headers: "PREFIX FOLDER" per line, unsorted.
#
# calm_<word>_ goes to the folder that declares most functions with it.  Functions of other folders get the
# shortest longer prefix that only their folder uses, or their whole name.  lint.sh puts layer_of() before this program.
NF >= 4 && !($4 in home) {
    name = $4
    home[name] = f = layer_of($2)
    if (!(f in known)) { known[f] = 1; folder[++n_folders] = f }
    parent = ""
    for (i = 1; i <= length(name); i++) {
        if (substr(name, i, 1) != "_" || i == length(name)) continue
        prefix = substr(name, 1, i)
        if (!(prefix in n_below)) { n_below[prefix] = 0; if (parent != "") below[parent, ++n_below[parent]] = prefix }
        count[prefix, f]++
        parent = prefix
    }
    if (parent == "") row[name] = f
    else below[parent, ++n_below[parent]] = name
}

# Makes the rows for names that begin with `prefix`, whose functions belong to `owner` so far
function divide(prefix, owner,   i, n_owners, most) {
    if (prefix in home) {
        if (home[prefix] != owner) row[prefix] = home[prefix]
        return
    }
    most = ""
    for (i = 1; i <= n_folders; i++) {
        if (!((prefix, folder[i]) in count)) continue
        n_owners++
        if (most == "" || count[prefix, folder[i]] > count[prefix, most] ||
            (count[prefix, folder[i]] == count[prefix, most] && folder[i] < most)) most = folder[i]
    }
    if (prefix != "calm_" && most != owner) { row[prefix] = most; owner = most }
    if (n_owners > 1) for (i = 1; i <= n_below[prefix]; i++) divide(below[prefix, i], owner)
}

END {
    divide("calm_", "")
    for (prefix in row) print prefix, row[prefix]
}
