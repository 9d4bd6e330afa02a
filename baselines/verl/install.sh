#!/usr/bin/env bash
# The packages of run.sh, in this environment.
set -e
python -m pip install -r $out/requirements.txt
# The setup of flash-attn imports torch and these, which pip hides from it unless told not to.
python -m pip install ninja packaging psutil setuptools wheel
python -m pip install --no-build-isolation $flash ||
  echo "flash-attn was not built: grpo and sft take PyTorch's attention, mt_ppo needs it for its critic"
