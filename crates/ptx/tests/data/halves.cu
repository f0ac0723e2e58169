// Half and bfloat16, scalar and packed.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void halves(__half *a, __half2 *b, __nv_bfloat16 *c, __nv_bfloat162 *d, float *f) {
    int i = threadIdx.x;
    __half x = a[i];
    __half2 y = b[i];
    __nv_bfloat16 z = c[i];
    a[i] = __hadd(x, x) * __float2half(2.f) + __hfma(x, x, x) + __hmin(x, x);
    b[i] = __hadd2(y, y) * y + __hfma2_relu(y, y, y) + __hneg2(y) + __hadd2_sat(y, y);
    c[i] = __hmax(__hmul(z, z), __float2bfloat16(3.f));
    d[i] = __hfma2(d[i], d[i], __habs2(d[i]));
    f[i] = __half2float(x) + __bfloat162float(z) + __hlt(x, __half(1)) + __hbeq2(y, y) + __half2int_rn(x);
    atomicAdd(a, x);
    atomicAdd(b, y);
    b[i] = __shfl_xor_sync(~0u, y, 1);
}
