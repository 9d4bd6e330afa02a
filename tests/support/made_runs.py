"""Runs of evaluations made by hand, as folders."""

from memenvs.core.episode import Episode
from memenvs.core.files import write_json
from memenvs.evaluation.log import RESULTS, RunLog, show_tasks
from memenvs.evaluation.summary import summarise

SETTING = {"env": "MemChunkQA-v0", "env_args": {"tasks": "world-test", "chunk_size": 5000}, "n_tasks": 99}
SETTING |= {"data": {"tasks": "ab12"}, "policy": "lexical", "seed": 0, "memenvs": "0.1.0"}


def write_run(folder, em, *, metrics=None, ids="task {}", **setting):
    """A run by `em`: of each task's number a value for each sample, None for one that failed."""
    setting = {**SETTING, **setting}
    episodes = []
    for task, values in em.items():
        for sample, value in enumerate(values):
            own = {"em": value, **(metrics or (lambda task: {}))(task)}
            failed = {"error": "away", "end": "failed"}
            ended = failed if value is None else {"end": "terminated", "metrics": own}
            episodes.append(Episode(number=task, member=sample, task=ids.format(task), **ended))
    log = RunLog(folder, setting)
    for episode in episodes:
        log.keep(episode)
    log.close()
    summary = summarise(episodes, len(next(iter(em.values()))))
    write_json(folder / RESULTS, {"setting": setting, "task": show_tasks(em), **summary.to_json()})
    return summary
