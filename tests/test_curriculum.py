"""Curricula: levels of a task set, when the next starts, their states, and a learner that uses one."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

from memenvs import TextVectorEnv
from memenvs.baselines import grpo
from memenvs.baselines.update import ProcessGroup
from memenvs.build.examples import Example, among_distractors
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, open_tasks
from memenvs.tasks.tokens import load_tokenizer
from memenvs.wrappers import Curriculum, CurriculumWrapper, VectorRewardWrapper

HOPS = (1, 2, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Thirty tasks: of 1, 2 and 4 hops in turn, of 100, 200, … tokens as they say."""
    examples = [
        Example(
            f"q{i}", f"What is the code of thing {i}?", (f"{100 + i}",),
            ((f"Thing {i}", f"Its code is {100 + i}."),), (0,), (),
            {"hops": HOPS[i % 3], "tokens": 100 * (i + 1)},
        )
        for i in range(30)
    ]  # fmt: skip
    draft = among_distractors(examples, tokenizer=load_tokenizer(), split="train", seed=0, documents=3)
    out = tmp_path_factory.mktemp("sets") / "levels"
    write_task_set(out, draft, Card("test"), load_tokenizer())
    return out


@pytest.fixture
def tasks(folder):
    return open_tasks(folder)


def venv(folder, count=4, **options):
    options = {"autoreset_mode": "Disabled", "tasks": str(folder), "chunk_size": 2000, **options}
    return TextVectorEnv("MemChunkQA-v0", count, **options)


def play(wrapped, right, seed):
    """Play an episode in each environment, answered right or wrong; the tasks' ids."""
    wrapped.reset(seed=seed)
    over = np.zeros(wrapped.num_envs, bool)
    envs = wrapped.unwrapped.envs
    while not over.all():
        replies = [env.unwrapped.gold_reply() if right and not over[i] else "" for i, env in enumerate(envs)]
        _, _, terminated, truncated, _ = wrapped.step(replies, ~over)
        over |= terminated | truncated
    return [info["task"] for info in wrapped.unwrapped.infos_list]


def hops(tasks, names):
    return {task.meta["hops"] for task in tasks if task.id in names}


def test_levels_are_the_values_in_rising_order(tasks):
    assert [(value, len(numbers)) for value, numbers in Curriculum(tasks).levels] == [
        (1, 10),
        (2, 10),
        (4, 10),
    ]


def test_levels_of_tokens_are_powers_of_two(tasks):
    levels = Curriculum(tasks, by="tokens").levels
    assert [value for value, _ in levels] == [128, 256, 512, 1024, 2048, 4096]
    for value, numbers in levels:
        assert all(value / 2 < tasks[number].meta["tokens"] <= value for number in numbers)


def test_a_draw_is_of_the_level_and_depends_on_the_seed_alone(tasks):
    curriculum = Curriculum(tasks)
    drawn = [curriculum.draw(seed) for seed in range(200)]
    assert set(drawn) == set(curriculum.levels[0][1])
    assert drawn == [Curriculum(tasks).draw(seed) for seed in range(200)]


def test_the_next_level_begins_when_the_mean_of_a_full_window_reaches_the_threshold(tasks):
    curriculum = Curriculum(tasks, threshold=0.75, window=4)
    assert not curriculum.update([("q0", 1.0), ("q3", 1.0), ("q6", 1.0)])  # three of four
    assert curriculum.mean == 1.0
    assert not curriculum.update([("q0", 0.0), ("q0", 0.0)])  # 1 1 0 0
    assert not curriculum.update([("q0", 1.0)])  # 1 0 0 1
    assert curriculum.update([("q0", 1.0), ("q0", 1.0)])  # 0 1 1 1
    assert (curriculum.progress.level, curriculum.value, curriculum.progress.scores) == (1, 2, [])


def test_tasks_of_other_levels_do_not_count(tasks):
    curriculum = Curriculum(tasks, window=2)
    assert not curriculum.update([("q1", 1.0), ("q2", 1.0), ("unknown", 1.0), ("q0", 1.0)])
    assert curriculum.progress.scores == [1.0]


def test_an_update_moves_on_by_one_level_and_the_last_one_stays(tasks):
    curriculum = Curriculum(tasks, window=1)
    moved = [curriculum.update([("q0", 1.0), ("q1", 1.0), ("q2", 1.0)]) for _ in range(4)]
    assert moved == [True, True, False, False]
    assert curriculum.value == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threshold": 0.5}, "threshold=0.5, not 0.8"),
        ({"by": "tokens"}, "by='tokens', not 'hops'"),
        ({"progress": {"level": "0"}}, "the state's progress.level must be a whole number, got '0'"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(tasks, change, said):
    curriculum = Curriculum(tasks)
    curriculum.update([("q0", 1.0)])
    with pytest.raises(ValueError, match=said) as caught:
        curriculum.set_state({**curriculum.get_state(), **change})
    assert "\n" not in str(caught.value)
    assert curriculum.progress.scores == [1.0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"by": "type"},
            r"task q0 of levels has type=None, which is not a level; .* `memenvs build mix`",
        ),
        ({"window": 0}, "window must be"),
        ({"threshold": float("nan")}, "threshold must be"),
    ],
)
def test_settings_that_make_no_curriculum_are_refused(tasks, settings, said):
    with pytest.raises(ValueError, match=said):
        Curriculum(tasks, **settings)


