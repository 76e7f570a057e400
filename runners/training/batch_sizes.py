"""Sizes of an epoch's batches, and whether replicas can share them. Does not import torch."""

from goalgrid.grid.errors import UserError
from goalgrid.grid.resources import Resources
from goalgrid.grid.settings import TrainSettings


def batch_sizes(captions: int, train: TrainSettings) -> tuple[int, int]:
    """Return the number of full batches in an epoch, and the size of a smaller last batch (0 if there is none).

    A last batch of a single pair is dropped, or any smaller batch with `drop_last`, unless it is the only batch.

    >>> from goalgrid.grid import catalog
    >>> train = catalog.recipe("fc-bow").train.model_copy(update={"batch_size": 4})
    >>> batch_sizes(10, train), batch_sizes(9, train), batch_sizes(3, train)
    ((2, 2), (2, 0), (0, 3))
    >>> dropping = train.model_copy(update={"drop_last": True})
    >>> batch_sizes(10, dropping), batch_sizes(3, dropping)
    ((2, 0), (0, 3))
    """
    whole, rest = divmod(captions, train.batch_size)
    return whole, rest if rest > 1 and not (whole and train.drop_last) else 0


def batches_of_epoch(captions: int, train: TrainSettings) -> int:
    whole, last = batch_sizes(captions, train)
    return whole + bool(last)


def check_batches(train: TrainSettings, captions: int, resources: Resources) -> None:
    """Check that every batch of an epoch has at least one pair per replica; raise UserError if not."""
    whole, last = batch_sizes(captions, train)
    least, replicas = last or (train.batch_size if whole else 0), resources.replicas
    if replicas > 1 and least < replicas:
        raise UserError(
            f"the smallest batch of an epoch has {least} pairs ({captions:,} in batches of {train.batch_size}): too "
            f"few for resources.replicas = {replicas}, since each takes a part. Use at most {max(least, 1)} replicas."
        )
