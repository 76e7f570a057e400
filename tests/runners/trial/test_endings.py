"""The class of a failure, from what torch and the libraries of CUDA raise."""

import torch

from goalgrid.grid.store.attempts import Failure
from goalgrid.runners.trial.run import classify
from tests.cases import every

RAISED = {
    "CUDA out of memory. Tried to allocate 2.00 GiB.": Failure.OUT_OF_MEMORY,
    "CUDA error: out of memory": Failure.OUT_OF_MEMORY,
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": Failure.OUT_OF_MEMORY,
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`": Failure.OUT_OF_MEMORY,
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED": Failure.OUT_OF_MEMORY,
    "cuDNN error: CUDNN_STATUS_NOT_INITIALIZED": Failure.OUT_OF_MEMORY,
    "FIND was unable to find an engine to execute this computation": Failure.OUT_OF_MEMORY,
    "GET was unable to find an engine to execute this computation": Failure.OUT_OF_MEMORY,
    "cusolver error: CUSOLVER_STATUS_NOT_INITIALIZED, when calling `cusolverDnCreate(handle)`": Failure.OUT_OF_MEMORY,
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR": Failure.DEVICE,
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED": Failure.DEVICE,
    "cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnSgesvdj`": Failure.DEVICE,
    "NCCL error in: ProcessGroupNCCL.cpp:1333, unhandled cuda error, NCCL version 2.27.3": Failure.DEVICE,
    "Triton Error [CUDA]: an illegal memory access was encountered": Failure.DEVICE,
    "CUDA error: an illegal memory access was encountered": Failure.DEVICE,
    "CUDA error: device-side assert triggered": Failure.DEVICE,
    "CUDA error: uncorrectable ECC error encountered": Failure.DEVICE,
    "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)": Failure.BUG,
}


@every(("message", "failure"), RAISED.items())
def test_what_a_gpu_raises_has_its_class(message: str, failure: Failure) -> None:
    assert classify(RuntimeError(message)) is failure
    assert classify(torch.AcceleratorError(message)) is failure
