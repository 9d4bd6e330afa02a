"""inspect-ai: a task for every environment, found by entry point: `inspect eval memenvs/MemSearchQA-v0`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memenvs import ENV_IDS
from memenvs.adapters.common import component_sums, open_env, turn_record
from memenvs.core.env import Info, text_env_of
from memenvs.core.episode import Episode, Reply
from memenvs.core.optional import check_version
from memenvs.models.endpoint import read_content, with_thought
from memenvs.rollout.collect import Loop
from memenvs.rollout.policy import Request, TurnPolicy
from memenvs.sokoban.render import png_url

check_version("inspect-ai", "0.3.285", "0.4", "inspect")

import anyio  # noqa: E402  # after the check
import anyio.from_thread  # noqa: E402
import anyio.to_thread  # noqa: E402
from inspect_ai import Task, task  # noqa: E402
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.log import transcript  # noqa: E402
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, get_model  # noqa: E402
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # noqa: E402
from inspect_ai.solver import Generate, Solver, TaskState, solver  # noqa: E402


@task
def environment(
    env: str, methods: Sequence[Any] = (), scorer: Any = None, seed: int = 0, **env_args: Any
) -> Task:
    """The tasks of an environment, a sample each; its id is the task's number.

    Input and target are the question and the right answer; the model reads the environment's observations.

    Args:
        env: a text environment's id, also `package.module:Id-v0`; its observations may have pictures.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them; on a command line
            `-T methods=[TAMTRL]`.
        scorer: gives them log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it.
        seed: makes every random choice of an episode except its task.
        **env_args: arguments of the environment.
    """
    start = functools.partial(open_env, env, env_args, methods, scorer, pictures=True)
    opened = start()
    samples = []
    for number in range(text_env_of(opened).n_tasks):
        _, info = opened.reset(seed=seed, options={"task": number})
        privileged: Mapping[str, str] = info["privileged"]
        samples.append(
            Sample(
                input=privileged.get("question", f"{env}, task {info['task']}"),
                target=privileged.get("target", ""),
                id=number,
                metadata={"task": info["task"]},
            )
        )
    opened.close()
    dataset = MemoryDataset(samples, name=env)
    return Task(dataset=dataset, solver=play(start, seed), scorer=episode(), name=env)


def _register(env: str) -> None:
    """Make the tasks of an environment known to inspect under its id."""

    @task(name=env)
    def named(**settings: Any) -> Task:
        return environment(env, **settings)


for _env in ENV_IDS:
    _register(_env)


@solver
def play(start: Callable[[], Any], seed: int) -> Solver:
    """Play an episode; system messages of the sample are read at every turn.

    Where the environment gives a fresh prompt every turn, the model reads nothing else, and the messages of
    the sample are all prompts and replies in turn. `metadata["turns"]` holds
    `memenvs.adapters.common.turn_record` of the reset and of every turn; the transcript shows it after each
    reply.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        system = [message for message in state.messages if message.role == "system"]
        read = [*system]
        state.messages = [*system]
        state.metadata["turns"] = []

        async def reply(request: Request) -> Reply:
            _log(state, request.info, False)
            prompt = ChatMessageUser(content=_content(request))
            state.messages.append(prompt)
            read[:] = [*(system if request.turn.fresh else read), prompt]
            state.output = await get_model().generate(read)
            read.append(state.output.message)
            state.messages.append(state.output.message)
            content = state.output.message.content
            parts = content if isinstance(content, str) else [part.model_dump() for part in content]
            text, thought = read_content(parts)  # inspect splits the thought off
            return Reply(with_thought(request.env, thought, text))

        policy = TurnPolicy(lambda request: anyio.from_thread.run(reply, request))
        play_all = Loop(start, policy, errors="raise").play_all
        episode = Episode(seed=seed, number=state.sample_id)
        # A thread of its own for each episode, whatever anyio's limit of threads is.
        await anyio.to_thread.run_sync(play_all, [[episode]], limiter=anyio.CapacityLimiter(1))
        _log(state, episode.turns[-1].info, True)
        return state

    return solve


@scorer(metrics={"*": [mean(), stderr()]})
def episode() -> Scorer:
    """The environment's metrics, the return, each component's sum, and `complete`: 0 if a limit of inspect
    cut the episode. The score's metadata are those of the last turn, with the reward of each turn.
    """

    async def score(state: TaskState, target: Target) -> Score:
        turns = state.metadata["turns"]
        last = turns[-1]
        sums = {f"reward/{name}": value for name, value in component_sums(turns).items()}
        summary = {"return": sum(last["turn_rewards"]), "complete": float(last["over"])}
        earned = ", ".join(f"{reward:g}" for reward in last["turn_rewards"])
        explanation = f"The turns earned {earned}." if earned else "No turn was played."
        return Score(
            value={**last["metrics"], **summary, **sums},
            answer=state.output.completion,
            explanation=explanation,
            metadata=last,
        )

    return score


def _log(state: TaskState, info: Info, over: bool) -> None:
    turn = {**turn_record(info), "over": over}
    state.metadata["turns"].append(turn)
    if info["turn"]:
        transcript().info(turn, source="memenvs")


def _content(request: Request) -> str | list[ContentText | ContentImage]:
    """What a model reads next: a text, and with it the picture of an observation that has one."""
    seen: Any = request.observation
    if isinstance(seen, str):
        return request.turn.text
    return [ContentText(text=request.turn.text), ContentImage(image=png_url(seen["image"]))]
