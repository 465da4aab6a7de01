# Finds strongly connected components of a graph: reads edges "FROM TO REASON" and prints each component of more than one node (or
# of a node with an edge to itself) once: its size and nodes, then for each node the edge inside the component with the
# fewest reasons, and these reasons.  -v noun="files" names the nodes, -v title="calls" the edges.
!(($1, $2) in n_reasons) {
    if (!($1 in degree)) { node[++n_nodes] = $1; degree[$1] = 0 }
    if (!($2 in degree)) { node[++n_nodes] = $2; degree[$2] = 0 }
    target[$1, ++degree[$1]] = $2
}
{
    from = $1; to = $2
    sub(/^[^ ]+ [^ ]+ /, "")
    if ((from, to, $0) in known) next
    known[from, to, $0] = 1
    k = ++n_reasons[from, to]
    if (k <= 3) reasons[from, to] = reasons[from, to] (k > 1 ? ", " : "") $0
}

# Tarjan's algorithm with an explicit stack: some awks limit the depth of calls
function visit(root,   top, v, w) {
    top = 1
    path[1] = root
    while (top) {
        v = path[top]
        if (!(v in number)) {
            number[v] = low[v] = ++n_visited
            next_edge[v] = 1
            open[++n_open] = v; is_open[v] = 1
        }
        w = ""
        while (next_edge[v] <= degree[v]) {
            w = target[v, next_edge[v]]
            if (!(w in number)) break
            if (w in is_open && number[w] < low[v]) low[v] = number[w]
            next_edge[v]++
            w = ""
        }
        if (w != "") { path[++top] = w; continue }
        if (low[v] == number[v]) close_component(v)
        top--
        if (top && low[v] < low[path[top]]) low[path[top]] = low[v]
    }
}

function close_component(v,   w) {
    n_components++
    do {
        w = open[n_open--]
        delete is_open[w]
        component[w] = n_components
        size[n_components]++
    } while (w != v)
}

END {
    # sorted by name: the output does not depend on the order of edges
    for (i = 2; i <= n_nodes; i++) {
        name = node[i]
        for (j = i - 1; j >= 1 && node[j] > name; j--) node[j + 1] = node[j]
        node[j + 1] = name
    }
    for (i = 1; i <= n_nodes; i++) if (!(node[i] in number)) visit(node[i])
    for (i = 1; i <= n_nodes; i++) {
        c = component[node[i]]
        if (c in printed || (size[c] == 1 && !((node[i], node[i]) in n_reasons))) continue
        printed[c] = 1
        text = ""
        for (j = i; j <= n_nodes; j++) if (component[node[j]] == c) text = text " " node[j]
        print "cycle of " title " through " size[c] " " noun ":" text
        for (j = i; j <= n_nodes; j++) {
            v = node[j]
            if (component[v] != c) continue
            best = ""
            for (k = 1; k <= degree[v]; k++) {
                w = target[v, k]
                if (component[w] != c) continue
                if (best == "" || n_reasons[v, w] < n_reasons[v, best] ||
                    (n_reasons[v, w] == n_reasons[v, best] && w < best)) best = w
            }
            more = n_reasons[v, best] - 3
            print "    " v " -> " best ": " reasons[v, best] (more > 0 ? " and " more " more" : "")
        }
    }
}
