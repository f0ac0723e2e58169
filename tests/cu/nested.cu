// A kernel that starts another: dynamic parallelism, which comes with relocatable device code.
// nvcc: -rdc=true -lcudadevrt -gencode arch=compute_75,code=compute_75
#define NESTED
#include "relocatable.cuh"
