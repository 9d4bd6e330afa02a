# What the scripts of the papers' tables share (docs/tables.md). A row's script reads the table.sh beside
# it, which reads this file. Its folder names the table, and its own name the row.
set -euo pipefail
table=$(basename "$(cd "$(dirname "$0")" && pwd)") row=$(basename "$0" .sh) words=("$@")

RAW=${RAW:-raw}           # the official files, in the folders that docs/tables.md lists
DATA=${DATA:-data/$table} # task sets, which are built once for all rows of a table
RUNS=${RUNS:-runs/$table} # trained models and evaluations
ENGINE=${ENGINE-}         # verl shards a model over GPUS GPUs of NODES machines; empty: the bundled learner
GPUS=${GPUS:-8} NODES=${NODES:-1}
# SERVE, arguments of `vllm serve` such as "--tensor-parallel-size 2 --data-parallel-size 4", has vLLM
# serve the trained model to its evaluations, on all GPUs that they name.

# PRINT=1 shows the commands and runs none.
if [ -n "${PRINT-}" ]; then
  memenvs() { echo "memenvs$(printf ' %q' "$@")"; }
  vllm() { echo "vllm$(printf ' %q' "$@")"; }
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

# flags_for SECTION…: set flags to those that follow the script's name in these sections. "grpo:" or
# another learner's name begins the section of its trainings, "evaluate:" that of the evaluations. What
# comes before the first is for every training of a policy.
flags_for() {
  local word section=train
  flags=()
  for word in "${words[@]}"; do
    case $word in
      sft: | distill: | prm: | grpo: | mt_ppo: | evaluate:) section=${word%:} ;;
      *) [[ " $* " != *" $section "* ]] || flags+=("$word") ;;
    esac
  done
}

# train LEARNER FLAGS…: train $MODEL, which is then the trained model. With POLICY nothing is trained. The
# same command resumes a run that stopped.
train() {
  local learner=$1 out=$RUNS/$row/$1 step=STEP
  shift
  [ -z "${POLICY-}" ] || return 0
  flags_for "$learner" $([ "$learner" = prm ] || echo train)
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

# play_tasks POLICY FOLDER FLAGS…: evaluate a policy. Failed episodes (status 1) do not end the script:
# the table counts them, and the same command plays them again.
play_tasks() {
  local policy=$1 out=$2 options=() status=0
  shift 2
  set -- "$@" "${system_prompt[@]}"
  while [ $# -gt 0 ]; do
    case $policy:$1 in # only a model has these options
      hf:* | openai:*) options+=("$1") ;;
      *:--temperature | *:--top-p | *:--max-new-tokens | *:--chat-args | *:--system-prompt) shift ;;
      *) options+=("$1") ;;
    esac
    shift
  done
  memenvs evaluate run "${options[@]}" --policy "$policy" --out "$out" || status=$?
  [ "$status" -le 1 ] || exit "$status"
}

# record FOLDER POLICY FLAGS…: play episodes that $MODEL learns from.
record() {
  local out=$1 teacher=$2
  shift 2
  [ -n "${POLICY-}" ] || play_tasks "$teacher" "$out" "$@"
}

# serve: start vLLM with $MODEL, unless it serves that already, and set address. The end of the script
# stops it.
serve() {
  [ "${served-}" != "$MODEL" ] || return 0
  local port=${PORT:-8000}
  served=$MODEL address=http://127.0.0.1:$port
  if [ -n "${PRINT-}" ]; then
    vllm serve "$MODEL" --port "$port" $SERVE
    return
  fi
  [ -z "${server-}" ] || { kill "$server" && wait "$server" || true; }
  mkdir -p "$RUNS/eval/$row"
  vllm serve "$MODEL" --port "$port" $SERVE > "$RUNS/eval/$row/vllm.log" 2>&1 &
  server=$!
  trap 'kill "$server"; wait "$server" || true' EXIT
  until python -c 'import sys, urllib.request as web; web.urlopen(sys.argv[1])' "$address/health" \
    2> /dev/null; do
    kill -0 "$server" 2> /dev/null || { echo "vLLM has ended; see $RUNS/eval/$row/vllm.log" >&2; exit 1; }
    sleep 1
  done
}

# play COLUMN FLAGS…: evaluate POLICY, or else $MODEL, on the task set of a column. A served model reads
# token ids, as it did in training.
play() {
  local column=$1 policy=${POLICY:-hf:$MODEL} exact=()
  shift
  flags_for evaluate
  if [ -n "${SERVE-}" ] && [ -z "${POLICY-}" ]; then
    serve
    policy=openai:$address exact=(--tokens "$MODEL" --concurrency 256)
  fi
  play_tasks "$policy" "$RUNS/eval/$row/$column" "${exact[@]}" "$@" "${flags[@]}"
}

# print_row [SHAPE…]: the row's cells, below those of the paper.
print_row() {
  local shape
  for shape in "${@:-$table}"; do
    memenvs evaluate table "$shape" "$RUNS/eval/$row" --published
  done
}
