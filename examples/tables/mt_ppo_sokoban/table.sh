# MT-PPO, Table 5. The paper's model sees the board; this one, its language model, reads it.
MODEL=${MODEL:-Qwen/Qwen2.5-3B-Instruct} ENGINE=${ENGINE-verl}
. "$(dirname "$0")/../common.sh"

sokoban=(--env MemSokoban-v0
  --env-args max_turns=3 max_actions=3 max_steps=100 min_solution=5 "${template[@]}")

evaluate() {
  play sokoban "${sokoban[@]}" level_split=test --temperature 1
  print_row
}
