#!/usr/bin/env bash
# PPO (StepSearch): the checkpoint that its authors publish.
MODEL=${MODEL:-Zill1/StepSearch-7B-Base}
. "$(dirname "$0")/table.sh"
evaluate
