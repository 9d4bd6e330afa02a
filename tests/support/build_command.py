"""`memenvs build`, called from tests."""

from memenvs.commands.build import main


def command(*args):
    """Build what the arguments say; the exit status."""
    return main([str(arg) for arg in args])


def one_line(capsys):
    """What was said on the error stream, which is one line."""
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said
