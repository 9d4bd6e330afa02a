"""The fewest moves: a layout with boxes and player in, a shortest list of actions out.

A* over whole waves of player squares: a node is a set of boxes with all the squares, in one mask, that the
player can first stand on after g moves. A wave spreads in one shift, whatever its size. The bound depends
on the boxes alone, so that a wave has one f = g + bound. Walking raises f by 1; a push by 0 or more, for it
may lead far astray.
"""

from collections import defaultdict

from memenvs.sokoban.bound import PushBound
from memenvs.sokoban.budget import Budget
from memenvs.sokoban.layout import FAR, Layout


class MoveSearch:
    """One search for a solution with the fewest moves."""

    def __init__(self, layout: Layout, budget: Budget) -> None:
        self._layout, self._budget, self._bound = layout, budget, PushBound(layout)
        self._open: defaultdict[int, dict[int, int]] = defaultdict(dict)  # f to boxes to player squares
        self._seen: dict[int, int] = {}  # boxes to the player squares of all waves so far
        self._waves: dict[int, dict[int, int]] = {}  # boxes to g to the player squares first reached then

    def run(self, boxes: int, player: int) -> list[int] | None:
        """A solution from boxes and player, both masks; None if there is none. Raises BudgetSpent."""
        f = self._bound(boxes)
        if f >= FAR:
            return None
        self._open[f][boxes] = player
        while self._open:
            f = min(self._open)
            now = self._open[f]
            while now:
                boxes, arrived = now.popitem()
                new = arrived & ~self._seen.get(boxes, 0)
                if not new:
                    continue
                self._budget.spend()
                moves = f - self._bound(boxes)
                self._seen[boxes] = self._seen.get(boxes, 0) | new
                waves = self._waves.setdefault(boxes, {})
                waves[moves] = waves.get(moves, 0) | new
                if not boxes & ~self._layout.targets:
                    return self._trace(boxes, new & -new, moves)
                self._spread(boxes, new, f)
            del self._open[f]
        return None

    def _spread(self, boxes: int, wave: int, f: int) -> None:
        """Open what one more move makes of a wave: squares walked to, and boxes pushed."""
        layout, known = self._layout, self._bound.known
        width, room, moves = layout.width, layout.live & ~boxes, f - known[boxes] + 1
        walked = wave << 1 | wave >> 1 | wave << width | wave >> width
        walked &= layout.floor & ~boxes & ~self._seen[boxes]
        if walked:
            later = self._open[f + 1]
            later[boxes] = later.get(boxes, 0) | walked
        for delta in (-width, width, -1, 1):
            landing = _shift(_shift(wave, delta) & boxes, delta) & room
            while landing:
                to = landing & -landing
                landing ^= to
                left = _shift(to, -delta)  # the box left this square, and the player stands there now
                pushed = boxes ^ left ^ to
                bound = known.get(pushed)
                if bound is None:
                    bound = self._bound(pushed)
                if bound < FAR:
                    later = self._open[moves + bound]
                    later[pushed] = later.get(pushed, 0) | left

    def _trace(self, boxes: int, player: int, moves: int) -> list[int]:
        """Walk back over the waves from a solved board, one move at a time."""
        width = self._layout.width
        directions, actions = (-width, width, -1, 1), []
        while moves:
            moves -= 1
            for delta in directions:
                before, ahead = _shift(player, -delta), _shift(player, delta)
                if before & self._waves[boxes].get(moves, 0):
                    break
                earlier = boxes ^ ahead ^ player
                if boxes & ahead and before & self._waves.get(earlier, {}).get(moves, 0):
                    boxes = earlier
                    break
            actions.append(directions.index(delta))
            player = before
        return actions[::-1]


def _shift(mask: int, delta: int) -> int:
    return mask << delta if delta > 0 else mask >> -delta
