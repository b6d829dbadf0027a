#!/bin/bash
# crash.sh: kills a run that saves at every step, again and again, and goes on with it.
#
#     FLAMIA=build/flamia tests/crash.sh [KILLS]        200 unless said; about a third of a second each
#
# After every kill the run must have a checkpoint that loads, not older than the one seen before, and in the end its
# weights and moments must be, bit for bit, those of a run that nobody killed.
set -u
kills=${1:-200}
flamia=${FLAMIA:-build/flamia}
export OMP_NUM_THREADS=1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

fail() {
    echo "crash.sh: $*" >&2
    exit 1
}

train() { # STEPS OUT OPTION...: the same run whatever its length, as the rate is constant
    local steps=$1 out=$2
    shift 2
    exec "$flamia" train --data "$folder/text" --out "$out" --steps "$steps" --layers 1 --width 32 --heads 2 \
        --seq-len 16 --batch 2 --lr-schedule constant --warmup 0 --eval-every 0 --eval-tokens 32 --quiet "$@"
}

newest() { # step of the newest checkpoint that loads
    local said
    said=$("$flamia" eval --checkpoint "$folder/run" --eval-tokens 32) || fail "kill $kill: nothing loads"
    [[ $said =~ step_0*([0-9]+) ]] || fail "kill $kill: which checkpoint was loaded? $said"
    echo "${BASH_REMATCH[1]}"
}

for ((i = 0; i < 500; i++)); do echo "line $i of a text to learn"; done > "$folder/text"
before=0
for ((kill = 1; kill <= kills; kill++)); do
    train 1000000 "$folder/run" --resume auto --save-every 1 2> "$folder/said" &
    pid=$!
    if ((kill == 1)); then # the others may hit a start, this one must not: then there is something to lose
        for ((wait = 0; wait < 600; wait++)); do
            compgen -G "$folder/run/checkpoints/step_*" > /dev/null && break
            sleep 0.1
        done
    fi
    sleep "$(printf '0.%03d' $((RANDOM % 400)))"
    kill -KILL "$pid" 2> /dev/null || fail "kill $kill: the run had ended: $(cat "$folder/said")"
    wait "$pid" 2> /dev/null
    step=$(newest) || exit 1
    ((step >= before)) || fail "kill $kill: step $before was saved, step $step is what is left"
    before=$step
done

last=$((before + 3))
(train "$last" "$folder/run" --resume auto) || fail "the run does not go on after $kills kills"
(train "$last" "$folder/whole") || fail "the run that nobody kills fails"
name=$(printf 'checkpoints/step_%08d' "$last")
for file in model.safetensors optimizer.safetensors; do
    cmp "$folder/run/$name/$file" "$folder/whole/$name/$file" || fail "$file is not that of a run that nobody killed"
done
echo "crash.sh: $kills kills, each left a checkpoint that loads; after $last steps the same bits as a run that nobody killed"
