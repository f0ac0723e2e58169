// Source of the .fatbin and .cubin files beside it:
//   nvcc -fatbin -gencode arch=compute_75,code=[sm_75,compute_75] \
//        -gencode arch=compute_90a,code=compute_90a --compress-mode=MODE -o MODE.fatbin scale.cu
//   nvcc -cubin -arch=sm_75 -o sm_75.cubin scale.cu
extern "C" __global__ void scale(float *data, float factor, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) data[i] *= factor;
}
