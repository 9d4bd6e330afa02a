"""Files of episodes for the tests of the viewer."""

import gymnasium as gym
import numpy as np

from memenvs import collect
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EpisodeWriter, RecordEpisodes
from memenvs.models import ScriptedPolicy

EVIL = "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 2'>"


def write(path, episodes, policy=None):
    with EpisodeWriter(path) as writer:
        for episode in episodes:
            writer.write(episode, policy)


def replied(*replies, signals=(), credits=(), **fields):
    """An episode of an environment that says nothing, whose first turn has these signals and credits."""
    info = {"turn": 0, "context": "rewrite", "feedback": "", "rewards": {}}
    turns = [
        Turn("", {**info, "turn": k}, Reply(reply), {**info, "turn": k + 1})
        for k, reply in enumerate(replies)
    ]
    turns[0].signals, turns[0].credits = dict(signals), dict(credits)
    return Episode(turns=turns, **fields)


def play_runs(folder):
    """A reading run under reward methods, a search, and a training step of Sokoban with advantages."""
    reading = {"tasks": "world-test", "chunk_size": 1200, "n_documents": 16}
    methods = (["TAMTRL", "InfoMem"], "lexical")
    for member, name in enumerate(("gold", "silent")):
        (episode,) = collect("MemChunkQA-v0", name, [5], 1, *methods, env_args=reading, tasks=[3])
        episode.member = member
        write(folder / "read" / "episodes.jsonl", [episode])
    search = {"env_args": {"tasks": "world-test"}, "tasks": [2]}
    write(folder / "s" / "episodes.jsonl", collect("MemSearchQA-v0", "lexical", [0], **search))
    replies = iter(["Up", "Left || Left", "Down || Down", "Right"] * 4)
    model = ScriptedPolicy(lambda _: f"<think>I look.</think><answer>{next(replies)}</answer>")
    group = collect("MemSokoban-v0", model, [2**62], 2)
    for episode in group:
        episode.advantages, episode.step, episode.phase = np.linspace(-1, 1, episode.tokens), 7, "train"
    write(folder / "train" / "episodes.jsonl", group, model)
    return folder


def read_with(path, replies, **arguments):
    """Write the episode of a reader of two chunks that replies so."""
    chunks = {"tasks": "world-test", "chunk_size": 1200, "n_documents": 16}
    env = RecordEpisodes(gym.make("MemChunkQA-v0", **chunks, **arguments), path)
    rest = iter(replies)
    collect(env, lambda *_: next(rest), [5], tasks=[3])
