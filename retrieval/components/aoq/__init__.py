"""AOQ: negatives from the whole training split, ranked ahead of training by a trained model. Chen et al., ECCV 2020."""

from goalgrid.grid.settings.components import Component, register

register(
    Component(
        "offline-negatives",
        needs="negatives from outside the batch",
        without="choose another objective",
        excludes=frozenset({"fusion", "replicas"}),
        training_method=f"{__name__}.training_method.OfflineNegatives",
        about="It needs candidates for negatives: train.ranker = RECIPE, or dataset.candidates = FOLDER.",
    )
)
