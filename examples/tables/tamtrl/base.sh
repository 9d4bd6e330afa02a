#!/usr/bin/env bash
# Base: the model without training.
. "$(dirname "$0")/table.sh"
evaluate
