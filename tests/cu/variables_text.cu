// The same as PTX, which the driver compiles.
// nvcc: -gencode arch=compute_75,code=compute_75
#define WITH_FUNCTIONS
#include "variables.cuh"
