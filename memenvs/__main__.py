"""`python -m memenvs COMMAND …`."""

from memenvs.commands import console

if __name__ == "__main__":
    console()
