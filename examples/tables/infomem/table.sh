# InfoMem, Tables 2 and 3. The numbers are those of 5.3, A.1 and C.1.
MODEL=${MODEL:-Qwen/Qwen2.5-1.5B-Instruct} CHECKPOINT=best
. "$(dirname "$0")/../common.sh"
: "${JUDGE:?is the server of the judge of CorpusQA and LongMemEval, such as http://127.0.0.1:8000/v1}"

reading=(--env MemChunkQA-v0 --env-args chunk_size=5000 max_memory=1024 "${template[@]}")
judge=(Judge url="$JUDGE" model="${JUDGE_MODEL:-moonshotai/Kimi-K2.6}" level=outcome rubric=equivalence
  outcome=replace "${judge_template[@]}")
temperature=0

# The questions that every row trains on, and those that choose its checkpoint.
build_training() {
  build train hotpotqa --source "$RAW/hotpot_train_v1.1.json" --documents 200 --num-tasks 512 --holdout 128
}

# evaluate ENV_ARGS…
evaluate() {
  build corpusqa corpusqa --source "$RAW/128k_4domains.jsonl"
  build longmemeval longmemeval --source "$RAW/longmemeval_s_cleaned.json"
  build mrcr-8needle mrcr --source "$RAW/8needle.parquet" --num-tasks 100
  build ruler-synthetic-qa ruler --kind qa_1 --source "$RAW/train-v2.0.json" --tokens 262144 --num-tasks 128
  for column in corpusqa longmemeval; do
    play "$column" "${reading[@]}" tasks="$DATA/$column" "$@" --temperature "$temperature" \
    --methods "${judge[@]}"
  done
  play mrcr-8needle "${reading[@]}" tasks="$DATA/mrcr-8needle" max_answer=1024 answer_format=tag "$@" \
    --temperature "$temperature"
  play ruler-synthetic-qa "${reading[@]}" tasks="$DATA/ruler-synthetic-qa" "$@" --temperature "$temperature"
  print_row
}
