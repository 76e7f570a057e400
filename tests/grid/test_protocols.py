"""Protocols: every data set names known ones, a grid may choose among them, and the default keeps its ids."""

import pytest

from goalgrid.grid import catalog
from goalgrid.grid.errors import UserError
from goalgrid.grid.expansion import Trial, expand, trials_of
from goalgrid.grid.protocols import PROTOCOLS, protocol, shown

from ..conftest import checked

COCO = {
    "name": "g",
    "datasets": ["coco"],
    "recipes": ["fc-bow"],
    "objectives": ["con_con"],
    "seeds": [0],
    "data": {"coco": {"root": "/data"}},
}


def trials(**tables: object) -> list[Trial]:
    return trials_of(expand(checked({**COCO, **tables})))


@pytest.mark.parametrize("name", catalog.names("datasets"))
def test_every_protocol_of_a_data_set_is_known_and_fits_its_official_test_split(name: str) -> None:
    dataset = catalog.dataset(name)
    for each in dataset.protocols:
        assert PROTOCOLS[each].images == dataset.splits["test"].images
        assert PROTOCOLS[each].fold == (1000 if each == "coco-5x1k" else None)


def test_every_protocol_has_a_data_set_and_its_own_name() -> None:
    used = {each for name in catalog.names("datasets") for each in catalog.protocols(name)}
    assert used == set(PROTOCOLS)


def test_data_of_ones_own_are_evaluated_on_their_whole_test_split() -> None:
    assert catalog.protocols("mine") == ["mine-test"]
    assert (protocol("mine-test").images, protocol("mine-test").fold) == (None, None)
    assert shown("mine-test") == "mine-test"


def test_the_first_is_the_default_and_naming_it_changes_no_id() -> None:
    (default,), (named,) = trials(), trials(set={"dataset.protocol": "coco-5k"})
    assert default.settings.dataset.protocol == "coco-5k"
    assert default.id == named.id
    assert default.id != trials(set={"dataset.protocol": "coco-5x1k"})[0].id


def test_protocols_can_be_swept() -> None:
    swept = trials(sweep={"dataset.protocol": ["coco-5k", "coco-5x1k"]})
    assert [trial.settings.dataset.protocol for trial in swept] == ["coco-5k", "coco-5x1k"]


@pytest.mark.parametrize("table", [{"set": {"dataset.protocol": "coco-5x1"}}, {"sweep": {"dataset.protocol": ["x"]}}])
def test_an_unknown_protocol_names_those_of_the_data_set(table: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"unknown protocol .* of data set 'coco' .*Known: coco-5k, coco-5x1k"):
        trials(**table)


def test_a_protocol_of_another_data_set_is_refused() -> None:
    with pytest.raises(UserError, match=r"unknown protocol 'coco-5x1k' of data set 'flickr30k'"):
        trials(datasets=["coco", "flickr30k"], set={"dataset.protocol": "coco-5x1k"})
