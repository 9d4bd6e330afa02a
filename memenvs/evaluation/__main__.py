"""The commands that measure: `python -m memenvs evaluate COMMAND …`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

COMMANDS = {
    "run": "play every task n times and average every metric, with intervals",
    "discriminate": "how well a measure tells true contexts from corrupted ones (InfoMem section 5.1)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Hand the command line to a command's own `main`; its modules load when it is asked for."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["-h"], ["--help"]):
        lines = [f"  {name:14}{text}" for name, text in COMMANDS.items()]
        usage = ["usage: python -m memenvs evaluate COMMAND …", "", *lines, ""]
        sys.stdout.write("\n".join([*usage, "`COMMAND --help` shows its options and examples.", ""]))
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"memenvs evaluate: give a command: {', '.join(COMMANDS)} (--help tells more)\n")
        return 2
    if arguments[0] == "run":
        from memenvs.evaluation.run import main as command
    else:
        from memenvs.evaluation.discriminate import main as command
    return command(arguments[1:])


if __name__ == "__main__":
    raise SystemExit(main())
