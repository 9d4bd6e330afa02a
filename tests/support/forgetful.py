"""An episode whose prompts leave out the thoughts of earlier replies, beside what a chat template renders."""

import numpy as np
import transformers

from memenvs.models import Reply
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.settings import ChatSettings
from memenvs.rollout.collect import collect

REPLIES = [
    "<think>\nWhere is it?\n</think>\n\n<answer>Up</answer>",
    "<answer>Down</answer>",
    "<think>One</think><think>two</think>\n<answer>Left</answer>",
    "<think>no end of it",
]


class Repeater(ChatPolicy):
    """Gives the same replies in every episode, and notes what it reads."""

    def __init__(self, tokens, replies):
        super().__init__(tokens)
        self.texts, self.read = replies, []

    def sample(self, prompts, rngs, max_new_tokens):
        text, self.texts = self.texts[0], self.texts[1:]
        self.read += [self._tokens.decode(prompt) for prompt in prompts]
        ids = self.encode_reply(text)
        return [Reply(self._tokens.reply_text(ids), ids, np.zeros(len(ids)), True)]


def play_without_thoughts(folder, template, opening="", **chat_args):
    """An episode of `REPLIES`, the prompts that were read, and those of the template for the same messages.

    `opening` is what prompts end in, which a reply continues.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    tokens = ChatTokens(tokenizer, settings=ChatSettings(chat_args, drop_thoughts=True))
    said = [text.removeprefix(opening) for text in REPLIES]
    policy = Repeater(tokens, said)
    env_args = {"max_turns": len(REPLIES), "level_split": "test"}
    (episode,) = collect("MemSokoban-v0", policy, [0], env_args=env_args)
    messages, rendered = [], []
    for turn, text in zip(episode.turns, said, strict=True):
        messages.append({"role": "user", "content": turn.text})
        settings = {"tokenize": False, "add_generation_prompt": True, **chat_args}
        rendered.append(tokenizer.apply_chat_template(messages, **settings))
        messages.append({"role": "assistant", "content": text})
    return episode, policy, rendered
