"""Simulate PyTorch's caching allocator: the memory a GPU would reserve as tensors are allocated and freed."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import count

ROUND = 512
"""Block sizes are multiples of these bytes."""
SMALL, SMALL_SEGMENT = 2**20, 2 * 2**20
"""Sizes of the largest small block, and of the segments that small blocks are cut from."""
MEDIUM, MEDIUM_SEGMENT = 10 * 2**20, 20 * 2**20
"""Large blocks below the first size are cut from segments of the second size; larger ones get their own segment."""
LARGE_ROUND = 2 * 2**20
"""Sizes of these own segments are multiples of this many bytes."""


@dataclass(eq=False, slots=True)
class Block:
    """A part of a segment, linked to its neighbours."""

    size: int
    small: bool
    number: int
    free: bool = False
    before: "Block | None" = None
    after: "Block | None" = None


@dataclass(eq=False, slots=True)
class CachingAllocator:
    """Reserves segments, cuts blocks from them and merges free neighbours, as `c10/cuda/CUDACachingAllocator.cpp` does.

    It never runs out of memory and never returns a segment, so its reserved memory is an upper bound.
    """

    reserved: int = 0
    most_reserved: int = 0
    _free: dict[bool, list[tuple[int, int, Block]]] = field(default_factory=lambda: {True: [], False: []})
    _numbers: "count[int]" = field(default_factory=count)

    def allocate(self, size: int) -> Block:
        """Return the smallest free block of at least `size` bytes, or a block of a new segment."""
        size = max(ROUND, -(-size // ROUND) * ROUND)
        small = size <= SMALL
        pool = self._free[small]
        place = bisect_left(pool, (size,))
        if place < len(pool):
            block = pool.pop(place)[2]
        else:
            block = Block(_segment(size), small, next(self._numbers))
            self.reserved += block.size
            self.most_reserved = max(self.most_reserved, self.reserved)
        rest = block.size - size
        if rest >= (ROUND if small else SMALL + 1):
            self._cut(block, size)
        block.free = False
        return block

    def release(self, block: Block) -> None:
        """Free a block, and merge it with its free neighbours."""
        if block.before and block.before.free:
            self._take(block.before)
            block = self._joined(block.before, block)
        if block.after and block.after.free:
            self._take(block.after)
            block = self._joined(block, block.after)
        self._put(block)

    def _cut(self, block: Block, size: int) -> None:
        rest = Block(block.size - size, block.small, next(self._numbers), before=block, after=block.after)
        if block.after:
            block.after.before = rest
        block.size, block.after = size, rest
        self._put(rest)

    @staticmethod
    def _joined(first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after:
            second.after.before = first
        return first

    def _put(self, block: Block) -> None:
        block.free = True
        insort(self._free[block.small], (block.size, block.number, block))

    def _take(self, block: Block) -> None:
        pool = self._free[block.small]
        pool.pop(bisect_left(pool, (block.size, block.number)))


def _segment(size: int) -> int:
    """Return the bytes of a new segment for a block of this size."""
    if size <= SMALL:
        return SMALL_SEGMENT
    return MEDIUM_SEGMENT if size < MEDIUM else -(-size // LARGE_ROUND) * LARGE_ROUND
