# What scripts share that time the program (sourced; $1: the folder for what they make): $folder, CALM_HOME, and the programs $calm
# and $make, which CALM and MAKE in the environment replace.

need()    # need PROGRAM...: ends the script where one is not there
{
    for program; do
        [ -x "$program" ] || { echo "$(basename "$0"): no $program" >&2; exit 2; }
    done
}

mkdir -p "$1"
folder=$(cd "$1" && pwd)
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm}
make=${MAKE:-$CALM_HOME/build/release/tests/make_checkpoint}
need "$calm" "$make" /usr/bin/time
