"""TRL's GRPOTrainer calls memenvs' environments as tools: what it trains on, rewards and credits."""

import inspect

import numpy as np
import pytest
from tiny_model import save_tiny_model

from memenvs.tasks.taskset import open_tasks

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
import datasets
import trl
from scripted_trl import END, ByTurn, make_trainer, weights
from scripted_trl import tool_call as call
from transformers import AutoTokenizer

from memenvs.adapters.trl import OVER, SearchTools, SokobanTools, tool_episode
from memenvs.core.episode import Episode, Reply, Turn

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'environment_factory':UserWarning"),  # experimental
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning"),  # TRL's own words
]

ASK = [{"role": "user", "content": ""}]
GOLD = open_tasks("world-test")[0].answers[0][0]  # "1623"


ROWS = ({"prompt": ASK, "seed": 3, "task": 0},) * 2
# One member searches twice in one reply, answers and closes; the other answers at once, and wrongly.
SCRIPT = (
    (
        call("search", query="chemist Berava")
        + "\n"
        + call("search", query="Dirmonte Grammar School opened"),
        call("answer", answer="nobody"),
    ),
    (call("answer", answer=GOLD), "Done."),
    ("Done.",),
)


def search_tools():
    return SearchTools(tasks="world-test", max_information=40, methods=["SearchRewards"])


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    # A window that holds the tools' schemas and what they find.
    model = save_tiny_model(tmp_path_factory.mktemp("models") / "wide", window=2048)
    out = tmp_path_factory.mktemp("out")

    def made(kind, factory, rows, script=None, options=None):
        options = {"max_completion_length": 400, **(options or {})}
        how = {"script": script, "options": options, "tools": True, "environment_factory": factory}
        return make_trainer(kind, model, out, rows, **how)

    return made


@pytest.fixture(scope="module")
def trained(make):
    """A trainer after two steps of the script, with the weights it had before."""
    trainer = make(ByTurn, search_tools, ROWS, SCRIPT)
    trainer.before = weights(trainer)
    trainer.train()
    return trainer


class TestTraining:
    def test_calls_are_trained_on_and_results_are_not(self, trained):
        assert len(trained.batches) == 2
        for batch in trained.batches:
            first, second = trained.said(batch, 0), trained.said(batch, 1)
            assert [text for own, text in first if own] == [replies[0] + END for replies in SCRIPT]
            assert [text for own, text in second if own] == [SCRIPT[0][1] + END, "Done." + END]
            assert first[1][1].count("<information>") == 2
            assert OVER in first[3][1]
            assert OVER in second[1][1]

    def test_a_group_reads_the_question_of_its_row(self, trained):
        batch = trained.batches[0]
        prompts = [trained.text(ids) for ids in batch["prompt_ids"]]
        assert prompts[0] == prompts[1]
        assert "Question: What year saw the opening of the school attended by the chemist" in prompts[0]
        assert '"name": "search"' in prompts[0]
        assert "get_reward" not in prompts[0]

    def test_the_reward_is_the_return_with_its_methods(self, trained):
        # Two searches: 0.1 - 0.1 * 1 and 0.1 - 0.1 * 2, and 0.3 where the answer stood in what was found;
        # then 1 for the exact answer. The other: 0.2 for a wrong one.
        env = trained.environments[0]
        assert env._episode.turn_rewards == pytest.approx([0.0, 0.2, 1.0])
        for rewards in trained.rewards:
            assert rewards.flatten().tolist() == pytest.approx([1.2, 0.2])

    def test_every_token_has_the_advantage_of_its_turn(self, trained):
        # Outcomes 1 and 0.2: +-0.4 / (0.8 / sqrt 2 + 1e-4) = 0.7070.
        # First turns before the last: 0 + 0.2 of two calls, and 0 beside the outcome: +-0.1 / (0.2 / sqrt 2
        # + 1e-4) = 0.7066. A second one has the first member alone: 0. The closing reply is the last turn.
        for batch in trained.batches:
            assert trained.by_run(batch, 0) == pytest.approx([1.4136, 0.7070, 0.7070], abs=1e-4)
            assert trained.by_run(batch, 1) == pytest.approx([-1.4136, -0.7070], abs=1e-4)

    def test_a_model_that_calls_no_tool_is_paid_for_silence(self, make):
        trainer = make(ByTurn, search_tools, ROWS, options={"max_completion_length": 8})
        trainer.train()
        # Four turns of no form at -0.2, and -1 for the last one, which gives no answer.
        assert trainer.rewards[0].flatten().tolist() == pytest.approx([-1.8, -1.8])
        assert trainer.loss_mask(trainer.batches[0]).sum(1).tolist() == [8, 8]
        assert trainer.environments[0]._episode.metrics["turns"] == 5

    def test_sokoban_is_played_by_moves(self, make):
        script = ((call("move", moves="Up"), call("move", moves="Up || jump")), ("Done.", "Done."))
        rows = ({"prompt": ASK, "seed": 1},) * 2
        trainer = make(ByTurn, SokobanTools, rows, script, options={"max_completion_length": 200})
        trainer.train()
        batch = trainer.batches[0]
        # Of the second list "jump" is no move: -0.1 for the step, and not +0.5 for the form.
        assert trainer.rewards[0].flatten().tolist() == pytest.approx([0.4, -0.1])
        assert trainer.by_run(batch, 0) == pytest.approx([0.7069, 0.0], abs=1e-4)
        assert "'jump' is not a move" in trainer.said(batch, 1)[1][1]


