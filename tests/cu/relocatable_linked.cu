// The same, linked by the compiler for one architecture: machine code, and PTX of the part.
// nvcc: -rdc=true -gencode arch=compute_90,code=[sm_90,compute_90]
#include "relocatable.cuh"
