"""Mean and standard deviation for normalising pixels, by the value of `model.image.statistics`."""

from typing import Literal

StatisticsName = Literal["imagenet", "clip", "half", "caffe", "none"]
Triple = tuple[float, float, float]

STATISTICS: dict[StatisticsName, tuple[Triple, Triple]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "caffe": ((122.7717 / 255, 115.9465 / 255, 102.9801 / 255), (1 / 255, 1 / 255, 1 / 255)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""By name: mean and standard deviation of red, green and blue, for values from 0 to 1."""
