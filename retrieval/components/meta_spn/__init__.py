"""Meta-SPN: weights of pairs, learnt on half of the validation split. Wei et al., ACM MM 2021; our reading."""

from goalgrid.grid.settings.components import Component, register

register(
    Component(
        "learnt-weights",
        needs="a meta batch for a single network",
        without="choose another objective",
        excludes=frozenset({"twins", "replicas"}),
        training_method=f"{__name__}.pair_weights.LearntWeights",
        about="The paper leaves much open: docs/negatives.md says what is ours. Half of the validation split selects.",
    )
)
