"""Episodes of all families in the real SkyRL-gym, by the loop of SkyRL's generator."""

import json

import numpy as np
import pytest
from families import FAMILIES, play

skyrl_gym = pytest.importorskip("skyrl_gym", reason='skyrl-gym is not installed: pip install -e ".[skyrl]"')

from omegaconf import OmegaConf  # noqa: E402  # comes with skyrl-gym
from skyrl_gym.metrics import aggregate_for_environment  # noqa: E402

from memenvs.adapters.common import open_env  # noqa: E402
from memenvs.adapters.skyrl import SkyRLEnv  # noqa: E402

SYSTEM = {"role": "system", "content": "Be brief."}
PROMPT = [SYSTEM, {"role": "user", "content": "this row's text is not used"}]
CASES = [("reading", 1), ("search", 2), ("sokoban", 1)]


def made(family, **extras):
    config = {**FAMILIES[family], "step_wise": family in ("reading", "compact")}
    return skyrl_gym.make("memenvs-test", env_config=config, extras={"seed": 7, **extras})


@pytest.fixture(autouse=True)
def registered():
    skyrl_gym.register("memenvs-test", "memenvs.adapters.skyrl:SkyRLEnv")
    yield
    skyrl_gym.envs.registration.deregister("memenvs-test")


def gold_replies(task, **config):
    """The right replies to a task."""
    env = open_env(**config)
    env.reset(seed=7, options={"task": task})
    replies, over = [], False
    while not over:
        replies.append(env.unwrapped.gold_reply())
        _, _, terminated, truncated, _ = env.step(replies[-1])
        over = terminated or truncated
    return replies


def generate(env, replies):
    """What was read and what came back at each turn; the history is kept as the generator keeps it."""
    history, _ = env.init(list(PROMPT))
    read, outputs = [], []
    for reply in replies:
        read.append([dict(message) for message in history])
        outputs.append(env.step(reply))
        history += [{"role": "assistant", "content": reply}]
        if outputs[-1]["observations"]:
            history += outputs[-1]["observations"]
    return read, outputs


@pytest.mark.parametrize(("family", "task"), CASES)
def test_rewards_components_and_turn_rewards_arrive(family, task):
    turns = play(family, task)
    _, outputs = generate(made(family, task=task), [turn.reply for turn in turns])
    assert [output["reward"] for output in outputs] == [turn.reward for turn in turns]
    assert [output["metadata"] for output in outputs] == [turn.public for turn in turns]
    assert [output["done"] for output in outputs] == [False] * (len(turns) - 1) + [True]


def test_the_turn_rewards_of_a_hindsight_method_come_with_the_last_step():
    turns = play("reading", 1)
    _, outputs = generate(made("reading", task=1), [turn.reply for turn in turns])
    # TAMTRL pays all at the end; the answer turn takes the outcome, memories that help take 1 by min-max
    assert [output["reward"] for output in outputs] == [0, 0, 0, 0, 0, 5]
    assert outputs[-1]["metadata"]["turn_rewards"] == [0, 1, 1, 1, 1, 1]


def test_step_wise_training_sees_the_return_where_a_method_pays_at_once():
    config = {
        "env": "MemChunkQA-v0",
        "env_args": {"tasks": "world-test", "chunk_size": 300, "n_documents": 4},
        "methods": ["ReMemR1"],
    }
    env = SkyRLEnv({**config, "step_wise": True}, {"task": 1})
    answer = gold_replies(**config, task=1)[-1]
    _, outputs = generate(env, [answer] * 3)  # a memory that is the answer, kept, and the answer
    assert outputs[-1]["metadata"]["turn_rewards"] == [1, 0, 1]
    assert [output["reward"] for output in outputs] == [0, 0, 2]


def test_step_wise_training_sees_the_return_of_an_episode_that_max_turns_cuts():
    env = SkyRLEnv({**FAMILIES["sokoban"], "step_wise": True}, {"task": 1, "max_turns": 2})
    _, outputs = generate(env, ["<think></think><answer>Up</answer>"] * 2)
    # +0.5 for the form of a reply and -0.1 for its move
    assert [output["reward"] for output in outputs] == pytest.approx([0, 0.8])


