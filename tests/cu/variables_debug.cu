// The same without optimisation: instructions hold addresses themselves. Pointers to functions are addresses of the driver's there.
// nvcc: -G -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=[sm_90,compute_90]
#include "variables.cuh"
