"""A lower bound on pushes: boxes in, the fewest pushes that could bring them all home out."""

from collections.abc import Sequence

from memenvs.sokoban.deadlock import lost
from memenvs.sokoban.layout import FAR, Layout, squares


class PushBound:
    """The least total of pushes with a target for every box, each box alone on the board; FAR if lost.

    It never overestimates, and one push lowers it by one at most, so that A* with it is exact. Results are
    kept in `known`, boxes to bound: a search looks there first.
    """

    def __init__(self, layout: Layout) -> None:
        self.known: dict[int, int] = {}
        self._layout = layout
        self._costs = list(zip(*layout.pushes, strict=True))  # a row a square, a column a target

    def __call__(self, boxes: int) -> int:
        """The bound in pushes for a mask of boxes."""
        bound = self.known.get(boxes)
        if bound is None:
            bound = self.known[boxes] = self._compute(boxes)
        return bound

    def _compute(self, boxes: int) -> int:
        layout = self._layout
        if boxes & (boxes - 1) == 0:
            return layout.nearest[boxes.bit_length() - 1] if boxes else 0
        if boxes.bit_count() > layout.targets.bit_count() or lost(layout, boxes):
            return FAR
        return min(FAR, assignment([self._costs[square] for square in squares(boxes)]))


def assignment(costs: Sequence[Sequence[int]]) -> int:
    """The least total when each row takes a column of its own: R rows, C columns, R <= C.

    Rows enter one by one. Each finds the cheapest chain of rows that give up their column for another
    (Dijkstra over columns, on costs less the prices that the chains before have set).
    """
    columns = range(len(costs[0]))
    holder = [-1] * len(columns)
    column_price, row_price = [0] * len(columns), [0] * len(costs)
    for entering in range(len(costs)):
        reached, came_from, settled = [4 * FAR] * len(columns), [-1] * len(columns), [False] * len(columns)
        row, column, distance = entering, -1, 0
        while row >= 0:
            offset, row_costs = distance - row_price[row], costs[row]
            nearest, distance = -1, 4 * FAR
            for c in columns:
                if settled[c]:
                    continue
                through = row_costs[c] + offset - column_price[c]
                if through < reached[c]:
                    reached[c], came_from[c] = through, column
                if reached[c] < distance:
                    nearest, distance = c, reached[c]
            settled[nearest] = True
            column, row = nearest, holder[nearest]
        for c in columns:
            if settled[c] and holder[c] >= 0:
                row_price[holder[c]] += distance - reached[c]
                column_price[c] -= distance - reached[c]
        row_price[entering] += distance
        while column >= 0:
            previous = came_from[column]
            holder[column] = holder[previous] if previous >= 0 else entering
            column = previous
    return sum(costs[row][c] for c, row in enumerate(holder) if row >= 0)
