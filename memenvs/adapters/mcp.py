"""MCP: a retriever and a store of memories as the tools of a server.

`memenvs serve mcp --retriever lexical:INDEX --memory-mode structured`.
"""

from __future__ import annotations

import threading
from typing import Annotated, Literal

from msgspec import Meta

from memenvs.core.data import Count, checked
from memenvs.core.optional import check_version
from memenvs.core.spaces import clean_text
from memenvs.envs.memory import MODES, Memory, recalled_block
from memenvs.envs.passages import show_passages
from memenvs.retrieval.load import load_retriever
from memenvs.retrieval.protocol import LRUCache
from memenvs.tasks.tokens import load_tokenizer

check_version("mcp", "2.3", "3", "mcp")

from mcp.server import MCPServer  # noqa: E402  # after the check
from pydantic import Field  # noqa: E402

MEMORIES = 1_000
"""Memories that a server keeps, the least recently used dropped first."""

MAX_QUERY, MAX_TEXT = 10_000, 1_000_000  # characters that are read; a model's text may be longer

StoreMode = Literal["rewrite", "callback", "structured", "a_mem"]
Number = Annotated[int, Field(ge=1, le=100, description="how many passages")]
Name = Annotated[str, Field(max_length=100, description="which memory, if you keep several")]


@checked
def make_server(
    retriever: str | None = None,
    memory_mode: StoreMode | None = None,
    k: Annotated[int, Meta(ge=1, le=100)] = 3,
    max_memory: Count = 1024,
    tokenizer: str = "general",
) -> MCPServer:
    """A server with the tool `search`, the tools `write_memory` and `read_memory`, or all three.

    Args:
        retriever: what is searched, as `memenvs.retrieval.load.load_retriever` takes it.
        memory_mode: how a text changes a memory (`memenvs.envs.memory`); its rule is in the description of
            `write_memory`. Memories live as long as the server, under the names that clients give them.
        k: passages a search, unless a client says otherwise.
        max_memory: tokens of a memory.
        tokenizer: counts them, as `memenvs.tasks.tokens.load_tokenizer` takes it.

    Raises:
        ValueError: neither a retriever nor a memory mode, or no such retriever.
    """
    server = MCPServer("memenvs")
    if retriever is not None:
        _add_search(server, retriever, k)
    if memory_mode is not None:
        _add_memory(server, memory_mode, max_memory, tokenizer)
    elif retriever is None:
        raise ValueError("nothing to serve: give a retriever, a memory_mode, or both")
    return server


def _add_search(server: MCPServer, spec: str, default_k: int) -> None:
    retriever = load_retriever(spec)

    @server.tool()
    def search(query: str, k: Number = default_k) -> str:
        """Search a corpus; returns the passages that match the query best."""
        (ids,) = retriever.search([clean_text(query, MAX_QUERY)], k).ids
        return (
            show_passages([passage.contents for passage in retriever.passages(ids)]) or "Nothing was found."
        )


def _add_memory(server: MCPServer, mode_name: StoreMode, limit: int, tokenizer: str) -> None:
    mode = MODES[mode_name](load_tokenizer(tokenizer), limit)
    memories, lock = LRUCache[str, Memory](MEMORIES), threading.Lock()

    def shown(memory: Memory, query: str) -> str:
        parts = [memory.notice, mode.show(memory, query), recalled_block(memory.recalled).strip()]
        return "\n".join(filter(None, parts)) or "The memory is empty."

    @server.tool(description=f"Change the memory; returns what it is now. {mode.asks('The text')}")
    def write_memory(text: str, memory: Name = "main") -> str:
        with lock:
            store = memories.get([memory]).get(memory) or Memory()
            written = mode.write(store, clean_text(text, MAX_TEXT))
            memories.put({memory: store})
            cut = f"\nPart of the text was dropped: a memory has up to {limit} tokens." if written.cut else ""
            return shown(store, "") + cut

    @server.tool()
    def read_memory(query: str = "", memory: Name = "main") -> str:
        """Read the memory; of a store of notes, those that fit the query best."""
        with lock:
            return shown(memories.get([memory]).get(memory) or Memory(), clean_text(query, MAX_QUERY))
