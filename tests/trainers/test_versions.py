"""Tests of the words an adapter has for a trainer that is missing or of another version."""

import pytest

from memenvs.core.optional import check_version


@pytest.fixture
def installed(monkeypatch):
    """Make any package have the given version."""
    return lambda found: monkeypatch.setattr("importlib.metadata.version", lambda package: found)


def test_a_missing_trainer_is_named_with_its_extra():
    with pytest.raises(ImportError, match=r'no-such-trainer is not installed.*\[some\]"'):
        check_version("no-such-trainer", "1.16", "1.17", "some")


@pytest.mark.parametrize("found", ["1.15.9", "1.17", "1.17.0rc1", "2.0", "0.1", "nonsense"])
def test_another_version_is_refused_with_the_range_and_the_extra(installed, found):
    installed(found)
    with pytest.raises(ImportError) as error:
        check_version("trl", "1.16", "1.17", "trl")
    wanted = 'is not supported, only 1.16 up to below 1.17; install it with `pip install -e ".[trl]"`'
    assert str(error.value) == f"trl {found} {wanted}"


@pytest.mark.parametrize("found", ["1.16", "1.16.0", "1.16.9", "1.16.1.post2"])
def test_a_version_in_the_range_passes(installed, found):
    installed(found)
    assert check_version("trl", "1.16", "1.17", "trl") is None


def test_numbers_are_compared_as_numbers(installed):
    installed("1.9")  # as texts "1.9" stands behind "1.16"
    with pytest.raises(ImportError, match="not supported"):
        check_version("trl", "1.16", "1.17", "trl")
