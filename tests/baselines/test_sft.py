"""A teacher's episodes become the sequences that the model would have produced by playing them itself."""

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from made_episodes import before
from model_families import save_model_of_states

from memenvs import collect, evaluate
from memenvs.baselines import lessons
from memenvs.baselines.args import SFTArgs
from memenvs.baselines.flags import main as learn
from memenvs.baselines.lessons import TeacherEpisodes, demonstrations
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EpisodeWriter, encode, read_episodes
from memenvs.models import HFPolicy, SamplingParams
from memenvs.models.policy import tokenised
from memenvs.rollout.policy import made_policy
from memenvs.rollout.scripted import make_policy

READING = {"tasks": "world-test", "chunk_size": 150, "n_documents": 4, "max_memory": 12}


@pytest.fixture(scope="module")
def policy(tiny_model):
    return HFPolicy(str(tiny_model), chat=False)


def played(env_id, teacher="gold", seeds=(1, 2), **options):
    policy = made_policy(lambda env, seed: make_policy(teacher, env, seed), teacher=True)
    return collect(env_id, policy, seeds, env_args=options)


def text(policy, ids):
    return policy.tokenizer.decode(ids)


def test_an_episode_that_appends_is_one_sequence_of_what_was_said(policy):
    for shown in played("MemSokoban-v0"):
        (sample,) = tokenised(policy, shown).samples
        assert shown.success
        assert sorted(set(sample.turns[sample.response_mask].tolist())) == list(range(len(shown.turns)))
        for turn, reply in enumerate(shown.replies):
            assert text(policy, sample.ids[sample.turns == turn]) == reply.text + "<|im_end|>"
        said = "".join(turn.text + turn.action for turn in shown.turns)
        assert text(policy, sample.ids).replace("<|im_end|>", "") == said
        assert sample.response_mask[-1]


@pytest.mark.parametrize("env_id", ["MemSokoban-v0", "MemToolQA-v0"])
def test_the_turns_of_an_episode_that_appends_are_the_last_observation_in_pieces(env_id):
    (shown,) = collect(env_id, lambda observation, info: f"no move {info['turn']}", [1])
    *before, last = shown.turns
    assert "".join(turn.text + turn.action for turn in before) + last.text == last.observation
    assert len(before) > 0


def test_a_model_that_cannot_sample_here_learns_from_a_teacher_and_is_served(tiny_model, tmp_path, capsys):
    model = save_model_of_states(tmp_path / "model", tiny_model)
    flags = ["--model", str(model), "--env", "MemSokoban-v0", "--out", str(tmp_path / "run"), "--track"]
    assert learn(["sft", *flags, "--teacher", "gold", "--episodes", "2", "--batch-size", "2"]) == 0
    said = capsys.readouterr().err
    assert f"vllm serve {tmp_path}/run/last/policy" in said
    assert f"--policy openai:http://127.0.0.1:8000 --tokens {tmp_path}/run/last/policy" in said
    for more in (["--teacher", "self"], ["--eval-every", "1"]):
        assert learn(["sft", *flags, *more, "--out", str(tmp_path / "other")]) == 2
        assert "HFPolicy cannot sample" in capsys.readouterr().err


def test_an_episode_that_rewrites_is_a_sequence_a_turn(policy):
    (shown,) = played("MemChunkQA-v0", seeds=(3,), **READING)
    samples = tokenised(policy, shown).samples
    assert len(samples) == len(shown.turns) > 1
    for turn, sample in zip(shown.turns, samples, strict=True):
        assert text(policy, sample.ids) == turn.observation + turn.action + "<|im_end|>"


def test_an_episode_with_summaries_begins_a_sequence_behind_each():
    settings = {"tasks": "world-test", "memory_mode": "compact", "compact_at": 100, "max_turns": 2}
    search = "<think></think><search>town</search>"
    (shown,) = collect("MemSearchQA-v0", lambda observation, info: search, [1], env_args=settings)
    # two searches, a summary behind each, and the turn for an answer
    assert [turn.fresh for turn in shown.turns] == [True, False, True, False, True]
    for sequence in shown.sequences():
        *earlier, last = sequence
        assert "".join(turn.text + turn.action for turn in earlier) + last.text == last.observation


