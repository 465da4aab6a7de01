# A bare Debian 12 for the scripts that source this: make_bare_system [BASE] makes $system, which is gone with the script.
# BASE is a system made before, copied (made there if absent).  Needs root and debootstrap.
system=
scratch=$(mktemp -d)
leave_bare_system() {
    for mounted in dev proc; do
        [ -n "$system" ] && mountpoint -q "$system/$mounted" && umount -l "$system/$mounted"
    done
    # never across a mount that is still there
    rm -rf --one-file-system "$scratch"
}
trap leave_bare_system EXIT
trap 'exit 130' INT TERM

debootstrap_into() {    # debootstrap_into FOLDER
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 2>/dev/null | head -n 1)
    # shellcheck disable=SC2086    # empty: debootstrap's own
    debootstrap --variant=minbase --include=git,ca-certificates bookworm "$1" $mirror >"$scratch/debootstrap.log" 2>&1 ||
        { tail -n 20 "$scratch/debootstrap.log" >&2; exit 1; }
}

make_bare_system() {    # make_bare_system [BASE]
    echo "${0##*/}: a bare Debian 12 ..."
    system=$scratch/system
    if [ -n "${1-}" ]; then
        [ -d "$1/etc" ] || debootstrap_into "$1"
        cp -a "$1" "$system"
    else
        debootstrap_into "$system"
    fi
    # the network as this machine has it
    cp /etc/resolv.conf /etc/hosts "$system/etc/"
    rm -rf "$system/etc/apt/sources.list"
    for part in sources.list sources.list.d apt.conf.d; do
        [ -e "/etc/apt/$part" ] && cp -r "/etc/apt/$part" "$system/etc/apt/"
    done
    mount -t proc proc "$system/proc"
    mount --bind /dev "$system/dev"
}
