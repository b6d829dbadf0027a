#!/bin/sh
# fetch_enwik8.sh: downloads enwik8, the first 100,000,000 bytes of an English Wikipedia dump (Large Text Compression Benchmark).
#
#   scripts/fetch_enwik8.sh [--check] [--time-limit SECONDS] [--url URL] [FILE]
#
# FILE is data/cache/enwik8 if none is named. A file that is there and right is kept. A download that was cut goes on where it stopped (in
# FILE.zip.partial); FILE itself appears only when its size and SHA-256 are right. --check downloads nothing and says whether FILE is whole.
# --time-limit gives up after so many seconds in all, and keeps what has come.
# Exit status: 0 FILE is whole, 1 it is not, 2 the command line is wrong.
set -u

url=http://mattmahoney.net/dc/enwik8.zip
size=100000000
sum=2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8
file=
check=no
limit=0

say() { printf '%s\n' "fetch_enwik8: $*" >&2; }
usage() {
    say "$1"
    say "usage: scripts/fetch_enwik8.sh [--check] [--time-limit SECONDS] [--url URL] [FILE]"
    exit 2
}
fail() {
    say "$1"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
bytes() { wc -c <"$1" | tr -d ' '; }
# Seconds left of the time limit, at least 1; "0" without one.
left() {
    [ "$limit" -gt 0 ] || { echo 0; return; }
    rest=$((begin + limit - $(date +%s)))
    [ "$rest" -ge 1 ] || rest=1
    echo "$rest"
}

# Says what is wrong with file $1; nothing if it is whole.
fault() {
    [ -f "$1" ] || { echo "$1 is not there"; return; }
    found=$(bytes "$1")
    [ "$found" = "$size" ] || { echo "$1 has $found bytes, expected $size"; return; }
    found=$(sha256sum <"$1" | cut -d' ' -f1)
    [ "$found" = "$sum" ] || echo "$1 has SHA-256 $found, expected $sum"
}

while [ $# -gt 0 ]; do
    case $1 in
    --check) check=yes ;;
    --time-limit)
        [ $# -ge 2 ] || usage "--time-limit needs a number of seconds"
        case $2 in '' | *[!0-9]* | ???????*) usage "--time-limit '$2': expected a whole number of seconds, at most 999999" ;; esac
        limit=$2
        shift
        ;;
    --url)
        [ $# -ge 2 ] || usage "--url needs an address"
        url=$2
        shift
        ;;
    --help)
        sed -n '2,11s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    -*) usage "unknown option '$1'" ;;
    *)
        [ -z "$file" ] || usage "'$1': one file was named already"
        file=$1
        ;;
    esac
    shift
done
[ -n "$file" ] || file=$(dirname "$0")/../data/cache/enwik8
have sha256sum || fail "sha256sum is not installed (package coreutils)"

reason=$(fault "$file")
if [ -z "$reason" ]; then
    say "$file is whole"
    exit 0
fi
[ "$check" = no ] || fail "$reason"
begin=$(date +%s)
mkdir -p "$(dirname "$file")" || fail "the folder of $file cannot be made"

zip=$file.zip.partial
plain=$file.partial.$$
trap 'rm -f "$plain"' EXIT
trap 'exit 1' HUP INT TERM

# Each call goes on where $zip ends.
download() {
    if have curl; then
        seconds=$(left)
        connect=10
        [ "$seconds" -eq 0 ] || [ "$seconds" -ge "$connect" ] || connect=$seconds
        curl --fail --location --silent --show-error --connect-timeout "$connect" --max-time "$seconds" --continue-at - \
            --output "$zip" "$url"
    elif have wget; then
        if [ "$limit" -gt 0 ]; then
            timeout "$(left)" wget --quiet --tries=1 --timeout=10 --continue --output-document="$zip" "$url"
        else
            wget --quiet --tries=3 --timeout=10 --continue --output-document="$zip" "$url"
        fi
    else
        fail "neither curl nor wget is installed: apt-get install curl"
    fi
}

# gzip reads a zip file of one member; the size and checksum below judge what comes out, whatever the tools think of the rest.
unpack() {
    if have unzip; then
        unzip -p "$zip" enwik8 >"$plain" 2>/dev/null
    else
        gzip -dc <"$zip" >"$plain" 2>/dev/null
    fi
}

# Is the zip file undamaged, so that the fault lies in writing what it holds?
sound() {
    [ "$(bytes "$plain")" -lt "$size" ] || return 1
    if have unzip; then
        unzip -tqq "$zip" enwik8 >/dev/null 2>&1
    else
        gzip -t <"$zip" >/dev/null 2>&1
    fi
}

# A zip file that is whole already is not asked for again: servers answer "range not satisfiable" then.
if [ ! -s "$zip" ] || ! unpack || [ -n "$(fault "$plain")" ]; then
    before=0
    [ ! -f "$zip" ] || before=$(bytes "$zip")
    [ "$before" -eq 0 ] || say "going on behind byte $before of $url"
    download
    status=$?
    after=0
    [ ! -f "$zip" ] || after=$(bytes "$zip")
    unpack
    reason=$(fault "$plain")
    if [ -n "$reason" ] && [ "$status" -ne 0 ]; then
        [ "$after" -gt 0 ] || rm -f "$zip"
        fail "$url: the download stopped (status $status) after $after bytes; run the same command again to go on"
    fi
    if [ -n "$reason" ] && sound; then
        fail "$zip arrived whole but does not unpack to enwik8: $reason; is the disk full? It is kept: run the command again"
    fi
    if [ -n "$reason" ]; then
        rm -f "$zip"
        fail "$url: what came is not enwik8 ($reason); it was thrown away"
    fi
fi
sync "$plain" 2>/dev/null || sync
mv "$plain" "$file" || fail "$file cannot be written"
rm -f "$zip"
say "$file is whole"
