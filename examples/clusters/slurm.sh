#!/usr/bin/env bash
# A run of `--engine verl` on the machines of a Slurm job, which share this folder:
#
#     sbatch --nodes 2 --gpus-per-node 8 examples/clusters/slurm.sh runs/tamtrl/run.sh
#
# The script's further words are settings of verl. The run was written with --nodes and --gpus like those of the job.
#SBATCH --job-name=memenvs
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --exclusive
set -euo pipefail

# Ray's workers have the environment that Ray was started in, so whatever they need is set here: HF_HOME, NCCL_…
export VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl
# Whoever reaches Ray's ports can run code as you; with a token only those who know it.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')

mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]} port=${RAY_PORT:-6379}

# start MACHINE FLAGS…: a node of the cluster with the CPUs and GPUs of the job, of which Ray would see all.
start() {
  srun --nodes=1 --ntasks=1 --overlap --nodelist="$1" ray start "${@:2}" --block --disable-usage-stats \
    --num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "${SLURM_GPUS_ON_NODE:-0}" &
}

start "$head" --head --port "$port" --include-dashboard=false
for machine in "${machines[@]:1}"; do
  start "$machine" --address "$head:$port"
done
trap 'kill $(jobs -p)' EXIT

export RAY_ADDRESS=$head:$port
for ((seconds = 0; seconds < 300; seconds += 5)); do
  sleep 5
  nodes=$(python -c 'import ray; ray.init(logging_level="error"); print(sum(node["Alive"] for node in ray.nodes()))' 2> /dev/null || echo 0)
  echo "$nodes of ${#machines[@]} machines have joined"
  if [ "$nodes" -eq "${#machines[@]}" ]; then
    bash "$@"
    exit
  fi
done
echo "not all machines joined within 300 s: see above" >&2
exit 1
