"""How the learning rate and the factor of the loss change over a training."""

from goalgrid.grid.settings import TrainSettings


def learning_rate(train: TrainSettings, epoch: int) -> float:
    """Learning rate of the heads in an epoch, counted from 0.

    >>> train = TrainSettings(epochs=3, lr=0.01, decay_every=2, decay_factor=0.5)
    >>> [learning_rate(train, epoch) for epoch in range(3)]
    [0.01, 0.01, 0.005]
    """
    return train.lr * train.decay_factor ** (epoch // train.decay_every)


def linear_rate(train: TrainSettings, epoch: int, step: int, steps: int) -> float:
    """Learning rate of the heads in a step: from 0 up in the first `rise_share` of all steps, then down to 0. X-VLM.

    Args:
        step: within the epoch, counted from 0.
        steps: of an epoch.

    >>> train = TrainSettings(epochs=2, lr=0.4, schedule="linear", rise_share=0.25)
    >>> [round(linear_rate(train, epoch, step, 4), 3) for epoch in range(2) for step in range(4)]
    [0.0, 0.2, 0.4, 0.333, 0.267, 0.2, 0.133, 0.067]
    """
    total, done = train.epochs * steps, epoch * steps + step
    rise = int(train.rise_share * total)
    return train.lr * (done / rise if done < rise else (total - done) / (total - rise))


def ramp(train: TrainSettings, epoch: int, share: float) -> float:
    """Factor of the loss: rises from 0 to 1 in the epochs after the frozen ones, else 1. VSE-infinity's grid recipes.

    Args:
        share: of the epoch trained so far, from 0 to 1.
    """
    since = epoch - train.frozen_epochs
    return (since + share) / train.ramp_epochs if 0 <= since < train.ramp_epochs else 1.0
