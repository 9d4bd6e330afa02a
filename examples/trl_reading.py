"""TAMTRL with TRL's GRPOTrainer on reading tasks, on any number of GPUs; docs/scale.md has the commands.

pip install -e ".[trl]"
accelerate launch --config_file fsdp2.yaml examples/trl_reading.py --config trl.yaml
"""

from dataclasses import dataclass

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser, get_peft_config

from memenvs.adapters.trl import EpisodeRollout, TurnAdvantages, episode_return, task_rows


@dataclass
class ReadingArgs:
    """What is read, and which model scores the memories.

    Attributes:
        tasks: a task set of `memenvs build`, or a bundled one.
        chunk_size: tokens of a chunk.
        max_memory: tokens of the memory that a prompt shows.
        scorer: model with fixed weights on the process's GPU; by default the initial model.
    """

    tasks: str = "world-train"
    chunk_size: int = 5000
    max_memory: int = 1024
    scorer: str | None = None


class Trainer(TurnAdvantages, GRPOTrainer):
    """TRL's trainer, with an advantage for every turn."""


def main() -> None:
    """Train."""
    parser = TrlParser((ReadingArgs, GRPOConfig, ModelConfig))
    reading, config, model = parser.parse_args_and_config()
    rollout = EpisodeRollout(
        "MemChunkQA-v0",
        ["TAMTRL"],
        scorer=reading.scorer or f"hf:{model.model_name_or_path}",
        tasks=reading.tasks,
        chunk_size=reading.chunk_size,
        max_memory=reading.max_memory,
    )
    trainer = Trainer(
        model=model.model_name_or_path,
        args=config,
        train_dataset=Dataset.from_list(task_rows(range(rollout.n_tasks))),  # each once an epoch
        reward_funcs=episode_return,
        rollout_func=rollout,
        peft_config=get_peft_config(model),
        comparison={"reward": "tamtrl"},
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
