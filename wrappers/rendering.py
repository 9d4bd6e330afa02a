"""The text prompt of a method comes in; what a scorer's model is to be shown goes out."""

from __future__ import annotations

from collections.abc import Callable

from memenvs.prompts import Template


def prompt_renderer(template: str | None) -> Callable[[str], str]:
    """Fills `{prompt}` of a template; without one a prompt is shown as it is.

    Raises:
        ValueError: the template has no place `{prompt}`.
    """
    if template is None:
        return str
    filled = Template(template, required=("prompt",), name="prompt")
    return lambda prompt: filled.fill(prompt=prompt)
