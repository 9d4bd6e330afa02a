#!/usr/bin/env bash
# DeepResearcher: the checkpoint that its authors publish.
MODEL=${MODEL:-GAIR/DeepResearcher-7b}
. "$(dirname "$0")/table.sh"
evaluate form=deep_researcher k=10 max_information=2000
