"""X-VLM: a fusion encoder that looks at an image and a caption together. Zeng et al., ICML 2022."""

from goalgrid.grid.parts import Part, register

register(
    Part(
        "fusion",
        needs="negatives of a whole batch in one network",
        without="choose a recipe without fusion",
        excludes=frozenset({"twins", "replicas"}),
        of=lambda model: "" if model.fusion.kind == "none" else f"fusion {model.fusion.kind}",
    )
)
