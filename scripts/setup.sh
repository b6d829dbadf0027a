#!/bin/sh
# setup.sh: installs the packages that building and testing need, where they are missing.
#
# As root it installs them with apt; as anyone else it prints the line to run and exits with 1. Does nothing, quickly, when
# everything is there.
set -eu

missing=""
need() { # package, then a test that it is there
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}

header() { # header library...: can a program that includes the header be linked?
    name=$1
    shift
    printf '#include <stddef.h>\n#include <stdint.h>\n#include <stdbool.h>\n#include <stdio.h>\n#include <%s>\nint main(void) { return 0; }\n' "$name" |
        ${CC:-gcc} -x c - -o /dev/null "$@"
}

need make command -v make
if command -v "${CC:-gcc}" >/dev/null 2>&1; then
    need libopenblas-openmp-dev header cblas.h -lopenblas
    need libjansson-dev header jansson.h -ljansson
    need check header check.h -lcheck
else
    missing="$missing gcc libc6-dev libopenblas-openmp-dev libjansson-dev check"
fi
need pkg-config command -v pkg-config

[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: missing:$missing (Debian's names); install them with this system's package manager" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages; install them with:" >&2
    echo "    sudo apt-get install -y$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