@pytest.mark.parametrize(("family", "task"), CASES[1:])
def test_the_messages_of_an_appending_episode_joined_are_the_observation(family, task):
    turns = play(family, task)
    read, _ = generate(made(family, task=task), [turn.reply for turn in turns])
    for messages, turn in zip(read, turns, strict=True):
        assert messages[0] == SYSTEM
        assert "".join(message["content"] for message in messages[1:]) == turn.observation


def test_a_rewrite_episode_shows_a_fresh_prompt_alone_at_every_turn():
    turns = play("reading", 1)
    read, _ = generate(made("reading", task=1), [turn.reply for turn in turns])
    assert read == [[SYSTEM, {"role": "user", "content": turn.observation}] for turn in turns]


def test_a_compacted_conversation_starts_afresh_after_its_summary():
    turns = play("compact", 2)
    read, _ = generate(made("compact", task=2), [turn.reply for turn in turns])
    for messages, turn in zip(read, turns, strict=True):
        assert "".join(message["content"] for message in messages[1:]) == turn.observation
    assert [len(messages) for messages in read] == [2, 4, 6, 2, 4]


def test_fresh_prompts_without_step_wise_are_refused_with_the_fix():
    env = SkyRLEnv(FAMILIES["reading"], {"task": 1})
    with pytest.raises(ValueError, match=r"MemChunkQA-v0 gives fresh prompts.*step_wise_trajectories=true"):
        env.init(PROMPT)


@pytest.mark.parametrize(("family", "task"), CASES)
def test_metrics_have_the_return_and_each_component(family, task):
    turns = play(family, task)
    env = made(family, task=task)
    generate(env, [turn.reply for turn in turns])
    metrics = env.get_metrics()
    assert metrics["return"] == pytest.approx(sum(turn.reward for turn in turns))
    parts = sum(value for name, value in metrics.items() if name.startswith("reward/"))
    assert parts == pytest.approx(metrics["return"])
    assert (metrics["success"], metrics["cut"]) == (1.0, 0.0)


def test_skyrls_own_mean_takes_every_metric():
    env = made("sokoban", task=1)
    generate(env, [turn.reply for turn in play("sokoban", 1)])
    mean = aggregate_for_environment("memenvs-test", [env.get_metrics()] * 2)
    assert mean == env.get_metrics()


def test_an_omegaconf_configuration_and_numpys_numbers_will_do():
    env = SkyRLEnv(OmegaConf.create(FAMILIES["search"]), {"task": np.int64(2), "seed": np.int64(7)})
    assert env.init([])[0][0]["content"] == play("search", 2)[0].observation


def test_rows_with_one_seed_share_a_task():
    first, second = (made("search").init(PROMPT)[0] for _ in range(2))
    other = made("search", seed=8).init(PROMPT)[0]
    assert first == second != other


def test_max_turns_cuts_an_episode_and_says_so():
    env = made("sokoban", task=1, max_turns=2)
    _, outputs = generate(env, ["nothing", "nothing"])
    assert [output["done"] for output in outputs] == [False, True]
    assert env.get_metrics()["cut"] == 1.0


@pytest.mark.parametrize("reply", ["", "\ud800", "\x00", "<answer>" * 10_000])
def test_no_reply_raises_and_what_comes_back_is_json(reply):
    _, outputs = generate(made("search"), [reply])
    json.dumps(outputs).encode()
    assert outputs[0]["observations"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "env_config has no 'env'"),
        (3, "env_config must be an object, got 3"),
        ({"env": "MemSokoban-v0", "turns": 3}, "unknown setting 'turns'"),
        ({"env": "MemSokobanImage-v0"}, "has observations that are not texts"),
    ],
)
def test_wrong_settings_are_told_in_one_line(config, words):
    with pytest.raises(ValueError, match=words) as error:
        SkyRLEnv(config, {})
    assert "\n" not in str(error.value)
