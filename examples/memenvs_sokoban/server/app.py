"""MemSokoban-v0, served to OpenEnv."""

from memenvs.adapters.openenv import make_app

app = make_app("MemSokoban-v0")


def main() -> None:
    """Serve it on port 8000."""
    import uvicorn

    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
