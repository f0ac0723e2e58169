// A kernel that launches a graph from the device, which no software GPU does.
// nvcc: -rdc=true -lcudadevrt -gencode arch=compute_75,code=compute_75
#define NESTED
#include "relocatable.cuh"
