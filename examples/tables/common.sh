# What the scripts of the papers' tables share (docs/tables.md). A row's script reads the table.sh beside it,
# which reads this file. Its folder names the table, and its own name the row.
set -euo pipefail
table=$(basename "$(cd "$(dirname "$0")" && pwd)") row=$(basename "$0" .sh) flags=("$@")

RAW=${RAW:-raw}           # the official files, in the folders that docs/tables.md lists
DATA=${DATA:-data/$table} # task sets, which are built once for all rows of a table
RUNS=${RUNS:-runs/$table} # trained models and evaluations
ENGINE=${ENGINE-}         # verl shards a model over GPUS GPUs of NODES machines; empty: the bundled learner
GPUS=${GPUS:-8} NODES=${NODES:-1}

# PRINT=1 shows the commands and runs none.
if [ -n "${PRINT-}" ]; then
  memenvs() { echo "memenvs$(printf ' %q' "$@")"; }
fi

# TEMPLATE and JUDGE_TEMPLATE are files with other prompts, for the environment and for the judge, and
# SYSTEM_PROMPT one with a system message.
template=(${TEMPLATE:+"template=$TEMPLATE"}) judge_template=(${JUDGE_TEMPLATE:+"template=$JUDGE_TEMPLATE"})
system_prompt=(${SYSTEM_PROMPT:+--system-prompt "$SYSTEM_PROMPT"})

# build NAME SOURCE FLAGS…: build the task set $DATA/NAME, unless it exists. With POLICY no set to train on,
# which is called train or …_train, is needed.
build() {
  local out=$DATA/$1
  [[ -n ${POLICY-} && $1 =~ (^|_)train$ ]] && return 0
  shift
  [ -e "$out/card.json" ] || memenvs build "$@" --out "$out"
}

# train LEARNER FLAGS…: train $MODEL, with the flags that follow the script's name too. $MODEL is then the
# trained model. With POLICY nothing is trained. The same command resumes a run that stopped.
train() {
  local learner=$1 out=$RUNS/$row/$1 step=STEP
  shift
  [ -z "${POLICY-}" ] || return 0
  if [ "$ENGINE" = verl ]; then
    memenvs train "$learner" --model "$MODEL" "$@" "${system_prompt[@]}" --out "$out" \
      --engine verl --gpus "$GPUS" --nodes "$NODES" "${flags[@]}"
    [ -n "${PRINT-}" ] || step=$(cat "$out/checkpoints/latest_checkpointed_iteration.txt")
    memenvs train "$learner" --merge "$step" --out "$out"
    MODEL=$out/models/step-$step
  else
    memenvs train "$learner" --model "$MODEL" "$@" "${system_prompt[@]}" --out "$out" --resume "${flags[@]}"
    MODEL=$out/${CHECKPOINT:-last}/policy
  fi
}

# record FOLDER POLICY FLAGS…: play episodes that $MODEL learns from.
record() {
  local out=$1 teacher=$2
  shift 2
  [ -n "${POLICY-}" ] || memenvs evaluate run "$@" "${system_prompt[@]}" --policy "$teacher" --out "$out"
}

# play COLUMN FLAGS…: evaluate POLICY, or else $MODEL, on the task set of a column.
play() {
  local column=$1
  shift
  memenvs evaluate run "$@" "${system_prompt[@]}" --policy "${POLICY:-hf:$MODEL}" --out "$RUNS/eval/$row/$column"
}

# print_row: the row's cells, below those of the paper.
print_row() {
  memenvs evaluate table "$table" "$RUNS/eval/$row" --published
}
