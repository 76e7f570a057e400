"""AOQ: negatives from the whole training split, ranked by a trained model before training. Chen et al., ECCV 2020."""

from goalgrid.grid.settings.components import Component, register

register(
    Component(
        "offline-negatives",
        needs="negatives from outside the batch",
        without="choose another objective",
        excludes=frozenset({"fusion", "replicas"}),
        training_method=f"{__name__}.training_method.OfflineNegatives",
        about="It needs candidate negatives: set train.ranker = RECIPE, or dataset.candidates = FOLDER.",
    )
)
