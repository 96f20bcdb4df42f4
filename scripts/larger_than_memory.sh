#!/usr/bin/env bash
# Trains on a packed set four times larger than the memory that the process may have
# (RLIMIT_DATA, which counts all memory that is not a mapped file), and again without
# a limit: the models must be equal, byte by byte. Usage: scripts/larger_than_memory.sh [LOOKALIKE]
set -euo pipefail
lookalike=$(realpath "${1:-target/release/lookalike}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$lookalike" data synth --classes 1000 --features 20000 --train 1000000 --test 100 --out made
"$lookalike" data pack made/train.txt --out train.lkp
bytes=$(stat -c %s train.lkp)
limit=$((bytes / 4 / 1024))
echo "packed: $bytes bytes; limit: $limit KB"
settings="--preset plain --epochs 1 --hidden 32 --batch 1024 --budget 50 --threads 2 --shuffle-window 50000 -q"
/usr/bin/time -f "without a limit: %e s, %M KB" "$lookalike" train train.lkp --model free $settings
(ulimit -d "$limit" && /usr/bin/time -f "with the limit:  %e s, %M KB" "$lookalike" train train.lkp --model limited $settings)
cmp free/model.safetensors limited/model.safetensors
cmp free/training.safetensors limited/training.safetensors
echo "equal bytes"