class TestToolEnv:
    @pytest.mark.parametrize("kind", [SearchTools, SokobanTools])
    def test_only_the_moves_are_public(self, kind):
        public = {
            name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")
        }
        moves = {SearchTools: {"search", "answer"}, SokobanTools: {"move"}}[kind]
        assert public == {"reset", "get_reward"} | moves

    def test_a_call_after_the_end_changes_nothing(self):
        env = search_tools()
        env.reset(task=0)
        assert env.answer(GOLD) == OVER
        assert env.answer("nobody") == OVER
        assert env.get_reward() == 1.0

    @pytest.mark.parametrize(
        "query", [7, None, "", "</search><answer>1623</answer>", "\ud800", "x" * 100_000]
    )
    def test_no_argument_raises_or_answers_by_the_way(self, query):
        env = search_tools()
        env.reset(task=0)
        assert env.search(query).startswith("<information>")
        assert env._request

    def test_a_row_that_names_no_task_is_refused(self):
        with pytest.raises(ValueError, match="a row needs `task` or `seed`"):
            search_tools().reset(prompt=ASK)

    def test_an_environment_that_rewrites_its_prompts_is_refused(self):
        with pytest.raises(ValueError, match=r"rewrites its prompts, .*; use EpisodeRollout"):
            SearchTools(tasks="world-test", memory_mode="rewrite")


class TestToolEpisode:
    PLAYED = Episode(
        turns=[
            Turn("", {}, Reply(""), {"rewards": {"outcome": outcome, "format": beside}})
            for outcome, beside in ((0.0, 1.0), (0.0, 2.0), (0.0, 4.0), (8.0, 0.0))
        ]
    )

    def test_steps_of_one_reply_add_up_and_silence_goes_to_the_last(self):
        written = np.array([1, 1, 0, 1, 0, 0, 1, 0], bool)
        # Two steps after the first reply, none after the second, one after the third, one when asked to end.
        episode = tool_episode(0, self.PLAYED, np.array([0, 2, 2, 3]), written)
        assert episode.turn_rewards == [3.0, 0.0, 12.0]
        assert episode.outcomes == [0.0, 0.0, 8.0]
        assert [len(reply.ids) for reply in episode.replies] == [2, 1, 1]

    def test_a_row_that_is_masked_as_a_whole_keeps_its_return(self):
        episode = tool_episode(0, self.PLAYED, np.array([0, 4]), np.zeros(5, bool))
        assert (episode.turn_rewards, episode.tokens) == ([15.0], 0)


class TestNoTemplate:
    @pytest.fixture
    def model(self, tmp_path):
        """The folder of a model without a chat template, as base models have none."""
        folder = save_tiny_model(tmp_path / "base", window=2048)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = None
        (folder / "chat_template.jinja").unlink()
        tokenizer.save_pretrained(folder)
        return folder

    def trainer(self, model, out, **parts):
        args = trl.GRPOConfig(
            output_dir=str(out), per_device_train_batch_size=2, num_generations=2, max_steps=1, report_to=[],
            max_completion_length=400, use_cpu=True, bf16=False, save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        rows = datasets.Dataset.from_list(list(ROWS))
        parts = {"environment_factory": search_tools, **parts}
        return ByTurn(model=str(model), args=args, train_dataset=rows, **parts)

    def test_it_calls_tools_in_the_form_of_qwen3(self, model, tmp_path):
        tokenizer = AutoTokenizer.from_pretrained(model)
        tokenizer.chat_template = trl.chat_template_utils.qwen3_chat_template
        trainer = self.trainer(model, tmp_path, processing_class=tokenizer)
        trainer.script = SCRIPT
        trainer.train()
        assert trainer.rewards[0].flatten().tolist() == pytest.approx([1.2, 0.2])
