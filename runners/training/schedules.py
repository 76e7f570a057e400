"""What changes from epoch to epoch: the learning rate, and the factor of the loss."""

from grid.settings import TrainSettings


def learning_rate(train: TrainSettings, epoch: int) -> float:
    """Learning rate of the heads in an epoch, counted from 0.

    >>> train = TrainSettings(epochs=3, lr=0.01, decay_every=2, decay_factor=0.5)
    >>> [learning_rate(train, epoch) for epoch in range(3)]
    [0.01, 0.01, 0.005]
    """
    return train.lr * train.decay_factor ** (epoch // train.decay_every)


def ramp(train: TrainSettings, epoch: int, share: float) -> float:
    """Factor of the loss: rises from 0 to 1 in the epochs after the frozen ones, else 1. VSE-infinity's grid recipes.

    Args:
        share: of the epoch trained so far, from 0 to 1.
    """
    since = epoch - train.frozen_epochs
    return (since + share) / train.ramp_epochs if 0 <= since < train.ramp_epochs else 1.0
