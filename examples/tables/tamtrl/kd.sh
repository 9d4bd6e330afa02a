#!/usr/bin/env bash
# Vanilla-KD: the token distributions of Qwen3-8B.
. "$(dirname "$0")/table.sh"
build_training
ENGINE= train distill --recipe tamtrl_kd \
    --teacher-model "${TEACHER_MODEL:-Qwen/Qwen3-8B}" "${reading[@]}" tasks="$DATA/train"
evaluate
