"""An adapter's messages for a trainer that is missing, older, newer, or lacks a hook."""

import warnings

import pytest

from memenvs.core.optional import check_hooks, check_version


@pytest.fixture
def installed(monkeypatch):
    """Make any package have the given version."""
    return lambda found: monkeypatch.setattr("importlib.metadata.version", lambda package: found)


def test_a_missing_trainer_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r'no-such-trainer is not installed.*\[some\]"'):
        check_version("no-such-trainer", "1.16", "1.17", "some")


@pytest.mark.parametrize("found", ["1.15.9", "1.9", "0.1", "nonsense"])  # 1.9 is below 1.16, as numbers
def test_an_older_version_is_refused_with_the_extra(installed, found):
    installed(found)
    with pytest.raises(ImportError, match=rf"trl {found} is too old.*1\.16 or later.*\[trl\]"):
        check_version("trl", "1.16", "1.17", "trl")


@pytest.mark.parametrize("found", ["1.17", "1.17.0rc1", "2.0"])
def test_a_newer_version_is_used_with_a_warning(installed, found):
    installed(found)
    with pytest.warns(UserWarning, match=rf"trl {found} is newer.*pip install 'trl<1\.17'"):
        check_version("trl", "1.16", "1.17", "trl")


@pytest.mark.parametrize("found", ["1.16", "1.16.0", "1.16.9", "1.16.1.post2"])
def test_a_tested_version_passes(installed, found):
    installed(found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version("trl", "1.16", "1.17", "trl")


def test_a_trainer_without_a_method_that_is_overridden_is_refused():
    with pytest.raises(ImportError, match="this version of trl has no method _score"):
        check_hooks(dict, ["keys", "_score"], "trl")
    check_hooks(dict, ["keys"], "trl")
