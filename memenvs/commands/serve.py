"""`memenvs serve retriever`, `memenvs serve openenv` and `memenvs serve mcp`."""

from __future__ import annotations

import os

from memenvs.commands.options import EnvOptions
from memenvs.core.data import Count, NonNegative, Whole, checked
from memenvs.core.optional import require
from memenvs.core.servers import allowed_hosts
from memenvs.retrieval.encoder import WAIT
from memenvs.retrieval.load import CACHE, CachedRetriever, fingerprint, open_folder
from memenvs.retrieval.protocol import read_token


@checked
def retriever(
    *,
    index: str,
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: Count = 3,
    encoder: str | None = None,
    device: str | None = None,
    cache: Whole = CACHE,
    drain: NonNegative = 20.0,
    token_file: str | None = None,
) -> None:
    """Serve a search index over HTTP until SIGINT or SIGTERM, then answer the waiting requests.

    Examples:
      memenvs serve retriever --index my-index --port 8000
      memenvs serve retriever --index my-index --host 0.0.0.0 --device cuda:0

    Args:
        index: folder made by `memenvs build index`.
        host: address to listen on; 0.0.0.0 opens it to the network.
        port: port to listen on; 0 picks a free one.
        topk: passages per query if a request does not say how many.
        encoder: where the index's encoder is now, if it has moved: a name, a folder or openai:MODEL@URL.
        device: torch device, such as cuda:0; by default a GPU if there is one.
        cache: number of answers to remember; 0 remembers none.
        drain: seconds after SIGTERM in which waiting requests are answered; the rest get 503.
        token_file: file with a token that every request must send as Authorization: Bearer.
    """
    server = require("memenvs.retrieval.server", "search")
    token = read_token(token_file)
    os.environ.setdefault(*WAIT)
    opened = open_folder(index, encoder, device)
    about = {
        "index": index,
        "passages": len(opened.corpus),
        "corpus_sha256": opened.corpus.sha256,
        "fingerprint": fingerprint(opened),
    }
    served = CachedRetriever(opened, cache) if cache else opened
    server.serve(server.create_app(served, about, topk, token, allowed_hosts(host)), host, port, drain)


@checked
def openenv(
    *, environment: EnvOptions, sessions: Count = 64, host: str = "127.0.0.1", port: int = 8000
) -> None:
    """Serve an environment to OpenEnv.

    Examples:
      memenvs serve openenv --env MemSokoban-v0 --env-args max_turns=2

    Args:
        sessions: maximum number of episodes at once.
        host: address to listen on; 0.0.0.0 opens it to the network.
        port: port to listen on.
    """
    from memenvs.adapters.openenv import make_app  # isort: skip  # names the extra where it is missing

    import uvicorn
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    app = make_app(environment.env, sessions, env_args=environment.env_args)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=allowed_hosts(host), www_redirect=False)
    uvicorn.run(app, host=host, port=port)


@checked
def mcp(
    *,
    retriever: str | None = None,
    memory_mode: str | None = None,
    k: Count = 3,
    max_memory: Count = 1024,
    tokenizer: str = "general",
    host: str = "127.0.0.1",
    port: int | None = None,
) -> None:
    """Serve a retriever and a store of memories to MCP clients: search, write_memory and read_memory.

    Examples:
      memenvs serve mcp --retriever lexical:my-index --memory-mode structured
      memenvs serve mcp --memory-mode a_mem --port 8000

    Args:
        retriever: retriever behind `search`: lexical:FILE, lexical:INDEX_OR_TASK_SET, dense:INDEX_DIR or
            http://host:port.
        memory_mode: how a text changes a memory: rewrite, callback, structured or a_mem, as in environments.
        k: passages per search if a client does not say how many.
        max_memory: maximum number of tokens in a memory.
        tokenizer: tokenizer that counts them: general, world, a file, a folder or a Hugging Face id.
        host: address to listen on; 0.0.0.0 opens it to the network.
        port: port of streamable HTTP, at /mcp; by default the client starts the command and uses its standard
            input and output.
    """
    from memenvs.adapters.mcp import make_server

    server = make_server(retriever, memory_mode, k, max_memory, tokenizer)  # type: ignore[arg-type]  # it checks
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=host, port=port)
