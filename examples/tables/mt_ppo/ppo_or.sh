#!/usr/bin/env bash
# PPO-OR (Search-R1): the checkpoint that its authors publish.
MODEL=${MODEL:-PeterJinGo/SearchR1-nq_hotpotqa_train-qwen2.5-7b-em-ppo}
. "$(dirname "$0")/table.sh"
evaluate
