r"""Write episodes of `smollm2-caller` as the log that ships, of OpenAI chat messages.

memenvs build world --split test --seed 0 --num-tasks 128 --entities 1000 --documents 20 --hops 1 \
    --tokenizer world --out onehop
memenvs evaluate run --policy hf:smollm2-caller --temperature 1.0 --samples 4 --max-new-tokens 200 \
    --env MemToolQA-v0 --env-args tasks=onehop k=3 tokenizer=world --task 0:4 --out runs/one
memenvs evaluate run --policy hf:smollm2-caller --temperature 1.0 --samples 4 --max-new-tokens 200 \
    --env MemToolQA-v0 --env-args tasks=world-test k=3 tokenizer=world --task 0:6 --out runs/many
python -m research.record_log data/example-log.jsonl runs/one/episodes.jsonl runs/many/episodes.jsonl
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from memenvs.core.episode import Episode
from memenvs.core.episode_file import read_episodes

_TOOL = re.compile(r"\n*<tool>\s*(\{.*\})\s*</tool>", re.DOTALL)


def record(episode: Episode) -> dict[str, Any]:
    """An episode as a line of chat messages, with what was asked, the answers, and the reward."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": episode.turns[0].observation}]
    for number, turn in enumerate(episode.turns):
        message: dict[str, Any] = {"role": "assistant", "content": turn.action}
        if called := _TOOL.search(turn.action):
            call = json.loads(called[1])
            function = {"name": call["name"], "arguments": json.dumps(call["args"], ensure_ascii=False)}
            message["content"] = _TOOL.sub("", turn.action)
            message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
        messages.append(message)
        if result := turn.info["feedback"].strip():
            messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": result})
    privileged = episode.turns[0].before["privileged"]
    return {
        "messages": messages,
        "question": privileged["question"],
        "answers": privileged["answers"][0],
        "reward": episode.metrics["success"],
        "model": "smollm2-caller",
    }


def main(out: str, *sources: str) -> None:
    """Write the file of messages."""
    lines = [record(episode) for source in sources for episode in read_episodes(source)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
