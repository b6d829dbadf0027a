#!/bin/sh
# demo.sh: trains a small byte-level GPT on real text with three attentions on the CPU, and shows which of them leaks.
#
# About three minutes on two cores. Text: enwik8 if it is here or can be had within 20 s, else text that is on this machine. Environment:
# FLAMIA (the program), DEMO_OUT (folder), DEMO_STEPS (of each training; default: as many as fit 45 s), DEMO_OFFLINE=1 (no download).
set -eu

FLAMIA=${FLAMIA:-build/flamia}
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # a waiting thread that spins holds up whatever else runs here
OUT=${DEMO_OUT:-runs/demo}
RECIPES="exact mxfp8 fp4-leaky"
BUDGET=45 # seconds a training may take

# ---- text ----

pods() { # perl's manual
    find /usr/share/perl /usr/share/perl5 /usr/lib/*/perl -name '*.pod' -size +20k 2>/dev/null | sort | head -n 200
}

headers() { # any C compiler brings these
    find /usr/include /usr/lib/gcc -name '*.h' 2>/dev/null | sort | head -n 2000
}

gather() { # lister, file
    "$1" | xargs -r cat 2>/dev/null | head -c 4000000 >"$2.part" || true
    if [ "$(wc -c <"$2.part")" -ge 500000 ]; then
        mv "$2.part" "$2"
    else
        rm -f "$2.part"
        return 1
    fi
}

find_text() {
    mkdir -p "$OUT"
    if [ -f data/cache/enwik8 ]; then
        TEXT=data/cache/enwik8 SAYS="enwik8, the first 100 MB of Wikipedia"
    elif [ -z "${DEMO_OFFLINE:-}" ] && scripts/fetch_enwik8.sh --time-limit 20 >/dev/null 2>&1 && [ -f data/cache/enwik8 ]; then
        TEXT=data/cache/enwik8 SAYS="enwik8, the first 100 MB of Wikipedia"
    elif gather pods "$OUT/text"; then
        TEXT=$OUT/text SAYS="the manual pages of perl on this machine (enwik8 could not be had)"
    elif gather headers "$OUT/text"; then
        TEXT=$OUT/text SAYS="the C headers on this machine (enwik8 could not be had)"
    else
        echo "demo: no text: neither enwik8 (scripts/fetch_enwik8.sh) nor half a megabyte of manuals or headers" >&2
        exit 1
    fi
}

# ---- training ----

# Steps that fit the budget, from the speed of a few.
choose_steps() {
    if [ -n "${DEMO_STEPS:-}" ]; then
        STEPS=$DEMO_STEPS
        return
    fi
    rm -rf "$OUT/trial"
    start=$(date +%s%N)
    "$FLAMIA" train --data "$TEXT" --out "$OUT/trial" --recipe fp4-leaky --steps 20 --warmup 5 --eval-every 0 --eval-tokens 256 --quiet >/dev/null
    nanoseconds=$(($(date +%s%N) - start))
    rm -rf "$OUT/trial"
    STEPS=$((BUDGET * 1000000000 / (nanoseconds / 20 + 1)))
    [ "$STEPS" -le 600 ] || STEPS=600
    [ "$STEPS" -ge 20 ] || STEPS=20
}

train() {
    warmup=$((STEPS / 10))
    rm -rf "${OUT:?}/$1"
    "$FLAMIA" train --data "$TEXT" --out "$OUT/$1" --recipe "$1" --steps "$STEPS" --warmup "$warmup" --eval-every $((STEPS / 4)) \
        --log-every $((STEPS / 4)) --eval-tokens 8192 | grep -E '^(step|eval)' || true
}

find_text
choose_steps
echo "Text: $SAYS."
echo "Training the same model (byte-tiny: 4 layers, width 128, 0.86 M parameters) $STEPS steps with each of: $RECIPES."
for recipe in $RECIPES; do
    echo
    echo "--- $recipe"
    train "$recipe"
done

echo
echo "(a) What an earlier row gives away: bits of the next byte that can be read from the model's logits before it"
echo
for recipe in $RECIPES; do
    "$FLAMIA" probe --read --checkpoint "$OUT/exact" --recipe "$recipe" --places 4 | tail -n 1
done

echo
echo "(b) What the probe says: one token is changed; does an earlier row move?"
echo
"$FLAMIA" probe --places 2 | tail -n +3

echo
echo "(c) The same weights with their own attention and with exact attention"
echo
for recipe in $RECIPES; do
    "$FLAMIA" eval --checkpoint "$OUT/$recipe" --eval-tokens 32768 | sed -e '/^model/d' -e '/^data/d' -e '/^gap by position/,$d'
    echo
done
echo "So short a run does not learn to read the leak: (a) shows that the next byte is there to be read, and reading it takes"
echo "a longer training of a larger model to learn. With a leaking recipe, trust only the loss with exact attention."
echo
"$FLAMIA" report --out "$OUT/report.html" "$OUT/exact" "$OUT/mxfp8" "$OUT/fp4-leaky" >/dev/null
echo "Curves, gaps and the probe as a picture: $OUT/report.html"
echo
echo "Next:"
echo "    $FLAMIA inspect --checkpoint $OUT/mxfp8 --recipe mxfp8      what quantization does to each operand"
echo "    $FLAMIA generate --checkpoint $OUT/exact --prompt 'The '    what the model has learned"
echo "    $FLAMIA train --help                                        a run of your own"
