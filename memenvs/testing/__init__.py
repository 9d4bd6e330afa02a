"""The tests that every text environment passes, for one of your own.

In a test file, with pytest and hypothesis installed (the extra `testing`):

    import pytest
    from memenvs.testing import *

    pytestmark = pytest.mark.parametrize("env_id", ["recall:Recall-v0"])

Every test asks `gym.make(env_id)`; an environment with arguments is registered with them. A test of your own
with the same name replaces one here. `play` plays an episode and returns its steps.
"""

from memenvs.core.optional import require

require("pytest", "testing").register_assert_rewrite("memenvs.testing.conformance")
require("hypothesis", "testing")

from memenvs.testing.conformance import *  # noqa: E402, F403
from memenvs.testing.conformance import __all__ as __all__  # noqa: E402
