# test_hilo.py
"""The tests that every bundled environment passes, for Hilo-v0."""

import pytest
from memenvs.testing import *

pytestmark = pytest.mark.parametrize("env_id", ["hilo:Hilo-v0"])
