#!/usr/bin/env bash
# MT-PPO: each turn is paid.
. "$(dirname "$0")/table.sh"
train mt_ppo --recipe mt_ppo_sokoban "${sokoban[@]}"
evaluate
