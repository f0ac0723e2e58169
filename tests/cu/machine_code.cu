// Machine code for one architecture and no PTX at all.
// nvcc: -gencode arch=compute_90,code=sm_90
#include "relocatable.cuh"
