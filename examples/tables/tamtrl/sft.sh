#!/usr/bin/env bash
# SFT: on the right episodes of Qwen3-14B.
. "$(dirname "$0")/table.sh"
build_training
record "$RUNS/sft/traces" "${TEACHER:-hf:Qwen/Qwen3-14B}" "${reading[@]}" tasks="$DATA/train"
train sft --recipe tamtrl_sft "${reading[@]}" --teacher "$RUNS/sft/traces/episodes.jsonl"
evaluate
