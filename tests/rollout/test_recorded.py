"""The recorded behaviour is today's; `recording.py` says how to record again, and when."""

import json

import pytest
import recording

BEFORE = json.loads(recording.RECORDED.read_text())


@pytest.mark.parametrize("name", BEFORE["episodes"])
def test_episodes_are_those_that_were_recorded(name):
    variant, _, policy = name.rpartition(", ")
    assert recording.episodes(variant, policy) == BEFORE["episodes"][name]


@pytest.mark.parametrize("name", BEFORE["credits"])
def test_credits_are_those_that_were_recorded(name):
    now = json.loads(json.dumps(recording.credits_of(name)))
    for episode, before in zip(now, BEFORE["credits"][name], strict=True):
        assert flat(episode) == pytest.approx(flat(before), abs=2e-6, nan_ok=True)


@pytest.mark.parametrize("name", BEFORE["builds"])
def test_builds_are_those_that_were_recorded(name, tmp_path):
    assert recording.built(name, tmp_path) == BEFORE["builds"][name]


def test_short_runs_leave_the_weights_that_were_recorded(tmp_path):
    """To a ten-thousandth: kernels of other processors round otherwise."""
    pytest.importorskip("torch")
    for name, weights in BEFORE["runs"].items():
        assert recording.trained(name, tmp_path) == pytest.approx(weights, rel=1e-4), name


def test_what_is_recorded_is_all_there_is():
    names = {kind: list(found) for kind, found in BEFORE.items()}
    assert names["episodes"] == [f"{v}, {p}" for v in recording.VARIANTS for p in recording.POLICIES]
    assert names["credits"] == list(recording.STACKS)
    assert names["builds"] == list(recording.SOURCES)
    assert list(names["runs"]) == list(recording.LEARNERS)


def flat(value, place=""):
    """Plain data as one dictionary of numbers by their places."""
    if isinstance(value, dict):
        value = list(value.items())
        return {k: v for key, inner in value for k, v in flat(inner, f"{place}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, inner in enumerate(value) for k, v in flat(inner, f"{place}[{i}]").items()}
    return {place: -1.0 if value is None else float(value)}
