"""One of several processes that train with TRL on episodes of different lengths; writes what it did."""

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1] / "support")]
    import torch.distributed.nn  # before the process group is there, which it would keep for good
    from scripted_trl import ByTurn, make_trainer, weights

    from memenvs.adapters.trl import EpisodeRollout, episode_return, seed_rows

    model, out = sys.argv[1:]
    rank = int(os.environ["RANK"])
    answer = "<mem></mem><think></think><answer>no</answer>"
    search = "<mem></mem><think></think><search>nobody</search>"
    # The first process plays one turn and two, the second one and one: three rows and two.
    script = ((answer, search), ("<answer>no</answer>",)) if rank == 0 else ((answer, answer),)
    settings = {"tasks": "world-test", "memory_mode": "rewrite", "max_information": 60, "max_turns": 2}
    trainer = make_trainer(
        ByTurn,
        model,
        out,
        seed_rows(range(8)),
        script=script,
        options={"max_completion_length": 60, "ddp_find_unused_parameters": False},
        rollout_func=EpisodeRollout("MemSearchQA-v0", ["SearchRewards"], **settings),
        reward_funcs=episode_return,
        comparison={"reward": "merged", "normalize": "components"},
    )
    before = weights(trainer)
    trainer.train()
    after = weights(trainer)
    told = {
        "rows": [trainer.loss_mask(batch).any(1).tolist() for batch in trainer.batches],
        "advantages": [
            trainer.by_run(batch, row)
            for batch in trainer.batches
            for row in trainer.loss_mask(batch).any(1).nonzero().flatten().tolist()
        ],
        "seeds": [episode.seed for episode in trainer.rollout_func.episodes],
        "groups": [episode.group for episode in trainer.rollout_func.episodes],
        "moved": float((after - before).abs().max()),
        "sum": float(after.double().sum()),
    }
    (Path(out) / f"{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()  # else its threads now and then abort the process at exit
