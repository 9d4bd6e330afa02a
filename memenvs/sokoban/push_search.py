"""Few pushes: a layout with boxes and player in, a solution push by push out.

Best-first search over pushes. A node is a set of boxes with the region the player can walk in; it is told
from others by both. The order is pushes so far + weight x bound: weight 1 finds the fewest pushes (A*), a
greater one a solution sooner.
"""

from heapq import heappop, heappush

from memenvs.sokoban.bound import PushBound
from memenvs.sokoban.budget import Budget
from memenvs.sokoban.layout import FAR, Layout

_Node = tuple[
    int, int, int, int
]  # boxes, the player's square after the push, index of the node before, pushes

_LAST = (1 << 40) - 1


def search_pushes(layout: Layout, boxes: int, player: int, weight: int, budget: Budget) -> list[int] | None:
    """The actions of a solution, None if there is none. Raises BudgetSpent. Masks as in `Layout`."""
    bound = PushBound(layout)
    if bound(boxes) >= FAR:
        return None
    nodes: list[_Node] = [(boxes, player, -1, 0)]
    # One integer orders the heap: the priority, then the newest node first.
    heap, opened, closed = [_LAST], {(boxes, player)}, set()
    while heap:
        index = _LAST - (heappop(heap) & _LAST)
        boxes, player, _, pushes = nodes[index]
        region = layout.reach(player, boxes)
        if (boxes, region) in closed:
            continue
        closed.add((boxes, region))
        budget.spend()
        if not boxes & ~layout.targets:
            return _actions(layout, nodes, index)
        for child in _pushes(layout, boxes, region):
            estimate = bound(child[0])
            if estimate < FAR and child not in opened:
                opened.add(child)
                heappush(heap, (pushes + 1 + weight * estimate) << 40 | _LAST - len(nodes))
                nodes.append((*child, index, pushes + 1))
    return None


def _pushes(layout: Layout, boxes: int, region: int) -> list[tuple[int, int]]:
    """All pushes of a player in `region` that end on live squares: boxes after, player after."""
    found, room = [], layout.live & ~boxes
    for delta in (layout.width, 1):
        down, up = (region << delta & boxes) << delta & room, (region >> delta & boxes) >> delta & room
        while down:
            to = down & -down
            down ^= to
            found.append((boxes ^ to ^ to >> delta, to >> delta))
        while up:
            to = up & -up
            up ^= to
            found.append((boxes ^ to ^ to << delta, to << delta))
    return found


def _actions(layout: Layout, nodes: list[_Node], index: int) -> list[int]:
    """The actions along the nodes to `index`: the shortest walk to each push, then the push."""
    chain = []
    while index >= 0:
        chain.append(nodes[index])
        index = nodes[index][2]
    actions: list[int] = []
    directions = (-layout.width, layout.width, -1, 1)
    for (boxes, player, _, _), (pushed, after, _, _) in zip(chain[::-1], chain[-2::-1], strict=False):
        delta = (pushed & ~boxes).bit_length() - after.bit_length()  # the player stands where the box was
        start = after >> delta if delta > 0 else after << -delta
        actions += walk(layout, boxes, player, start)
        actions.append(directions.index(delta))
    return actions


def walk(layout: Layout, boxes: int, start: int, end: int) -> list[int]:
    """The actions of a shortest walk round the boxes; `end`, a mask of one square, must be in reach."""
    width, free = layout.width, layout.floor & ~boxes
    waves, wave, seen = [start], start, start
    while not wave & end:
        wave = (wave << 1 | wave >> 1 | wave << width | wave >> width) & free & ~seen
        seen |= wave
        waves.append(wave)
    actions = []
    for earlier in waves[-2::-1]:
        for action, before in enumerate((end << width, end >> width, end << 1, end >> 1)):
            if before & earlier:
                actions.append(action)
                end = before
                break
    return actions[::-1]
