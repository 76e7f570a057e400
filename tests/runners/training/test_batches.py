"""The captions of an epoch: all of them, or one of each image, drawn anew."""

from dataclasses import replace

import numpy as np
import torch

from goalgrid.grid.expansion import Trial
from goalgrid.grid.identity import derived_seed
from goalgrid.runners.training.batch_sizes import batches_of_epoch
from goalgrid.runners.training.inputs import batches, captions_of_epoch, prepare
from goalgrid.runners.training.machine import Machine


def test_an_epoch_of_one_caption_an_image_has_each_image_once_and_draws_anew(small_trial: Trial) -> None:
    dataset = small_trial.settings.dataset.model_copy(update={"train_images": None})
    whole = small_trial.settings.model_copy(update={"dataset": dataset})
    inputs = prepare(whole, Machine())
    train = whole.train.model_copy(update={"captions": "one", "batch_size": 128})
    settings, owners = whole.model_copy(update={"train": train}), inputs.pairs.train.image_of_text
    orders = [torch.cat(list(batches(settings, inputs, epoch).rows)).numpy() for epoch in (0, 0, 1)]
    assert orders[0].tolist() == orders[1].tolist() != orders[2].tolist()
    for order in orders:
        assert sorted(owners[order]) == sorted(set(owners))
    assert (
        len(orders[0])
        == captions_of_epoch(settings.dataset, train, inputs.pairs.train)
        == len(inputs.pairs.train.images)
    )
    assert len(batches(settings, inputs, 0)) == batches_of_epoch(len(orders[0]), train) == -(-len(orders[0]) // 128)
    drawn = derived_seed(settings, "batches of epoch 0")
    shuffled = torch.randperm(len(owners), generator=torch.Generator().manual_seed(drawn)).tolist()
    literal, seen = [], set[int]()
    for caption in shuffled:
        if owners[caption] not in seen:
            seen.add(owners[caption])
            literal.append(caption)
    assert orders[0].tolist() == literal
    picks = np.bincount(orders[0] % 5, minlength=5)
    assert picks.min() > 0.1 * len(orders[0]), "every caption of an image may be drawn"
    fewer = replace(inputs.pairs.train, image_of_text=np.zeros(len(owners), dtype=np.int64))
    assert captions_of_epoch(settings.dataset, train, fewer) == 1


def test_every_epoch_and_seed_draws_order_views_and_words_anew(small_trial: Trial) -> None:
    whole = small_trial.settings
    other = whole.model_copy(update={"seed": whole.seed + 1})
    inputs = prepare(whole, Machine())
    epochs = [batches(settings, inputs, epoch) for settings in (whole, other) for epoch in range(3)]
    for seeds in ([epoch.views for epoch in epochs], [epoch.words for epoch in epochs]):
        assert len(set(seeds)) == 6
    assert len({tuple(epoch.rows[0].tolist()) for epoch in epochs}) == 6
    again = batches(whole, inputs, 2)
    assert (again.views, again.words) == (epochs[2].views, epochs[2].words)
    assert all(one.equal(same) for one, same in zip(again.rows, epochs[2].rows, strict=True))
