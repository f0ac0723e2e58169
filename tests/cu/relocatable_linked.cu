// The same, linked by the compiler for one architecture: machine code alone.
// nvcc: -rdc=true -gencode arch=compute_90,code=[sm_90,compute_90]
#include "relocatable.cuh"
