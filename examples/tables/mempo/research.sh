#!/usr/bin/env bash
# ReSearch: the checkpoint that its authors publish.
MODEL=${MODEL:-agentrl/ReSearch-Qwen-7B-Instruct}
. "$(dirname "$0")/table.sh"
evaluate form=research k=5 max_information=2000
