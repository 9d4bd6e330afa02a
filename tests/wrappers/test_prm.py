"""The process reward model as a reward method: what it reads, what it pays, what it refuses."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from prm_model import save_prm

import memenvs
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.models import HFPolicy
from memenvs.testing.conformance import HOSTILE
from memenvs.wrappers import PRM, RewardWrapper

READING = {"tasks": "world-test", "n_documents": 4, "chunk_size": 150}


@pytest.fixture(scope="module")
def three_quarters(tiny_model, tmp_path_factory):
    """A model that gives every turn the probability 3/4."""
    return save_prm(tmp_path_factory.mktemp("prm") / "flat", tiny_model, 0.75)


@pytest.fixture(scope="module")
def random_prm(tiny_model, tmp_path_factory):
    return save_prm(tmp_path_factory.mktemp("prm") / "random", tiny_model)


def episode(turns, context="rewrite", outcome=1.0):
    """An episode of (observation, reply) pairs; where prompts are appended, of (what came back, reply)."""
    made, shown, came = [], "", ""
    for k, (text, action) in enumerate(turns):
        came, shown = text, shown + text if context == "append" else text
        last = k == len(turns) - 1
        info = {"turn": k, "context": context, "feedback": came, "metrics": {}}
        after = {**info, "rewards": {"outcome": outcome if last else 0.0}}
        made.append(Turn(shown, info, Reply(action), after, "terminated" if last else ""))
        shown += action
    return Episode(turns=made, end="terminated")


def paid(method, *episodes):
    return [[credit.value for credit in credits] for credits in method.assign_credit(episodes)]


def plain_probability(policy, ids):
    """By its definition: the state behind the last token read, one pass over the sequence alone."""
    with torch.no_grad():
        states = policy.model.model(input_ids=torch.tensor([list(ids)])).last_hidden_state[0, -1]
        return float(torch.sigmoid(policy.value_head(states)[0]))


def test_a_turn_of_fresh_prompts_is_read_by_itself(random_prm):
    policy = HFPolicy.load(f"{random_prm}/policy")
    turns = [("Read this.", "I note it."), ("And now that.", "An answer.")]
    wanted = [
        plain_probability(policy, [*policy.encode(text), *policy.encode_reply(reply)[:-1]])
        for text, reply in turns
    ]
    assert abs(wanted[0] - wanted[1]) > 0.01
    np.testing.assert_allclose(paid(PRM(random_prm), episode(turns))[0], wanted, rtol=1e-4)


def test_a_turn_of_appended_prompts_is_read_after_everything_before_it(random_prm):
    policy = HFPolicy.load(f"{random_prm}/policy")
    turns = [("Search.", "<search>x</search>"), ("Found.", "An answer.")]
    first = [*policy.encode("Search."), *(reply := policy.encode_reply("<search>x</search>"))]
    second = [*first, *policy.encode_feedback("Found.", reply), *policy.encode_reply("An answer.")]
    wanted = [plain_probability(policy, ids[:-1]) for ids in (first, second)]
    assert abs(wanted[0] - wanted[1]) > 0.01
    found = paid(PRM(random_prm), episode(turns, context="append"))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_episodes_that_end_together_have_the_probabilities_that_each_has_alone(random_prm):
    method = PRM(random_prm, max_batch_tokens=40)
    both = [episode([("a", "b"), ("c", "d")]), episode([("e", "f " * 30)], context="append")]
    alone = [paid(method, one)[0] for one in both]
    for together, one in zip(paid(method, *both), alone, strict=True):
        np.testing.assert_allclose(together, one, rtol=1e-4)


@pytest.mark.parametrize(
    ("outcome", "replaces", "wanted"), [("keep", False, 1.5), ("replace", True, 1.5), ("multiply", True, 0.6)]
)
def test_a_probability_counts_beside_the_outcome_or_in_its_place_or_times_it(
    outcome, replaces, wanted, three_quarters
):
    # 2 * 0.75, and times an outcome of 0.4
    method = PRM(three_quarters, outcome=outcome, weight=2.0)
    np.testing.assert_allclose(paid(method, episode([("a", "b"), ("c", "d")], outcome=0.4)), [[wanted] * 2])
    assert method.replaces_outcome is replaces


def test_a_turn_that_does_not_fit_the_window_is_unscored_and_the_others_are_not(three_quarters):
    long = "word " * 2000
    (first, second, third), appended = PRM(three_quarters).assign_credit(
        [
            episode([("a", "b"), (long, "c"), ("d", "e")]),
            episode([("a", "b"), (long, "c"), ("d", "e")], context="append"),
        ]
    )
    assert (first.value, third.value) == (pytest.approx(0.75), pytest.approx(0.75))
    assert math.isnan(second.value)
    assert second.reason == "too long: the turn does not fit the model's window of 1024 tokens"
    assert [math.isnan(credit.value) for credit in appended] == [False, True, True]


def test_a_nan_logit_is_unscored(three_quarters, tiny_model, tmp_path):
    broken = save_prm(tmp_path, tiny_model)
    policy = HFPolicy.load(f"{broken}/policy")
    with torch.no_grad():
        policy.value_head.bias.fill_(math.nan)
    policy.save(f"{broken}/policy")
    ((credit,),) = PRM(broken).assign_credit([episode([("a", "b")])])
    assert math.isnan(credit.value)
    assert credit.reason == "not finite: the model's logit"


@pytest.mark.parametrize("context", ["rewrite", "append"])
def test_no_reply_raises(context, three_quarters):
    (credits,) = PRM(three_quarters).assign_credit([episode([("a", reply) for reply in HOSTILE], context)])
    assert len(credits) == len(HOSTILE)
    assert credits[0].value == pytest.approx(0.75)  # an empty reply
    assert all(credit.reason[:8] == "too long" for credit in credits if math.isnan(credit.value))


@pytest.mark.parametrize("env_id", memenvs.ENV_IDS)
def test_every_environments_turns_are_scored(env_id, three_quarters):
    if not isinstance(gym.make(env_id).unwrapped, memenvs.TextEnv):
        pytest.skip("its actions are no text")
    method = PRM(three_quarters, outcome="keep")
    (episode,) = memenvs.collect(env_id, "gold", [0], methods=[method], tasks=[0])
    credits = episode.credits["prm"]
    assert [credit.turn for credit in credits] == list(range(len(episode.turns)))
    for credit in credits:  # the prompts of some are longer than this model's window
        assert credit.value == pytest.approx(0.75) or credit.reason.startswith("too long")
    unscored = sum(math.isnan(credit.value) for credit in credits)
    assert episode.metrics["prm_unscored"] == unscored
    assert episode.metrics["outcome"] > 0
    scored = pytest.approx(0.75 * (len(credits) - unscored))
    assert episode.rewards["prm"] == scored or unscored == len(credits)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (None, "there is no process reward model in {folder}; give the folder of a checkpoint of"),
        ('{"args": {"methods": "[]"}}', "there is no process reward model in {folder}; give the folder of"),
        ("{", "{folder}/state.json is not JSON"),
    ],
)
def test_a_folder_without_a_process_reward_model_is_refused_before_an_episode(state, message, tmp_path):
    (tmp_path / "policy").mkdir()
    if state is not None:
        (tmp_path / "state.json").write_text(state)
    with pytest.raises(ValueError, match="prm") as error:
        PRM(str(tmp_path))
    assert str(error.value).startswith(message.format(folder=tmp_path))
    assert "\n" not in str(error.value)


def test_a_spec_holds_the_folder_and_no_model(three_quarters):
    spec = RewardWrapper(gym.make("MemSokoban-v0"), [PRM(three_quarters)]).spec
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert again.methods[0] == PRM(three_quarters)
    ((_, settings),) = json.loads(spec.to_json())["additional_wrappers"][-1]["kwargs"]["methods"]
    assert settings["model"] == three_quarters