def test_a_stop_string_needs_no_end_token(tiny_model):
    policy = HFPolicy(str(tiny_model), chat=False, sampling_params=SamplingParams(stop=("</answer>",)))
    (sample,) = tokenised(policy, played("MemSokoban-v0", seeds=(1,))[0]).samples
    assert "<|im_end|>" not in text(policy, sample.ids)


def test_what_does_not_fit_the_window_is_left_out_from_its_turn_on(policy):
    long = "word " * policy.window
    infos = [{**before(k), "feedback": feedback} for k, feedback in enumerate(("", long, "short"))]
    texts = zip(("ask", "asksay" + long, "asksay" + long + "moreshort"), ("say", "more", "end"), strict=True)
    turns = [Turn(shown, infos[k], Reply(said), {}) for k, (shown, said) in enumerate(texts)]
    read = tokenised(policy, Episode(turns=turns))
    (sample,) = read.samples
    assert text(policy, sample.ids) == "asksay<|im_end|>"
    assert read.overlong_prompts == 2


@pytest.mark.parametrize(("env_id", "options"), [("MemSokoban-v0", {}), ("MemChunkQA-v0", READING)])
def test_the_episodes_of_an_evaluation_can_be_learned_from(policy, env_id, options, tmp_path):
    evaluate(env_id, "gold", env_args=options, tasks="0:2", out=tmp_path)
    env = gym.make(env_id, **options)
    for shown in demonstrations(SFTArgs(teacher=str(tmp_path / "episodes.jsonl")), 0):
        observation, info = env.reset(seed=shown.seed, options={"task": shown.number})
        for turn in shown.turns:
            assert turn.observation == observation
            grown = info["context"] == "append" and info["turn"]
            assert turn.text == (info["feedback"] if grown else observation)
            observation, _, _, _, info = env.step(turn.action)
        assert shown.success
        assert tokenised(policy, shown).tokens > 0


def test_failed_episodes_are_left_out_and_replies_alone_are_refused(policy, tmp_path):
    evaluate("MemSokoban-v0", "gold", tasks="0:1", out=tmp_path / "whole")
    file = tmp_path / "whole" / "episodes.jsonl"
    (failed,) = read_episodes(file)
    failed.fail("no answer")
    with EpisodeWriter(file) as writer:
        writer.write(failed)
    assert len([*demonstrations(SFTArgs(teacher=str(file)), 0)]) == 1
    evaluate("MemSokoban-v0", "gold", tasks="0:1", out=tmp_path / "bare", texts=False)
    (bare,) = read_episodes(tmp_path / "bare" / "episodes.jsonl")
    with pytest.raises(ValueError, match="has only replies"):
        tokenised(policy, bare)


def test_a_file_is_read_one_episode_at_a_time(policy, tmp_path):
    evaluate("MemSokoban-v0", "gold", tasks="0:2", out=tmp_path)
    file = tmp_path / "episodes.jsonl"
    with file.open("a") as lines:
        lines.write("no episode\n")
    args = SFTArgs(teacher=str(file))
    learned = iter(TeacherEpisodes(args, demonstrations(args, 0), policy))
    assert next(learned).tokens > 0
    assert next(learned).tokens > 0
    with pytest.raises(ValueError, match=r"jsonl:3"):
        next(learned)


def test_any_number_of_workers_plays_the_same_demonstrations(monkeypatch):
    monkeypatch.setattr(lessons, "JOB", 3)
    reading = {"env": "MemChunkQA-v0", "env_args": READING, "teacher": "careful", "episodes": 7}
    here, there = ([*demonstrations(SFTArgs(**reading, workers=workers), 7)] for workers in (1, 2))
    assert [episode.number for episode in here] == [episode.number for episode in there]
    assert list(map(encode, here)) == list(map(encode, there))


def test_a_policy_that_is_not_there_is_named():
    env = gym.make("memenvs:MemSokoban-v0")
    with pytest.raises(ValueError, match="there is no 'nowhere:maker': No module"):
        make_policy("nowhere:maker", env, 0)
