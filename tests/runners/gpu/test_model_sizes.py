"""Sizes of models that nobody trained, against the literal sum of their layers and against a record."""

import json

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.settings import TrialSettings
from goalgrid.grid.store.home import Home
from goalgrid.results.records import record
from goalgrid.runners.gpu.architectures import ModelSize, size_of


def test_scan_is_the_sum_of_its_layers() -> None:
    image = 2048 * 1024 + 1024
    words, gates = 11_353 * 300, 3 * 1024 * (300 + 1024) + 2 * 3 * 1024
    whole = image + words + 2 * gates
    assert size_of(catalog.recipe("scan-t2i").model) == ModelSize(whole, whole)


def test_a_frozen_network_is_counted_apart() -> None:
    resnet_152, head = 58_143_808, 2048 * 1024 + 1024  # as published, without its last layer
    words, gates = 11_353 * 300, 3 * 1024 * (300 + 1024) + 2 * 3 * 1024
    own = head + words + gates
    assert size_of(catalog.recipe("vsepp-r152").model) == ModelSize(own, own, resnet_152)
    assert size_of(catalog.recipe("vsepp-r152-ft").model) == ModelSize(own + resnet_152, own + resnet_152)


def test_a_trained_model_has_the_size_in_its_record(trained: Home) -> None:
    folder = trained.trials()[0]
    (row,) = record.collect([folder.record]).to_pylist()
    model = TrialSettings.model_validate_json(row["settings"]).model
    found = size_of(model, len(json.loads(folder.vocabulary.read_text())))
    assert (found.parameters, found.learning) == (row["parameters"], row["parameters_learning"])


def test_unknown_weights_are_named_with_what_to_do() -> None:
    model = catalog.recipe("vsepp-r152").model
    own = model.model_copy(update={"image": model.image.model_copy(update={"weights": "me/own"})})
    with pytest.raises(UserError, match=r"'me/own'.*goalgrid table GRID --metric parameters"):
        size_of(own)
