"""RGB frames come in; a person sees them in a window, through pygame."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.extras import require


class Window:
    """A window that opens with its first frame.

    Args:
        title: of the window.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._pygame: Any = None

    def show(self, frame: NDArray[np.uint8], fps: float) -> None:
        """Show a frame (H, W, 3) and wait 1 / `fps` seconds.

        Raises:
            ImportError: pygame is not installed.
        """
        if self._pygame is None:
            self._pygame = require("pygame", "human")
            self._pygame.init()
            self._screen = self._pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            self._pygame.display.set_caption(self._title)
        surface = self._pygame.surfarray.make_surface(frame.swapaxes(0, 1))
        self._screen.blit(surface, (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()
        self._pygame.time.wait(round(1000 / fps))

    def close(self) -> None:
        """Close the window."""
        if self._pygame is not None:
            self._pygame.display.quit()
            self._pygame = None
