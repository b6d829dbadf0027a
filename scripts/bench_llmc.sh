#!/bin/bash
# bench_llmc.sh: tokens a second of `flamia train` and of llm.c's CPU program on the same model shape, machine and threads, in turns.
#
#     scripts/bench_llmc.sh PATH_TO_LLM.C [ROUNDS]
#
# PATH is a checkout of https://github.com/karpathy/llm.c. Its train_gpt2.c is copied to a temporary folder, its batch and sequence
# length set to the ones below, and built as its Makefile does (-Ofast). Shape: 6 layers, 384 wide, 6 heads, T = 256, 8 sequences, 256 byte
# values. Each round runs every program once; the medians are printed, and beside them the sgemm rate of the same run.
set -euo pipefail

llmc=${1:?usage: scripts/bench_llmc.sh PATH_TO_LLM.C [ROUNDS]}
rounds=${2:-5}
flamia=${FLAMIA:-build/flamia}
steps=10
recipes="exact mxfp8 nvfp4 fp4"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
[ -f "$llmc/train_gpt2.c" ] || { echo "bench_llmc: $llmc: no train_gpt2.c in it: expected a checkout of llm.c" >&2; exit 1; }
[ -x "$flamia" ] || { echo "bench_llmc: $flamia: not built: run make first" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- llm.c: its program, a model of our shape in its format, its data format ----
cp -r "$llmc/llmc" "$work/"
sed -e 's/int B = 4;/int B = 8;/' -e 's/int T = 64;/int T = 256;/' -e 's/step % 10 == 0/step < 0/' -e 's/step > 0 \&\& step % 20 == 0/0/' \
    -e "s/step <= 40/step <= $steps/" "$llmc/train_gpt2.c" >"$work/train_gpt2.c"
(cd "$work" && ${CC:-gcc} -Ofast -march=native -fno-finite-math-only -fopenmp -DOMP -Wno-unused-result train_gpt2.c -lm -o train_gpt2)
python3 - "$work" <<'PYTHON'
import os, random, struct, sys
work = sys.argv[1]
layers, heads, width, context, vocabulary = 6, 6, 384, 256, 256
random.seed(1)
def tensor(f, count, value=None):
    f.write(struct.pack(f"{count}f", *([value] * count if value is not None else (random.gauss(0, 0.02) for _ in range(count)))))
with open(f"{work}/gpt2_124M.bin", "wb") as f:
    f.write(struct.pack("256i", 20240326, 3, context, vocabulary, layers, heads, width, vocabulary, *[0] * 248))
    tensor(f, vocabulary * width); tensor(f, context * width)
    for count, value in ((width, 1.0), (width, 0.0), (3 * width * width, None), (3 * width, 0.0), (width * width, None), (width, 0.0),
                         (width, 1.0), (width, 0.0), (4 * width * width, None), (4 * width, 0.0), (4 * width * width, None), (width, 0.0)):
        tensor(f, layers * count, value)
    tensor(f, width, 1.0); tensor(f, width, 0.0)
os.makedirs(f"{work}/dev/data/tinyshakespeare")
text = bytes(random.randrange(256) for _ in range(1 << 20))
for part in ("train", "val"):
    with open(f"{work}/dev/data/tinyshakespeare/tiny_shakespeare_{part}.bin", "wb") as f:
        f.write(struct.pack("256i", 20240520, 1, len(text), *[0] * 253))
        f.write(struct.pack(f"{len(text)}H", *text))
with open(f"{work}/text", "wb") as f:
    f.write(text)
PYTHON

# ---- rounds ----
median() { sort -g | awk '{v[NR] = $1} END {print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2)}'; }

run_llmc() { # seconds a step, without the first
    (cd "$work" && ./train_gpt2) | sed -n 's/^step \([0-9]*\): train loss .*(took \([0-9.]*\) ms).*/\1 \2/p' | awk '$1 > 1 {print $2 / 1000}' | median
}

run_flamia() { # recipe: seconds a step, without the first two
    rm -rf "$work/run"
    "$flamia" train --data "$work/text" --out "$work/run" --recipe "$1" --layers 6 --width 384 --heads 6 --seq-len 256 --batch 8 --steps $((steps + 2)) \
        --warmup 1 --eval-every 0 --eval-tokens 256 --quiet >/dev/null
    python3 - "$work/run/log.jsonl" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    record = json.loads(line)
    if record["event"] == "step" and record["step"] > 2:
        print(2048 / record["tokens_per_s"])
PYTHON
}

for ((round = 0; round < rounds; round++)); do
    run_llmc >>"$work/llmc.s"
    for recipe in $recipes; do
        run_flamia "$recipe" | median >>"$work/$recipe.s"
    done
    build/figure_sgemm 2>/dev/null | awk '{print $1}' >>"$work/sgemm.s" || true
done

tokens=2048
base=$(median <"$work/llmc.s")
exact=$(median <"$work/exact.s")
printf '%-14s %12s %12s %12s\n' program "ms a step" "tokens/s" "to llm.c"
awk -v t=$tokens -v s="$base" 'BEGIN {printf "%-14s %12.1f %12.0f %12s\n", "llm.c", 1000 * s, t / s, "1.00"}'
for recipe in $recipes; do
    awk -v t=$tokens -v s="$(median <"$work/$recipe.s")" -v b="$base" -v e="$exact" -v r="$recipe" \
        'BEGIN {printf "%-14s %12.1f %12.0f %12.2f   %.2f x the step of exact\n", r, 1000 * s, t / s, b / s, s / e}'
done
if [ -s "$work/sgemm.s" ]; then
    # 6 FLOPs a weight of every product and token, 12 layers x width x T of causal attention halved
    awk -v t=$tokens -v s="$exact" -v g="$(median <"$work/sgemm.s")" \
        'BEGIN {f = (6 * (6 * 12 * 384 * 384 + 256 * 384) + 6 * 6 * 384 * 256) * t / s / 1e9; printf "exact: %.0f GFLOP/s, sgemm alone %.0f GFLOP/s: %.2f\n", f, g, f / g}'
fi
