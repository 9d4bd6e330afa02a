#!/usr/bin/env bash
# PRM: a process reward model, learned from episodes of Qwen3-1.7B, scores every turn.
. "$(dirname "$0")/table.sh"
build_training
record "$RUNS/prm/rollouts" "${TEACHER:-hf:Qwen/Qwen3-1.7B}" "${reading[@]}" tasks="$DATA/train" \
    --samples 8 --temperature 1
# Apart, as $MODEL stays the policy to train.
(ENGINE= train prm --episodes "$RUNS/prm/rollouts/episodes.jsonl")
train grpo --recipe tamtrl_reading "${reading[@]}" tasks="$DATA/train" --reward turn-pool \
  --methods PRM model="$RUNS/prm/prm/last"
evaluate
