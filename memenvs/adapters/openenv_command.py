"""The command that serves an environment to OpenEnv; its help needs no extra."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from memenvs.cli import NAMED, Parser


def main(argv: Sequence[str] | None = None) -> int:
    """Serve an environment: `python -m memenvs adapters.openenv --env MemSearchQA-v0`."""
    parser = Parser(prog="python -m memenvs adapters.openenv", description="Serve an environment to OpenEnv.")
    parser.add_argument("--env", required=True, help="an environment's id")
    parser.add_argument("--env-args", **NAMED, help="its arguments, or one JSON object")
    parser.add_argument("--sessions", type=int, default=64, help="episodes at once (default 64)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default loopback)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at (default 8000)")
    return parser.run(serve, argv)


def serve(args: argparse.Namespace) -> None:
    """Serve the environment that the options describe."""
    from memenvs.adapters.openenv import make_app  # isort: skip  # names the extra where it is missing

    import uvicorn

    uvicorn.run(make_app(args.env, args.sessions, env_args=args.env_args), host=args.host, port=args.port)
