#!/bin/bash
# readme.sh: runs every command that the READMEs show, in order, on a little text, for a few steps and at one place.
#
#     FLAMIA=build/flamia tests/readme.sh FILE...
#
# A command whose line ends in "# refused" must be refused as a usage error; every other one must succeed.
set -uo pipefail
flamia=${FLAMIA:-build/flamia}
export OMP_NUM_THREADS=1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for ((i = 0; i < 2000; i++)); do echo "line $i of a text to learn"; done >"$folder/text"

shortened() { # the commands of files, one a line
    grep -h '^    build/flamia' "$@" | sed -e "s|build/flamia|\"$flamia\"|" -e "s|data/cache/enwik8|$folder/text|" \
        -e "s|runs/|$folder/|g" -e "s|--picture |&$folder/|" -e 's|--places [0-9]*|--places 1|' \
        -e 's|--steps 1000|--steps 4 --warmup 1 --seq-len 64 --eval-tokens 128|' -e 's|" eval |&--eval-tokens 128 |'
}

commands=$(shortened "$@")
[ -n "$commands" ] || { echo "readme.sh: no commands in $*" >&2; exit 1; }
while IFS= read -r line; do
    expected=0
    [[ $line == *'# refused' ]] && expected=2
    status=0
    bash -o pipefail -c "$line" >"$folder/out" 2>"$folder/err" </dev/null || status=$?
    if [ "$status" -ne "$expected" ]; then
        echo "readme.sh: exit code $status where $expected was expected: $line" >&2
        cat "$folder/err" >&2
        exit 1
    fi
done <<<"$commands"