# --- the wrapper


def test_environments_play_the_level_and_move_on_at_the_next_reset(folder, tasks):
    wrapped = CurriculumWrapper(venv(folder), Curriculum(tasks, window=4))
    assert hops(tasks, play(wrapped, False, 0)) == {1}
    assert hops(tasks, play(wrapped, True, 1)) == {1}
    assert wrapped.curriculum.progress.level == 0  # not yet: the reset moves it
    assert hops(tasks, play(wrapped, True, 2)) == {2}
    assert hops(tasks, play(wrapped, True, 3)) == {4}
    assert hops(tasks, play(wrapped, True, 4)) == {4}


def test_a_task_that_is_named_is_played(folder, tasks):
    wrapped = CurriculumWrapper(venv(folder), Curriculum(tasks))
    wrapped.reset(seed=0, options={"task": [None, 2, None, 5]})
    names = [info["task"] for info in wrapped.unwrapped.infos_list]
    assert (names[1], names[3]) == ("q2", "q5")
    assert hops(tasks, {names[0], names[2]}) == {1}


def test_unseeded_resets_draw_from_the_last_seed(folder, tasks):
    found = []
    for _ in range(2):
        wrapped = CurriculumWrapper(venv(folder), Curriculum(tasks))
        wrapped.reset(seed=3)
        wrapped.reset()
        found.append([info["task"] for info in wrapped.unwrapped.infos_list])
    assert found[0] == found[1]


def test_groups_of_a_reward_wrapper_play_the_level(folder, tasks):
    inner = CurriculumWrapper(venv(folder), Curriculum(tasks, window=4))
    host = VectorRewardWrapper(inner, ["TAMTRL"], "lexical", group_size=2)
    for level in (1, 2):
        names = play(host, True, level)
        assert names[0] == names[1]
        assert names[2] == names[3]
        assert hops(tasks, names) == {level}


def test_what_a_curriculum_cannot_wrap_is_refused(folder, tasks):
    curriculum = Curriculum(tasks)
    with pytest.raises(ValueError, match="autoreset_mode='Disabled', got"):
        CurriculumWrapper(venv(folder, autoreset_mode="NextStep"), curriculum)
    with pytest.raises(ValueError, match="do not play levels"):
        CurriculumWrapper(venv("world-train"), curriculum)
    with pytest.raises(ValueError, match="metric must be one of success, em"):
        CurriculumWrapper(venv(folder), Curriculum(tasks, metric="speed"))


# --- a learner


def arguments(folder, tiny_model, out, **others):
    given = {"steps": 2, "groups": 2, "curriculum": {"by": "hops", "threshold": 0.0, "window": 2}, **others}
    return grpo.GRPOArgs(
        model=str(tiny_model), out=out, env="MemChunkQA-v0",
        env_args={"tasks": str(folder), "chunk_size": 150, "max_memory": 12}, group_size=2,
        num_envs=4, max_new_tokens=4, save_every=1, **given,
    )  # fmt: skip


def run(args):
    training = grpo.prepare(args)
    grpo.train(training, args)
    lines = [json.loads(line) for line in (args.out / "log.jsonl").read_text().splitlines()]
    return training, [line["curriculum_level"] for line in lines]


def test_a_run_moves_up_by_its_rollouts_and_resumes_from_its_checkpoint(folder, tiny_model, tmp_path):
    _, levels = run(arguments(folder, tiny_model, tmp_path / "run"))
    assert levels == [1, 2]
    resumed, levels = run(arguments(folder, tiny_model, tmp_path / "run", steps=3, resume=True))
    assert levels == [1, 2, 2]
    assert resumed.curriculum.progress.scores != []  # of the last level, which stays


class Two(ProcessGroup):
    """This process, and another that plays what it plays."""

    def __init__(self):
        self.rank, self.size, self.device = 0, 2, "cpu"

    def gather(self, items):
        return [*items, *items]


def test_a_run_counts_the_episodes_of_all_processes(folder, tiny_model, tmp_path):
    # Each process plays 4 of the 8 episodes of a step: alone it would need two steps for a window.
    settings = {"by": "hops", "threshold": 0.0, "window": 8}
    training = grpo.prepare(arguments(folder, tiny_model, tmp_path / "run", groups=4, curriculum=settings))
    training.processes = Two()
    training.rollouts(1)
    assert training.curriculum.progress.level == 1


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"curriculum": {"windw": 3}}, "--curriculum has no argument 'windw'; its arguments: window, "),
        ({"reward": "turn", "tree_turns": 1}, "curriculum is for groups, not for trees"),
        ({"curriculum": {"by": "depth"}}, "task q0 of levels has depth=None, which is not a level"),
    ],
)
def test_a_run_refuses_an_invalid_curriculum(folder, tiny_model, tmp_path, others, said):
    with pytest.raises(ValueError, match=said):
        grpo.prepare(arguments(folder, tiny_model, tmp_path / "run", **others))
