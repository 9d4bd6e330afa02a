"""The actions of an environment as tools that a model calls, in OpenAI's schema."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from memenvs.core.text import escape_tags


class Tool(NamedTuple):
    """A kind of action, called with one string.

    Attributes:
        name: the tool's name.
        description: what it does, for the model.
        argument: its argument's name.
        meaning: what the argument is.
        act: makes the part of a reply that does the same.
    """

    name: str
    description: str
    argument: str
    meaning: str
    act: Callable[[str], str]

    @property
    def schema(self) -> dict[str, Any]:
        """The tool as an entry of `tools` in OpenAI's requests."""
        parameters = {
            "type": "object",
            "properties": {self.argument: {"type": "string", "description": self.meaning}},
            "required": [self.argument],
        }
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


def as_thought(thought: str, content: str, act: str, tag: str = "think") -> str:
    r"""A reply that thinks inside `<think>…</think>`, or another tag, what a model wrote, then acts.

    >>> as_thought("Where?", "I look it up.", "<search>dam</search>")
    '<think>Where?\nI look it up.</think><search>dam</search>'
    """
    written = "\n".join(filter(None, (thought, content.strip())))
    return f"<{tag}>{escape_tags(written)}</{tag}>{act}"


@dataclass(frozen=True)
class ToolUse:
    """How an agent that calls tools plays an environment: each call becomes a reply in text.

    Attributes:
        tools: the kinds of actions.
        prompt: gives what the agent reads in place of a fresh observation, without the form of replies.
        hint: what the environment's feedback says about a reply without an action.
        compose: makes a reply of a thought, the text of the message and the part that acts.
    """

    tools: tuple[Tool, ...]
    prompt: Callable[[], str]
    hint: str
    compose: Callable[[str, str, str], str] = as_thought

    def call(self, name: str, arguments: Any, thought: str = "", content: str = "") -> tuple[str, str]:
        """The reply that a call makes, and what is wrong with the call; nothing raises.

        A call that is wrong becomes a reply without an action. A number counts as its text.

        Args:
            name: the tool's name.
            arguments: the arguments, as JSON gives them.
            thought: what the model thought first, where the server separates it.
            content: the text of the model's message.
        """
        content = content.replace("<think>", "").replace("</think>", "")
        tool = {tool.name: tool for tool in self.tools}.get(name)
        value = arguments.get(tool.argument) if tool and isinstance(arguments, Mapping) else None
        if tool and isinstance(value, (str, int, float)):
            return self.compose(thought, content, tool.act(escape_tags(str(value)))), ""
        fault = f"There is no tool {name!r:.40}."
        if tool:
            fault = f"The tool {name} takes the string {tool.argument}."
        called = escape_tags(f"{name}({reprlib.repr(arguments)})")  # short, however deep they are
        return self.compose(thought, content, called), f"{fault} {self._ask}"

    @property
    def no_call(self) -> str:
        """What is wrong with a message without a call, which is read as text."""
        return f"You called no tool. {self._ask}"

    def explain(self, feedback: str, fault: str) -> str:
        """The environment's feedback, with what is wrong with a call instead of its hint."""
        return feedback.replace(self.hint, fault) if fault else feedback

    @property
    def _ask(self) -> str:
        return f"Call {' or '.join(tool.name for tool in self.tools)}."
