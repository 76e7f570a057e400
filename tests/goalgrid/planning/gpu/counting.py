"""An allocator that also counts the bytes in use, which no estimate says."""

from goalgrid.planning.gpu.allocator import Block, CachingAllocator


class Counting(CachingAllocator):
    """Counts the bytes of the blocks that are in use, without gaps."""

    used = most_used = 0

    def allocate(self, size: int) -> Block:
        block = super().allocate(size)
        self.used += block.size
        self.most_used = max(self.most_used, self.used)
        return block

    def release(self, block: Block) -> None:
        self.used -= block.size
        super().release(block)
