"""Meta-SPN: pair weights learnt on half of the validation split. Wei et al., ACM MM 2021; our interpretation."""

from goalgrid.grid.settings.components import Component, register

register(
    Component(
        "learnt-weights",
        needs="a meta batch for a single network",
        without="choose another objective",
        excludes=frozenset({"twins", "replicas"}),
        training_method=f"{__name__}.pair_weights.LearntWeights",
        about="The paper leaves details open: docs/negatives.md. Half of the validation split selects the checkpoint.",
    )
)
