"""A harness of verifiers that asks for one chat completion a turn, in this process."""

from __future__ import annotations

from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire


class ReplyHarnessConfig(vf.HarnessConfig):
    """`chat_args`: arguments of the endpoint's chat template, sent as `chat_template_kwargs`."""

    chat_args: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it


class ReplyHarness(vf.Harness[ReplyHarnessConfig]):
    """One chat completion a turn: no program, no tools, no sandbox.

    verifiers' own `null` harness does the same by a Python program that is started anew at every turn.
    """

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Send the conversation; verifiers listens in between, sets the sampling and records the reply."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        fields: dict[str, Any] = {"model": ctx.model, "messages": messages}
        if self.config.chat_args:
            fields["chat_template_kwargs"] = self.config.chat_args
        async with httpx.AsyncClient(timeout=None) as client:  # verifiers has time limits of its own
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json=fields,
            )
        return vf.ProgramResult(0, "", "") if answer.is_success else vf.ProgramResult(1, "", answer.text)
