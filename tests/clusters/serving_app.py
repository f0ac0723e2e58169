"""The service of docs/serving.md for the software GPU: FastAPI, and a model that is one kernel, because PyTorch does not run there. `uvicorn serving_app:app --workers 4`."""

import ctypes
import os
import threading
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

PTX = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 factor)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r1, [factor];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r3, [%rd3];
    mul.lo.s32 %r3, %r3, %r1;
    st.global.u32 [%rd3], %r3;
    ret;
}
"""
COUNT = 64


class Refused(Exception):
    """What the driver interface has answered."""


def check(result):
    if result != 0:
        raise Refused(result)


class Model:
    """A module with one kernel and its memory, used by one thread at a time."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.one = threading.Lock()
        device, self.context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.function, self.data = ctypes.c_void_p(), ctypes.c_uint64()
        check(self.cuda.cuInit(0))
        check(self.cuda.cuDeviceGet(ctypes.byref(device), 0))
        check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device))
        check(self.cuda.cuCtxSetCurrent(self.context))
        check(self.cuda.cuModuleLoadData(ctypes.byref(module), PTX))
        check(self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"scale"))
        check(self.cuda.cuMemAlloc_v2(ctypes.byref(self.data), ctypes.c_size_t(4 * COUNT)))
        self.scale(1)  # Warm before the first request.

    def scale(self, factor):
        """The numbers 0 to 63, each times the factor."""
        numbers = (ctypes.c_uint32 * COUNT)(*range(COUNT))
        size, multiplier = ctypes.c_size_t(4 * COUNT), ctypes.c_uint32(factor)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(self.data), ctypes.addressof(multiplier))
        with self.one:
            # FastAPI calls from several threads.
            check(self.cuda.cuCtxSetCurrent(self.context))
            check(self.cuda.cuMemcpyHtoD_v2(self.data, numbers, size))
            check(self.cuda.cuLaunchKernel(self.function, 1, 1, 1, COUNT, 1, 1, 0, None, parameters, None))
            check(self.cuda.cuMemcpyDtoH_v2(numbers, self.data, size))
        return list(numbers)

    def memory(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with self.one:
            check(self.cuda.cuCtxSetCurrent(self.context))
            check(self.cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return total.value

    def grab(self, mebibytes):
        """Asks for so much memory and gives it back."""
        found = ctypes.c_uint64()
        with self.one:
            check(self.cuda.cuCtxSetCurrent(self.context))
            check(self.cuda.cuMemAlloc_v2(ctypes.byref(found), ctypes.c_size_t(mebibytes << 20)))
            check(self.cuda.cuMemFree_v2(found))


model = None


@asynccontextmanager
async def lifespan(app):
    global model
    model = Model()
    yield


app = FastAPI(lifespan=lifespan)


@app.get("/readyz")
def ready():
    return {"ready": model is not None, "process": os.getpid()}


@app.get("/scale")
def scale(factor: int):
    return {"numbers": model.scale(factor)}


@app.get("/card")
def card(grab: int):
    try:
        model.grab(grab)
    except Refused as refused:
        raise HTTPException(507, f"CUresult {refused}") from refused
    return {"total": model.memory()}
