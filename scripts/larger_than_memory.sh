#!/usr/bin/env bash
# Trains on a packed set several times larger than the memory that the process may have,
# and again without a limit: the models must be equal, byte by byte.
#
#     scripts/larger_than_memory.sh [LOOKALIKE]
#
# Two limits, one after the other. RLIMIT_DATA counts what a process asks for, its heap
# and stacks, and no mapped file: four times smaller than the data. A control group counts
# also the pages of the file that are in memory, so that the system has to drop them and
# read them again: it needs root and version 1 of control groups, or
#
#     systemd-run --scope -p MemoryMax=64M scripts/larger_than_memory.sh
#
# where version 2 is. In both the data is read in shuffled blocks (--shuffle-window).
# Times of training are those that the models record; their ratio counts.
set -euo pipefail
lookalike=$(realpath "${1:-target/release/lookalike}")
folder=$(mktemp -d)
group=
# shellcheck disable=SC2329 # called by the trap
clean_up() {
    [[ -z $group ]] || rmdir "$group"
    rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"

"$lookalike" data synth --classes 1000 --features 20000 --train 1500000 --test 100 --out made
"$lookalike" data pack made/train.txt --out train.lkp
rm made/train.txt
bytes=$(stat -c %s train.lkp)
limit=$((bytes / 4))
echo "packed: $bytes bytes; limit: $limit bytes"

# Once through all examples, by as few threads as show that their number does not matter.
train() {
    "$lookalike" train train.lkp --model "$1" --preset plain --epochs 1 --hidden 32 --batch 1024 \
        --budget 50 --threads 2 --shuffle-window 50000 --quiet
}

seconds() {
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["progress"]["train-seconds"])' "$1/config.json"
}

compare() {
    cmp free/model.safetensors "$1/model.safetensors"
    cmp free/training.safetensors "$1/training.safetensors"
    python3 -c 'import sys; free, limited = map(float, sys.argv[2:])
print(f"{sys.argv[1]}: equal bytes, {limited:.1f} s of training, {limited / free:.2f} of the time without a limit")' \
        "$2" "$(seconds free)" "$(seconds "$1")"
}

train free
echo "without a limit: $(seconds free) s of training"

(ulimit -d $((limit / 1024)) && train data)
compare data "RLIMIT_DATA of $((limit >> 20)) MiB"

groups=/sys/fs/cgroup/memory
if [[ $EUID -eq 0 && -e $groups/memory.limit_in_bytes ]]; then
    group=$groups$(awk -F: '$2 == "memory" { print $3 }' /proc/self/cgroup)/lookalike-$$
    mkdir "$group"
    echo "$limit" >"$group/memory.limit_in_bytes"
    # Pages that are in memory already are on the account of the group that wrote them.
    sync train.lkp && dd if=train.lkp iflag=nocache count=0 status=none
    (echo $BASHPID >"$group/cgroup.procs" && train group)
    compare group "control group of $((limit >> 20)) MiB, pages of the file among them"
    echo "it was at its limit $(cat "$group/memory.failcnt") times"
else
    echo "NOT RUN: a control group (needs root and version 1 of control groups)"
fi
