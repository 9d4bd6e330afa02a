"""The commands as tests call them, in this process."""

import functools

import memenvs.commands


def run(command, arguments):
    """The exit status of `memenvs COMMAND ARGUMENTS`."""
    try:
        return memenvs.commands.main([*command.split(), *map(str, arguments)])
    except SystemExit as end:  # after help, or options that cannot be read
        return end.code


listing, play, view = (functools.partial(run, name) for name in ("list", "play", "view"))
evaluate, compare = (functools.partial(run, f"evaluate {name}") for name in ("run", "compare"))
table = functools.partial(run, "evaluate table")
