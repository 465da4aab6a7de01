#!/bin/sh
# What calm consists of, as an SPDX 2.3 document (JSON) on standard output, from packages.txt:  packages/sbom.sh
#
#   calm                          the package that is described
#   rows with a pkg-config module linked into it, with the version that is installed here (NOASSERTION where it is not)
#   other rows of use `build`     tools it is built with; rows of other uses are of tests and no part of it
#
# SOURCE_DATE_EPOCH sets the time; the same tree and packages give the same bytes.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C
version=$(sed -n 's/^project(calm VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
[ -n "$version" ] || { echo "sbom: $root/CMakeLists.txt: no project(calm VERSION ...)" >&2; exit 1; }
created=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)
digest=$(cat "$root/packages.txt" "$root/CMakeLists.txt" | sha256sum | cut -c1-16)

# NAME LINK|TOOL VERSION, one row a package.
rows() {
    awk '!/^#/ && NF >= 3 && $2 == "build" { print $1, $3 }' "$root/packages.txt" | while read -r name probe; do
        case $probe in
            pkg:*) echo "$name LINK $(pkg-config --modversion "${probe#pkg:}" 2>/dev/null || echo NOASSERTION)" ;;
            *) echo "$name TOOL NOASSERTION" ;;
        esac
    done
}

rows | awk -v version="$version" -v created="$created" -v digest="$digest" '
    function package(id, name, number, licence) {
        printf "%s    {\"SPDXID\": \"SPDXRef-%s\", \"name\": \"%s\", \"versionInfo\": \"%s\", ", n++ ? ",\n" : "", id, name, number
        printf "\"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"licenseConcluded\": \"NOASSERTION\", "
        printf "\"licenseDeclared\": \"%s\", \"copyrightText\": \"NOASSERTION\"}", licence
    }
    { name[++rows] = $1; kind[rows] = $2; number[rows] = $3 }
    END {
        if (!rows) { print "sbom: packages.txt names nothing that calm is built with" > "/dev/stderr"; exit 1 }
        printf "{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",\n  \"SPDXID\": \"SPDXRef-DOCUMENT\",\n"
        printf "  \"name\": \"calm-%s\",\n  \"documentNamespace\": \"https://calm.invalid/spdx/calm-%s-%s\",\n", version, version, digest
        printf "  \"creationInfo\": {\"created\": \"%s\", \"creators\": [\"Tool: calm-packages-sbom\"]},\n  \"packages\": [\n", created
        package("calm", "calm", version, "Apache-2.0")
        for (i = 1; i <= rows; i++) package(name[i], name[i], number[i], "NOASSERTION")
        printf "\n  ],\n  \"relationships\": [\n"
        printf "    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-calm\"}"
        for (i = 1; i <= rows; i++)
            if (kind[i] == "LINK")
                printf ",\n    {\"spdxElementId\": \"SPDXRef-calm\", \"relationshipType\": \"DYNAMIC_LINK\", \"relatedSpdxElement\": \"SPDXRef-%s\"}", name[i]
            else
                printf ",\n    {\"spdxElementId\": \"SPDXRef-%s\", \"relationshipType\": \"BUILD_TOOL_OF\", \"relatedSpdxElement\": \"SPDXRef-calm\"}", name[i]
        printf "\n  ]\n}\n"
    }'
